"""Computes the lock with the best score for a project on given hardware, with a proof that it is optimal."""

# It adds its frameworks to `knowledge.domain.framework_packages`.
import pi_runners as pi_runners
