"""Writers of lock files."""
