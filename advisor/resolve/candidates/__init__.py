"""What may be chosen: the problem, and the versions of each package that a target can install."""
