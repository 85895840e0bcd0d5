"""The contract of executors, and tests of each executor."""
