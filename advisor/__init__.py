"""Computes the lock with the best score for a project on given hardware, with a proof that it is optimal."""
