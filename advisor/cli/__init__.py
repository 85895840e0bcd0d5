"""The command line: one module a command group; only this room prints, prompts or exits."""
