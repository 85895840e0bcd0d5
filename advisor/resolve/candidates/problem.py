"""The problem to resolve: requirements, candidates, and the source of candidates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.domain.words import quoted
from advisor.index.metadata.core import CoreMetadata
from advisor.index.pages.page import DistributionFile
from advisor.project.metadata.stated_metadata import StatedMetadata
from knowledge.domain.errors import AdvisorError, UnsatisfiableError, without_secrets

if TYPE_CHECKING:
    from knowledge.catalogue.builds import Replacement
    from knowledge.catalogue.rules import UndeclaredRequirementRule

Node = tuple[NormalizedName, NormalizedName | None]
"""A package, or one extra of it."""
PROJECT = NormalizedName("")
"""Stands for the project itself among the packages that require others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePolicy:
    """Which files may become candidates.

    Attributes:
        prereleases: Whether pre-releases of every package are candidates.
        build_sdists: Whether sdists may be built to read their requirements, which runs their code.
        assume_sdists: Whether what an sdist states without a build is taken for its requirements, to find out whether
            builds are all that a stack lacks.
        only_binary: Packages never installed from an sdist; ``:all:`` for every package.
        no_binary: Packages never installed from a wheel; ``:all:`` for every package.
        exclude_newer: ISO 8601 time in UTC; files uploaded later are excluded.
        variants: Whether variant wheels may be candidates (PEP 825, a preview feature).
        retained: Names and versions that are candidates even if they are yanked or pre-releases.
    """

    prereleases: bool = False
    build_sdists: bool = False
    assume_sdists: bool = False
    only_binary: frozenset[str] = frozenset()
    no_binary: frozenset[str] = frozenset()
    exclude_newer: str | None = None
    variants: bool = False
    retained: frozenset[tuple[str, Version]] = frozenset()

    def allows_wheels(self, name: str) -> bool:
        """Whether wheels of a package may be candidates."""
        return not self.no_binary & {name, ":all:"}

    def allows_sdists(self, name: str) -> bool:
        """Whether sdists of a package may be candidates."""
        return not self.only_binary & {name, ":all:"}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Substitution:
    """What is required wherever something requires a package: another package, or further extras of it.

    Attributes:
        package: The package.
        replacement: The package that is required instead; the same one if only extras are added.
        versions: Specifier of the versions of the replacement that may be taken.
        extras: Extras that are added.
        dropped: Extras that are not required any more.
        source: Where it is stated that one may take the place of the other.
    """

    package: NormalizedName
    replacement: NormalizedName
    versions: str = ""
    extras: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    source: str = ""

    def __str__(self) -> str:
        """Return what is required, as in a requirement."""
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{self.replacement}{extras}"

    def applied_to(self, requirement: Requirement) -> Requirement:
        """Return the requirement on the replacement."""
        other = Requirement(str(requirement))
        other.name = self.replacement
        other.extras = (requirement.extras - self.dropped) | self.extras
        return other


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedReplacements:
    """Which packages may replace others: those that depend on nothing but the hardware, and those that are named."""

    by_hardware: bool = False
    by_name: Mapping[NormalizedName, NormalizedName] = field(default_factory=dict)

    def admits(self, entry: Replacement) -> bool:
        """Whether an entry of the catalogue may be used."""
        if self.by_name.get(canonicalize_name(entry.package)) == canonicalize_name(entry.replacement):
            return True
        return self.by_hardware and not entry.condition and entry.when != "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionProblem:
    """Everything that a stack must satisfy.

    Attributes:
        roots: The project's own requirements and constraints.
        target: The target.
        policy: Which files may become candidates.
        overrides: Requirements that replace every other requirement on their package.
        direct: Packages that come from a repository, an archive or a directory.
        substitutions: What is required instead of a package, by the package.
        extra_options: Extras that may be required of a package in addition: a stack has those of one option, or none.
        unread: Packages that a constraint takes from such a place, which cannot be read: why, if one is needed.
        undeclared: Returns the requirements that the metadata of some versions does not state.
        stated: Metadata that the project states, which replaces that of files.
    """

    roots: tuple[RootRequirement, ...]
    target: Target
    policy: CandidatePolicy = CandidatePolicy()
    overrides: tuple[RootRequirement, ...] = ()
    direct: Mapping[NormalizedName, DirectPackage] = field(default_factory=dict)
    substitutions: Mapping[NormalizedName, Substitution] = field(default_factory=dict)
    extra_options: Mapping[NormalizedName, tuple[Substitution, ...]] = field(default_factory=dict)
    unread: Mapping[NormalizedName, AdvisorError] = field(default_factory=dict)
    undeclared: Callable[[], tuple[UndeclaredRequirementRule, ...]] = field(default=tuple, compare=False)
    stated: tuple[StatedMetadata, ...] = ()
    _by_name: Mapping[str, tuple[RootRequirement, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Looked up many times for each package, and there may be thousands of packages.
        applying: dict[str, list[RootRequirement]] = {}
        for root in self.roots:
            if self.applies(root.requirement):
                applying.setdefault(root.name, []).append(root)
        object.__setattr__(self, "_by_name", {name: tuple(roots) for name, roots in applying.items()})

    @property
    def required(self) -> tuple[RootRequirement, ...]:
        """The project's own requirements that apply to the target, without constraints."""
        return tuple(root for root in self.roots if not root.constraint and self.applies(root.requirement))

    @property
    def direct_names(self) -> frozenset[NormalizedName]:
        """Packages that the project's own requirements name."""
        return frozenset(root.name for root in self.roots if not root.constraint)

    def roots_of(self, name: str) -> tuple[RootRequirement, ...]:
        """Return the project's requirements and constraints on one package that apply to the target."""
        return self._by_name.get(name, ())

    def admits(self, candidate: Candidate) -> bool:
        """Whether the project's requirements and constraints admit the version of a candidate."""
        return all(admits(root.requirement, candidate.version) for root in self.roots_of(candidate.name))

    def with_roots(self, roots: Iterable[RootRequirement]) -> ResolutionProblem:
        """Return the problem with further requirements of the project."""
        return replace(self, roots=(*self.roots, *roots))

    def stated_of(self, candidate: Candidate) -> CoreMetadata | None:
        """Return the metadata that the project states for a version, else for its package; `None` if it states none."""
        if candidate.direct is not None:
            return None
        own = [stated for stated in self.stated if stated.metadata.name == candidate.name]
        for version in (candidate.version, None):
            for stated in own:
                if stated.version == version:
                    return stated.of(candidate.version)
        return None

    def undeclared_of(self, candidate: Candidate) -> tuple[tuple[Requirement, str], ...]:
        """Return what a candidate requires although its metadata does not state it, each with its source."""
        pairs = ((rule.requirement_of(candidate.name, candidate.version), rule.source) for rule in self.undeclared())
        return tuple((requirement, source) for requirement, source in pairs if requirement is not None)

    def overridden(self, requirement: Requirement) -> tuple[Requirement, ...]:
        """Return the overrides of a requirement, or the requirement itself; extras are kept unless overridden.

        What is required instead of their packages takes their place.
        """
        if not (self.overrides or self.substitutions):
            return (requirement,)
        return tuple(map(self._substituted, self._overrides_of(requirement)))

    def _overrides_of(self, requirement: Requirement) -> tuple[Requirement, ...]:
        name = canonicalize_name(requirement.name)
        overrides = [o.requirement for o in self.overrides if o.name == name]
        if not overrides:
            return (requirement,)
        replacements = []
        for override in overrides:
            if self.applies(override):
                replacement = Requirement(str(override))
                replacement.extras = set(override.extras or requirement.extras)
                replacements.append(replacement)
        return tuple(replacements)

    def _substituted(self, requirement: Requirement) -> Requirement:
        substitution = self.substitutions.get(canonicalize_name(requirement.name))
        return requirement if substitution is None else substitution.applied_to(requirement)

    def with_substitutions(self, substitutions: Iterable[Substitution]) -> ResolutionProblem:
        """Return the problem with other packages or further extras required, also by the project itself."""
        fresh = {substitution.package: substitution for substitution in substitutions}
        limits = tuple(
            RootRequirement(
                requirement=Requirement(f"{s.replacement}{s.versions}"), origin=s.source, constraint=True, is_added=True
            )
            for s in fresh.values()
            if s.versions
        )
        problem = replace(self, substitutions={**self.substitutions, **fresh})
        return replace(problem, roots=(*map(problem._substituted_root, self.roots), *limits))

    def _substituted_root(self, root: RootRequirement) -> RootRequirement:
        requirement = self._substituted(root.requirement)
        is_renamed = canonicalize_name(requirement.name) != root.name
        return replace(root, requirement=requirement, instead_of=root.name if is_renamed else root.instead_of)

    def with_overridden_roots(self) -> ResolutionProblem:
        """Return the problem with its overrides applied to the project's own requirements."""
        return replace(self, roots=tuple(new for root in self.roots for new in self._overridden_root(root)))

    def _overridden_root(self, root: RootRequirement) -> tuple[RootRequirement, ...]:
        overrides = [override for override in self.overrides if override.name == root.name]
        if root.constraint or not overrides:
            return (root,)
        applying = [override for override in overrides if self.applies(override.requirement)]
        return tuple(
            replace(root, requirement=requirement, direct=override.direct, has_guessed_name=False)
            for override, requirement in zip(applying, self.overridden(root.requirement), strict=True)
        )

    def applies(self, requirement: Requirement, extra: str = "") -> bool:
        """Whether a requirement's marker is true on the target."""
        return self.target.satisfies(requirement.marker, extra=extra)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """One version of one package, with the file that the target would install.

    Attributes:
        name: Normalised name.
        version: Version.
        file: The file; for a repository or a directory, a stand-in with the address of the direct reference.
        direct: Repository, archive or directory that it comes from; `None` if it comes from an index.
    """

    name: NormalizedName
    version: Version
    file: DistributionFile
    direct: DirectReference | None = field(default=None, compare=False)

    @property
    def release(self) -> str:
        """Its version without the local part, which names the build."""
        return self.version.public

    @property
    def is_sdist(self) -> bool:
        """Whether installing it requires a build."""
        return not self.file.filename.endswith(".whl")


class CandidateStack(tuple[Candidate, ...]):
    """Candidates that are installed together, one of each package."""

    @cached_property
    def versions(self) -> dict[str, Version]:
        """Version of each package, by its normalised name."""
        return {str(candidate.name): candidate.version for candidate in self}

    @cached_property
    def by_name(self) -> dict[NormalizedName, Candidate]:
        """The candidate of each package."""
        return {candidate.name: candidate for candidate in self}


NO_PACKAGES = CandidateStack()
"""A stack without packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPackage:
    """A package that comes from no index: its one candidate, and its metadata."""

    candidate: Candidate
    metadata: CoreMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A package that a candidate or the project requires, with the required extras.

    `instead_of` is the package that is required by name, if this one takes its place. `source` says where the
    requirement is written, if that is not the metadata.
    """

    name: NormalizedName
    requirement: Requirement
    instead_of: NormalizedName | None = field(default=None, compare=False)
    source: str = field(default="", compare=False)

    @property
    def extras(self) -> tuple[NormalizedName, ...]:
        """Normalised extras, sorted."""
        return tuple(sorted(canonicalize_name(extra) for extra in self.requirement.extras))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What is required: the package without an extra, and with each required extra."""
        return tuple((self.name, extra) for extra in (None, *self.extras))


def walk(
    roots: Iterable[RootRequirement], dependencies_of: Callable[[Node], Iterable[Dependency]]
) -> Iterator[tuple[NormalizedName, Dependency]]:
    """Yield everything that requirements of the project lead to, each with the package that requires it.

    The project itself is :data:`PROJECT`. What a node requires is asked once for each that is reached.
    """
    visited: set[Node] = set()
    queue: list[Node] = []
    for root in roots:
        dependency = Dependency(name=root.name, requirement=root.requirement, instead_of=root.instead_of)
        queue += dependency.nodes
        yield PROJECT, dependency
    while queue:
        node = queue.pop()
        if node not in visited:
            visited.add(node)
            for dependency in dependencies_of(node):
                queue += dependency.nodes
                yield node[0], dependency


class CandidateSource(Protocol):
    """Source of the candidates of packages and of their requirements."""

    @property
    def fetched(self) -> Collection[str]:
        """Addresses of the files whose metadata has been requested."""

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package for the target, newest first."""

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return the dependencies of a candidate, or the additional ones of an extra; `None` if they are unusable."""

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        """Whether a candidate, whose dependencies with an extra were read, does not provide the extra."""

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata has been read."""

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        """Return the newer versions that requirements must exclude for a candidate to be chosen; usually none.

        Their builds failed because they need a package of the stack that they do not declare. That an older version
        happens to build without it is no reason to choose that: pip and uv end with the error of the newest one.
        Versions that the project's own requirements exclude are not among them.
        """

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Read the metadata of candidates in one parallel batch."""

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Start reading the pages of packages without waiting, and the metadata of the versions that come first."""

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        """Start reading the metadata of candidates without waiting."""


def prefetch_roots(problem: ResolutionProblem, source: CandidateSource) -> None:
    """Start reading what the project itself requires, without waiting."""
    roots = problem.required
    source.prefetch(sorted({root.name for root in roots}), [root.requirement for root in roots])


_ADMITTED: dict[tuple[str, Version], bool] = {}
_TEXTS: dict[int, tuple[SpecifierSet, str]] = {}
"""The text of each specifier, by its identity, which is valid as long as the specifier is here."""


def admits(requirement: Requirement, version: Version) -> bool:
    """Whether a requirement's specifier admits a version; pre-releases have been filtered before."""
    # Called with the same few hundred specifiers and versions many times.
    specifier = requirement.specifier
    if id(specifier) not in _TEXTS:
        _TEXTS[id(specifier)] = (specifier, str(specifier))
    text = _TEXTS[id(specifier)][1]
    if not text:
        return True
    key = (text, version)
    if key not in _ADMITTED:
        _ADMITTED[key] = specifier.contains(version, prereleases=True)
    return _ADMITTED[key]


class NoStackError(UnsatisfiableError):
    """Raised when no stack satisfies the requirements; `details` are lines that describe the conflict."""

    code = "unsatisfiable"

    def __init__(self, message: str, *, details: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.details = tuple(map(without_secrets, details))


class BuildsNeededError(NoStackError):
    """Raised when there is a stack only if packages, each with its version or address, are built."""

    code = "builds-needed"

    def __init__(self, packages: Sequence[str], *, reason: str = "", details: tuple[str, ...] = ()) -> None:
        """Create the error; by default, the requirements of the packages are only known after a build."""
        reason = reason or f"the requirements of {quoted(packages)} are only known after a build"
        super().__init__(
            f"there is no stack without a build: {reason}",
            details=details,
            hint="`--build-sdists` builds them, as pip and uv do without asking: this runs code of these packages here",
        )
        self.packages = tuple(packages)


class SizeLimitError(NoStackError):
    """Raised when no stack satisfies the limit of the download."""

    code = "size-limit"
