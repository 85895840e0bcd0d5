"""The reports of `advisor advise` and `advisor explain`."""
