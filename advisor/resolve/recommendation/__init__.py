"""The recommendation for one problem, for several ways to state it, and for several targets."""
