"""What runs at the start of each Python of a user's command: Python 3.8 and newer, the standard library only.

The folder contains nothing else, because the command has it on its ``PYTHONPATH``.
"""
