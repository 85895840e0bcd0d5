"""What is known about stacks: observations, curated facts, and what they imply."""
