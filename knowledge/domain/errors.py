"""Errors that a user is meant to read: what happened, where, and a hint."""

from __future__ import annotations

from typing import ClassVar


class AdvisorError(Exception):
    """Base of every error that ends a command with one sentence.

    Attributes:
        code: Stable kebab-case name of the error.
        exit_code: Exit status of a command that ends with this error.
        message: One sentence, lower case, no final full stop.
        hint: What to do next, or an empty string.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(AdvisorError):
    """Raised for wrong usage, or input that cannot be read or contradicts itself."""

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
