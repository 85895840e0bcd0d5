"""Indicators of training, inference and whole models."""
