"""Metadata and sizes of wheels, sdists and source trees."""
