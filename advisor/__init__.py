"""Turns a project and a hardware profile into the best provable lock."""
