"""Hints for misspelt words: the nearest valid word, or a list of all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(word: str, choices: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return the hint of an error about a word that is not one of several valid words.

    Args:
        word: The invalid word.
        choices: The valid words.
        otherwise: Hint if no valid word is similar; by default, a list of the valid words.

    Returns:
        The hint; empty if there are no valid words and ``otherwise`` is not set.
    """
    choices = list(choices)
    similar = difflib.get_close_matches(word, choices, n=1)
    if similar:
        return f"did you mean `{similar[0]}`?"
    if otherwise is not None:
        return otherwise
    return f"choose one of {', '.join(f'`{choice}`' for choice in choices)}" if choices else ""
