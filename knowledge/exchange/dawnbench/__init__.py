"""DAWNBench's published entries as observations."""
