"""Values and phrases that several packages share: requirements, targets, words."""
