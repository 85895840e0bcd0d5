"""Run-time settings that change speed: their values, how they are applied, and what they do to the numbers."""
