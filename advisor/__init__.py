"""Computes the lock with the best score for a project on given hardware, with a proof that it is optimal."""

from knowledge.domain import framework_packages

# As `pi_runners` does, which `advisor --version` does not import.
framework_packages.add("pi_runners.frameworks")
