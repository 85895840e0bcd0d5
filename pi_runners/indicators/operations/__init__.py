"""Indicators of single operations."""
