"""Readers of files with requirements, one module for each format.

A reader raises an `InputError` that names the file, and the line if it is known, if the file cannot be read, is
malformed or does not have what the user selected.
"""
