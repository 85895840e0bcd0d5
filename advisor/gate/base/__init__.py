"""The base that a change is compared with: its files, its policy, and what a change must not replace."""
