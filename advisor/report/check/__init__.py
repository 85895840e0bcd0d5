"""The result of the gate, in formats for people and for platforms."""
