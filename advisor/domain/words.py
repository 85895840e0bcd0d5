"""Phrases that messages and reports share."""

from __future__ import annotations

from collections.abc import Collection


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 package``, ``2 packages``.

    Args:
        number: The number.
        noun: The noun in the singular, whose plural ends in ``s``.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def quoted(names: Collection[str]) -> str:
    """Return names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def unmeasured_text(names: Collection[str]) -> str:
    """Return that packages have not been measured on comparable hardware."""
    return f"{quoted(names)} {'has' if len(names) == 1 else 'have'} not been measured on comparable hardware"
