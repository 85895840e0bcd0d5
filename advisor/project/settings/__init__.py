"""Run-time settings that the files of a project set."""
