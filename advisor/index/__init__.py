"""The package index: configuration, pages, metadata, cache; the only room that opens sockets to an index."""
