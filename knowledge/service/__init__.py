"""A knowledge base over HTTP: the service, and its client."""
