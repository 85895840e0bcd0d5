"""Curated rules: package versions that are forbidden or discouraged, each with its source."""
