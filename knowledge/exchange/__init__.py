"""Exchange formats of observations: records and files."""
