"""The checks of the gate."""
