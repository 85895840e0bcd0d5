"""Campaigns: planned, brought to an engine, brought home."""
