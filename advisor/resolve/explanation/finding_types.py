"""A finding about a recommendation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFinding:
    """A warning or a note about the recommendation.

    Attributes:
        code: Stable code, such as ``ADV101``.
        severity: ``warning`` or ``note``.
        message: One sentence.
        package: The package that it is about, or empty.
        source: Where the fact comes from, or empty.
    """

    code: str
    severity: str
    message: str
    package: str = ""
    source: str = ""
