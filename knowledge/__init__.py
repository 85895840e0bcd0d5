"""Knowledge about stacks: observations, curated rules, and estimates."""
