"""Every executor against the contract; and what each has of its own."""
