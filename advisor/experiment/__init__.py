"""Experiments: measure a few candidates in rounds until the choice between them is certain."""
