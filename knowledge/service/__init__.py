"""HTTP service for a knowledge base, and its client."""
