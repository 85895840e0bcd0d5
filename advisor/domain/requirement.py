"""A requirement of the user's own, with the place where it was read."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRequirement:
    """A requirement of the user's own.

    Attributes:
        requirement: The parsed requirement.
        origin: File and line it stands on, such as ``requirements.txt:3``.
        constraint: Whether it only limits a package that something else requires (``-c``).
        hashes: Accepted SHA-256 hashes; empty accepts every file.
        other_hashes: Accepted hashes by other algorithms, such as ``sha512:...``; indexes do not give them.
        path: The file, so that it can be opened; empty where the requirement stands in none.
    """

    requirement: Requirement
    origin: str
    constraint: bool = False
    hashes: frozenset[str] = frozenset()
    other_hashes: frozenset[str] = frozenset()
    path: str = ""

    @property
    def name(self) -> NormalizedName:
        """Normalised name of the required package."""
        return canonicalize_name(self.requirement.name)

    @property
    def line(self) -> int:
        """Line that it stands on, from 1; 0 where that is not known."""
        number = self.origin.rpartition(":")[2]
        return int(number) if number.isdigit() else 0
