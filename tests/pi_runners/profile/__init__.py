"""Tests of profiles of the user's own program."""
