"""The shared vocabulary; the standard library and packaging only."""
