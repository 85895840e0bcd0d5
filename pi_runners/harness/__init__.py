"""What runs inside a measured environment: Python 3.8 and newer, the standard library and the framework only."""
