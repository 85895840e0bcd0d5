"""The stack with the best score, with its proof, and the stack of a plain resolver."""
