"""What choices cost: rules, builds, speed, size and freshness as whole numbers."""
