"""Values that several parts of the program exchange: requirements and targets."""
