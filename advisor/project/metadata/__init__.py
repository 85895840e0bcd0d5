"""Metadata of source trees: stated, read without a build, or built in a copy."""
