"""The service and its client."""
