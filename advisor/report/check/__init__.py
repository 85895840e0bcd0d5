"""What the gate found, in the formats that people and platforms read."""
