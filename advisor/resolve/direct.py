"""Packages of a problem that come from a repository, an archive or a directory: each has one candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.index.client import IndexClient
from advisor.index.distributions import MetadataError
from advisor.project.interface import parse_direct
from advisor.resolve.baseline import BuildsNeededError, NoStackError
from advisor.resolve.direct_metadata import DirectDistribution, DirectReader, NeedsBuildError
from advisor.resolve.problem import Candidate, DirectPackage, ResolutionProblem
from knowledge.domain.errors import AdvisorError, InputError

_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A direct reference that something requires.

    Attributes:
        reference: The reference.
        name: Name of the package; none if only its metadata contains it.
        origin: What requires it, for messages.
        extras: Extras of the package that are required.
    """

    reference: DirectReference
    name: NormalizedName | None
    origin: str
    extras: frozenset[str]


def with_direct_packages(problem: ResolutionProblem, client: IndexClient) -> ResolutionProblem:
    """Return a problem with the one candidate of each package that comes from no index.

    These are the packages that the project requires from an address, and those that such packages require from an
    address. What an address requires from an index is left to the resolver.

    Args:
        problem: The problem.
        client: The indexes, with the cache.

    Raises:
        BuildsNeededError: If the requirements of a package are only known after a build, and builds were not allowed.
        InputError: If a directory does not exist, or a package has another name than required.
        NoStackError: If a package is not for the target, or comes from two places.
        UnavailableError: If a repository or an archive cannot be read, or a build fails.
    """
    every = [root for root in (*problem.roots, *problem.overrides) if root.direct and problem.applies(root.requirement)]
    if not every:
        return problem
    resolver = _DirectResolver(problem, client)
    resolver.add(
        _Wanted(
            reference=root.direct,
            name=None if root.has_guessed_name else root.name,
            origin=root.origin,
            extras=frozenset(root.requirement.extras),
        )
        for root in every
        if root.direct is not None
    )
    return replace(
        problem,
        roots=tuple(map(resolver.named, problem.roots)),
        overrides=tuple(map(resolver.named, problem.overrides)),
        direct=resolver.packages,
    )


class _DirectResolver:
    """Reads direct references, and those that they require, each once."""

    def __init__(self, problem: ResolutionProblem, client: IndexClient) -> None:
        self._problem = problem
        self._reader = DirectReader(client, problem.target, build=problem.policy.build_sdists)
        self._read: dict[DirectReference, DirectDistribution] = {}
        self._origins: dict[NormalizedName, str] = {}
        self._overridden = {override.name for override in problem.overrides}
        self.packages: dict[NormalizedName, DirectPackage] = {}

    def add(self, wanted: Iterable[_Wanted]) -> None:
        """Add references, and those that they require.

        Raises:
            AdvisorError: As for :func:`with_direct_packages`.
        """
        pending = list(wanted)
        while pending:
            unread = list(dict.fromkeys(w.reference for w in pending if w.reference not in self._read))
            origins = {w.reference: w.origin for w in reversed(pending)}
            with ThreadPoolExecutor(max_workers=_THREADS) as pool:
                results = list(pool.map(self._try, unread, [origins[reference] for reference in unread]))
            unbuilt = [reference for reference, result in zip(unread, results, strict=True) if result is None]
            if unbuilt:
                raise BuildsNeededError([reference.printable for reference in unbuilt])
            self._read |= {reference: r for reference, r in zip(unread, results, strict=True) if r is not None}
            for one in pending:
                self._add(one)
            pending = [more for one in pending for more in self._required_by(one)]

    def named(self, root: RootRequirement) -> RootRequirement:
        """Return a requirement with the name in the metadata of its package, and with the commit of its repository."""
        if root.direct not in self._read:
            return root
        distribution = self._read[root.direct]
        requirement = root.requirement
        if root.has_guessed_name:
            requirement = Requirement(str(requirement))
            requirement.name = distribution.metadata.name
        return replace(root, requirement=requirement, direct=distribution.reference, has_guessed_name=False)

    def _try(self, reference: DirectReference, origin: str) -> DirectDistribution | None:
        """Return what a reference leads to; none if it has to be built, which was not allowed."""
        try:
            return self._reader.read(reference)
        except NeedsBuildError:
            return None
        except MetadataError as error:
            raise NoStackError(f"{origin}: `{reference.printable}` cannot be used: {error}") from None
        except AdvisorError as error:
            error.message = f"{origin}: {error.message}"
            raise

    def _add(self, wanted: _Wanted) -> None:
        distribution = self._read[wanted.reference]
        metadata, reference = distribution.metadata, distribution.reference
        name = metadata.name
        if wanted.name not in (None, name):
            raise InputError(
                f"{wanted.origin}: `{reference.printable}` is the package `{name}`, not `{wanted.name}`",
                hint=f"write `{name} @ ...`",
            )
        python = self._problem.target.python
        if metadata.requires_python and not metadata.requires_python.contains(python, prereleases=True):
            raise NoStackError(
                f"`{name}` ({wanted.origin}) requires Python `{metadata.requires_python}`, and the target has {python}",
                hint="choose another interpreter with `--python`",
            )
        other = self.packages.get(name)
        if other is not None and other.candidate.direct is not None and other.candidate.direct != reference:
            raise NoStackError(
                f"the package `{name}` comes from two places",
                details=(
                    f"{self._origins[name]} requires `{other.candidate.direct.printable}`",
                    f"{wanted.origin} requires `{reference.printable}`",
                ),
                hint="require it from one place, or choose one with an override",
            )
        self._origins.setdefault(name, wanted.origin)
        candidate = Candidate(name=name, version=metadata.version, file=distribution.file, direct=reference)
        self.packages[name] = DirectPackage(candidate=candidate, metadata=metadata)

    def _required_by(self, wanted: _Wanted) -> Iterator[_Wanted]:
        """Yield the direct references that a package requires, unless an override replaces them."""
        metadata = self._read[wanted.reference].metadata
        for requirement in metadata.requires:
            name = canonicalize_name(requirement.name)
            if requirement.url is None or name in self._overridden or name == metadata.name:
                continue
            if any(self._problem.applies(requirement, extra) for extra in ("", *wanted.extras)):
                yield _Wanted(
                    reference=parse_direct(requirement.url, f"`{metadata.name}`"),
                    name=name,
                    origin=f"`{metadata.name} {metadata.version}`",
                    extras=frozenset(requirement.extras),
                )
