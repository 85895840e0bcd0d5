"""Facts that ship with the program, each with its source: builds, rules and run-time settings."""
