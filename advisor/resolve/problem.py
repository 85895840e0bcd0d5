"""What is to be resolved: requirements, candidates, and where candidates come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.index.page import DistributionFile
from knowledge.domain.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePolicy:
    """Which files may become candidates.

    Attributes:
        prereleases: Whether pre-releases of every package are candidates.
        build_sdists: Whether sdists may be built to learn what they require, which runs their code.
        only_binary: Packages never taken from an sdist; ``:all:`` for every package.
        no_binary: Packages never taken from a wheel; ``:all:`` for every package.
        exclude_newer: ISO 8601 time in UTC; files uploaded later do not exist.
        kept: Names and versions that stay candidates though they were withdrawn or are pre-releases.
    """

    prereleases: bool = False
    build_sdists: bool = False
    only_binary: frozenset[str] = frozenset()
    no_binary: frozenset[str] = frozenset()
    exclude_newer: str | None = None
    kept: frozenset[tuple[str, Version]] = frozenset()

    def takes_wheels(self, name: str) -> bool:
        """Whether wheels of a package may be candidates."""
        return not self.no_binary & {name, ":all:"}

    def takes_sdists(self, name: str) -> bool:
        """Whether sdists of a package may be candidates."""
        return not self.only_binary & {name, ":all:"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionProblem:
    """Everything that a stack must satisfy.

    Attributes:
        roots: The user's own requirements and constraints.
        target: What is resolved for.
        policy: Which files may become candidates.
        overrides: Requirements that stand in for every requirement on their package, whoever makes it.
    """

    roots: tuple[RootRequirement, ...]
    target: Target
    policy: CandidatePolicy = CandidatePolicy()
    overrides: tuple[RootRequirement, ...] = ()
    _by_name: Mapping[str, tuple[RootRequirement, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Called for each package many times; there may be thousands.
        applying: dict[str, list[RootRequirement]] = {}
        for root in self.roots:
            if self.applies(root.requirement):
                applying.setdefault(root.name, []).append(root)
        object.__setattr__(self, "_by_name", {name: tuple(roots) for name, roots in applying.items()})
        if not any(not root.constraint for root in self.roots):
            raise InputError("there is nothing to resolve: no requirement was given")

    def roots_of(self, name: str) -> tuple[RootRequirement, ...]:
        """Return the user's requirements and constraints on one package that apply to the target."""
        return self._by_name.get(name, ())

    def overridden(self, requirement: Requirement) -> tuple[Requirement, ...]:
        """Return what holds in place of a requirement; extras of the original are kept, unless overridden."""
        if not self.overrides:
            return (requirement,)
        name = canonicalize_name(requirement.name)
        overrides = [o.requirement for o in self.overrides if o.name == name]
        if not overrides:
            return (requirement,)
        found = []
        for override in overrides:
            if self.applies(override):
                replacement = Requirement(str(override))
                replacement.extras = set(override.extras or requirement.extras)
                found.append(replacement)
        return tuple(found)

    def with_overridden_roots(self) -> ResolutionProblem:
        """Return the problem with its overrides in place of the user's own requirements on the same packages."""
        if not self.overrides:
            return self
        roots = tuple(
            replace(root, requirement=requirement)
            for root in self.roots
            for requirement in ((root.requirement,) if root.constraint else self.overridden(root.requirement))
        )
        return replace(self, roots=roots)

    def applies(self, requirement: Requirement, extra: str = "") -> bool:
        """Whether a requirement's marker holds on the target."""
        return requirement.marker is None or requirement.marker.evaluate({**self.target.markers, "extra": extra})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """One version of one package, with the file that the target would install."""

    name: NormalizedName
    version: Version
    file: DistributionFile

    @property
    def is_sdist(self) -> bool:
        """Whether installing it means building it."""
        return not self.file.filename.endswith(".whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A package that a candidate or the root requires, with the extras asked of it."""

    name: NormalizedName
    requirement: Requirement

    @property
    def extras(self) -> tuple[NormalizedName, ...]:
        """Normalised extras, sorted."""
        return tuple(sorted(canonicalize_name(extra) for extra in self.requirement.extras))


class CandidateSource(Protocol):
    """Where the resolvers learn of versions and of what they require."""

    @property
    def fetched(self) -> Collection[str]:
        """Addresses of the files whose metadata was read so far."""

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package for the target, newest first."""

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return what a candidate requires, or requires more with an extra; none where its metadata is unusable."""

    def vulnerabilities(self, candidate: Candidate) -> Collection[str] | None:
        """Return a candidate's known vulnerabilities, or none where there is no record."""

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata was read."""

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Read the metadata of candidates in one parallel batch."""

    def prefetch(self, names: Iterable[NormalizedName]) -> None:
        """Start reading the pages of packages without waiting."""


_ADMITTED: dict[tuple[str, Version], bool] = {}


def admits(requirement: Requirement, version: Version) -> bool:
    """Whether a requirement's specifier admits a version; which pre-releases exist was decided before."""
    # Called with the same few hundred specifiers and versions many times.
    specifier = str(requirement.specifier)
    if not specifier:
        return True
    key = (specifier, version)
    if key not in _ADMITTED:
        _ADMITTED[key] = requirement.specifier.contains(version, prereleases=True)
    return _ADMITTED[key]
