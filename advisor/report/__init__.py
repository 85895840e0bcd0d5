"""Reports: what a command found, as text or JSON."""
