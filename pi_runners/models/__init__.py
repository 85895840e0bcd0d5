"""Whole models, each defined once; every backend builds them from its framework's own layers."""
