"""Packages of a problem that come from a repository, an archive or a directory: each has one candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from advisor.domain.direct_reference import DirectReference, without_variables
from advisor.domain.requirement import RootRequirement
from advisor.index.client import IndexClient
from advisor.index.metadata.distributions import MetadataError
from advisor.project.interface import parse_direct
from advisor.resolve.candidates.direct_metadata import DirectDistribution, DirectReader, NeedsBuildError
from advisor.resolve.candidates.problem import (
    BuildsNeededError,
    Candidate,
    DirectPackage,
    NoStackError,
    ResolutionProblem,
)
from knowledge.domain.errors import AdvisorError, InputError

_THREADS = 4

_Result = DirectDistribution | AdvisorError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A direct reference that something (`origin`) requires, with extras; only its metadata may contain its name."""

    reference: DirectReference
    name: NormalizedName | None
    origin: str
    extras: frozenset[str]


def with_direct_packages(
    problem: ResolutionProblem, client: IndexClient, *, skip: Callable[[AdvisorError], None] | None = None
) -> ResolutionProblem:
    """Return a problem with the one candidate of each package that comes from no index.

    These are the packages that the project requires from an address, and those that such packages require from an
    address. What an address requires from an index is left to the resolver. If `skip` is stated, addresses that cannot
    be read are left out, and it is called with the reason for each.

    Raises:
        BuildsNeededError: If the requirements of a package are only known after a build, and builds were not allowed.
        InputError: If a directory does not exist, or a package has another name than required.
        NoStackError: If a package is not for the target, or comes from two places.
        UnavailableError: If a repository or an archive cannot be read, or a build fails.
    """
    every = [root for root in (*problem.roots, *problem.overrides) if root.direct and problem.applies(root.requirement)]
    if not every:
        return problem
    resolver = _DirectResolver(problem, client, skip)
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
        unread=resolver.unread,
    )


class _DirectResolver:
    """Reads direct references, and those that they require, each once."""

    def __init__(
        self, problem: ResolutionProblem, client: IndexClient, skip: Callable[[AdvisorError], None] | None
    ) -> None:
        self._problem = problem
        self._skip = skip
        self._required = {root.name for root in (*problem.roots, *problem.overrides) if not root.constraint}
        self._reader = DirectReader(client, problem.target, build=problem.policy.build_sdists)
        self._read: dict[DirectReference, DirectDistribution] = {}
        self._origins: dict[NormalizedName, str] = {}
        self._overridden = {override.name for override in problem.overrides}
        self.packages: dict[NormalizedName, DirectPackage] = {}
        self.unread: dict[NormalizedName, AdvisorError] = {}

    def add(self, wanted: Iterable[_Wanted]) -> None:
        """Add references, and those that they require."""
        pending = list(wanted)
        while pending:
            unread = list(dict.fromkeys(w.reference for w in pending if w.reference not in self._read))
            origins = {w.reference: w.origin for w in reversed(pending)}
            with ThreadPoolExecutor(max_workers=_THREADS) as pool:
                results = list(pool.map(self._try, unread, [origins[reference] for reference in unread]))
            by_reference = dict(zip(unread, results, strict=True))
            self._read |= {r: result for r, result in by_reference.items() if isinstance(result, DirectDistribution)}
            self._report([one for one in pending if one.reference not in self._read], by_reference)
            pending = [one for one in pending if one.reference in self._read]
            for one in pending:
                self._add(one)
            pending = [more for one in pending for more in self._required_by(one)]

    def _report(self, failed: Sequence[_Wanted], results: Mapping[DirectReference, _Result]) -> None:
        """Raise the reason why references cannot be read, or report it; for constraints only if they are needed."""
        unbuilt: list[str] = []
        for one in failed:
            result = results.get(one.reference)
            if isinstance(result, AdvisorError) and one.name and one.name not in self._required:
                self.unread[one.name] = result
            elif not isinstance(result, AdvisorError):
                unbuilt.append(one.reference.printable)
            elif self._skip is None:
                raise result
            else:
                self._skip(result)
        if unbuilt:
            error = BuildsNeededError(list(dict.fromkeys(unbuilt)))
            if self._skip is None:
                raise error
            self._skip(error)

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

    def _try(self, reference: DirectReference, origin: str) -> _Result:
        """Return what a reference leads to, or why it cannot be read; `None` if a build is needed and not allowed."""
        try:
            return self._reader.read(reference)
        except NeedsBuildError:
            return None
        except MetadataError as error:
            return NoStackError(f"{origin}: `{reference.printable}` cannot be used: {error}")
        except AdvisorError as error:
            error.message = f"{origin}: {error.message}"
            return error

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
        earlier = None if other is None else other.candidate.direct
        if earlier is not None:
            if not _is_same_content(earlier, reference):
                raise NoStackError(
                    f"the package `{name}` comes from two places",
                    details=(
                        f"{self._origins[name]} requires `{earlier.printable}`",
                        f"{wanted.origin} requires `{reference.printable}`",
                    ),
                    hint="require it from one place, or choose one with an override",
                )
            reference = replace(
                earlier, editable=earlier.editable or reference.editable, sha256=earlier.sha256 or reference.sha256
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
                with without_variables():
                    reference = parse_direct(requirement.url, f"`{metadata.name}`")
                yield _Wanted(
                    reference=reference,
                    name=name,
                    origin=f"`{metadata.name} {metadata.version}`",
                    extras=frozenset(requirement.extras),
                )


def _is_same_content(first: DirectReference, second: DirectReference) -> bool:
    """Whether two references lead to the same files; one may be editable, or name a branch, and one state no hash."""
    hashes = {first.sha256, second.sha256} - {""}
    same = {"editable": False, "revision": "", "sha256": ""}
    return len(hashes) < 2 and replace(first, **same) == replace(second, **same)  # type: ignore[arg-type]
