"""What the observations imply for stacks that were not measured."""
