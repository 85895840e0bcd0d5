"""Errors that are shown to the user: what happened, where, and a hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar

# Both take time in proportion to the text: no part is tried again from each of its characters.
_USER = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30})://(?P<user>[^/\s`'\"\\]*)@", re.IGNORECASE)
_SECRET = re.compile(
    r"(?P<name>[?&;](?=[\w-]*?(?:token|key|secret|passw|signature|credential|auth))[\w-]++=)[^&#\s`'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text without the passwords in its addresses: those of users, and those in queries.

    The user of an SSH address stays; that of another address may be a token.
    """

    def user(match: re.Match[str]) -> str:
        name = match["user"].partition(":")[0]
        return f"{match['scheme']}://{f'{name}@' if name and match['scheme'].lower().endswith('ssh') else ''}"

    return _SECRET.sub(r"\g<name>***", _USER.sub(user, text))


class AdvisorError(Exception):
    """Base class of errors that end a command with one sentence.

    Attributes:
        code: Stable name of the error, in kebab case.
        exit_code: Exit code of a command that ends with this error.
        message: One sentence, lower case, no final full stop.
        hint: What to do next, or an empty string.
        announced: Whether everything but the hint was printed already.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = without_secrets(message)
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.announced = False


class InputError(AdvisorError):
    """Raised for wrong usage, and for input that is unreadable or contradictory."""

    code = "unreadable-input"
    exit_code = 2


class UnsatisfiableError(AdvisorError):
    """Raised when no stack satisfies the constraints."""

    code = "unsatisfiable"
    exit_code = 3


class UnavailableError(AdvisorError):
    """Raised when an index, a knowledge base or an executor cannot be used."""

    code = "unavailable"
    exit_code = 4


def suggest(word: str, choices: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return the hint of an error about a word that is not one of several valid words; empty if there are none.

    ``otherwise`` is the hint if no valid word is similar; by default, it is a list of the valid words.
    """
    choices = list(choices)
    similar = difflib.get_close_matches(word, choices, n=1)
    if similar:
        return f"did you mean `{similar[0]}`?"
    if otherwise is not None:
        return otherwise
    return f"choose one of {', '.join(f'`{choice}`' for choice in choices)}" if choices else ""
