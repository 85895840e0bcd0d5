"""Admission to the knowledge base: observations from other sources are checked first."""
