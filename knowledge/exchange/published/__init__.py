"""Tables of published measurements as observations."""
