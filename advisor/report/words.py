"""Phrases that several reports use."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 package``, ``2 packages``.

    Args:
        number: How many.
        noun: The noun in the singular, whose plural ends in ``s``.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
