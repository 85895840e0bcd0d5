"""The package index: configuration, pages, metadata, cache. Only this package opens connections to an index."""
