"""Why a stack is the best, why there is none, and what else a person wants to know about it."""
