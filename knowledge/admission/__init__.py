"""What is let into the knowledge base: observations that somebody else reports are looked at first."""
