"""Writers of lock files, which move to `advisor/locks/formats`."""
