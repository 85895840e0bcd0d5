"""A requirement of the user, with the file and line where it was read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.direct_reference import DirectReference


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRequirement:
    """A requirement of the user.

    Attributes:
        requirement: The parsed requirement, without an address.
        origin: File and line, such as ``requirements.txt:3``, for messages.
        constraint: Whether it only constrains a package that something else requires (``-c``).
        hashes: Accepted SHA-256 hashes; if empty, every file is accepted.
        other_hashes: Accepted hashes by other algorithms, such as ``sha512:...``; indexes do not provide these.
        path: Path of the file; empty if the requirement is not from a file.
        direct: Repository, archive or directory that the package comes from; ``None`` if it comes from an index.
        is_added: Whether the program adds it, so that it is no constraint of the user.
        instead_of: Package that the user requires, if this is on another one that takes its place; else ``None``.
        has_guessed_name: Whether the name is not written, so that only the metadata of the package contains it.
    """

    requirement: Requirement
    origin: str
    constraint: bool = False
    hashes: frozenset[str] = frozenset()
    other_hashes: frozenset[str] = frozenset()
    path: str = ""
    direct: DirectReference | None = None
    has_guessed_name: bool = False
    is_added: bool = False
    instead_of: NormalizedName | None = None

    @property
    def name(self) -> NormalizedName:
        """Normalised name of the required package."""
        return canonicalize_name(self.requirement.name)

    @property
    def line(self) -> int:
        """Line in the file, from 1; 0 if unknown."""
        number = self.origin.rpartition(":")[2]
        return int(number) if number.isdigit() else 0

    def without_versions(self) -> RootRequirement:
        """Return the requirement without its specifier and hashes, so that it admits every version."""
        free = Requirement(str(self.requirement))
        free.specifier = SpecifierSet()
        return replace(self, requirement=free, hashes=frozenset())
