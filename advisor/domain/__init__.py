"""Values that several packages share: requirements and targets."""
