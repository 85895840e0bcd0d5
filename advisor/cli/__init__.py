"""The command line: one module for each command group; only this package prints, prompts or exits."""
