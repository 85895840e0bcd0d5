"""Lock files: writing them, atomically."""
