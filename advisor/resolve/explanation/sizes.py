"""How much is downloaded and installed: sizes of the recommended stack, the baseline and the current lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import count
from advisor.index.client import IndexClient
from advisor.index.metadata.file_sizes import FileSize, Problem
from advisor.locks.lock import LockedVersion
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.explanation.findings import AdviceFinding, note

Measure = Literal["installed", "download"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSize:
    """The sizes in bytes of a package's file, and of its unpacked files without bytecode; `None` if not known."""

    name: str
    version: str
    download: int | None = None
    installed: int | None = None

    def size(self, measure: Measure) -> int | None:
        """Return one of the two sizes."""
        return self.installed if measure == "installed" else self.download


@dataclass(frozen=True, kw_only=True)
class StackSizes:
    """The sizes of the packages of a stack, sorted by name."""

    packages: tuple[PackageSize, ...]

    def total(self, measure: Measure) -> int:
        """Return the sum of the known sizes, in bytes."""
        return sum(package.size(measure) or 0 for package in self.packages)

    def unknown(self, measure: Measure) -> int:
        """Return the number of packages of unknown size."""
        return sum(package.size(measure) is None for package in self.packages)

    @cached_property
    def best_known(self) -> Measure:
        """The size that is known for most packages: the installed one if both are known for as many."""
        return "download" if self.unknown("download") < self.unknown("installed") else "installed"

    @cached_property
    def largest_first(self) -> tuple[PackageSize, ...]:
        """The packages whose :attr:`best_known` size is known, the largest first."""
        measured = [package for package in self.packages if package.size(self.best_known) is not None]
        return tuple(sorted(measured, key=lambda package: (-(package.size(self.best_known) or 0), package.name)))


@dataclass(frozen=True, kw_only=True)
class AdviceSizes:
    """The sizes of everything that an advice compares.

    Attributes:
        stack: The recommended stack.
        baseline: The baseline; `None` if there is none.
        current: The current lock, with the sizes that are known without a request; `None` if there is none.
        findings: What is not known, and why.
        final: Whether reading the sizes again would give the same result.
    """

    stack: StackSizes
    baseline: StackSizes | None
    current: StackSizes | None
    findings: tuple[AdviceFinding, ...]
    final: bool


def prefetch_sizes(client: IndexClient, stack: Iterable[Candidate]) -> None:
    """Start to read the sizes of a stack without waiting for them."""
    client.file_sizes.prefetch(candidate.file for candidate in stack if _has_file(candidate))


def read_sizes(
    client: IndexClient,
    source: IndexCandidates,
    stack: Sequence[Candidate],
    *,
    baseline: Sequence[Candidate] = (),
    current: Mapping[NormalizedName, LockedVersion] | None = None,
    wait_for: bool = True,
) -> AdviceSizes:
    """Return the sizes of a stack and of what it is compared with; a file of both is read once.

    The baseline may be empty, and the current lock `None`. Without `wait_for`, sizes that were not read are unknown.
    """
    candidates = [candidate for candidate in (*stack, *baseline) if _has_file(candidate)]
    sizes = client.file_sizes.read([candidate.file for candidate in candidates], wait_for=wait_for)
    missing: dict[Problem, set[str]] = defaultdict(set)
    for candidate in candidates:
        if (problem := sizes[candidate.file.identity].problem) is not None:
            missing[problem].add(f"{candidate.name} {candidate.version}")

    def sizes_of(candidates: Sequence[Candidate]) -> StackSizes:
        return StackSizes(
            packages=tuple(
                _package(c.name, c.version, sizes[c.file.identity] if _has_file(c) else FileSize())
                for c in sorted(candidates)
            )
        )

    read = {(c.name, c.version): sizes[c.file.identity] for c in candidates}
    return AdviceSizes(
        stack=sizes_of(stack),
        baseline=sizes_of(baseline) if baseline else None,
        current=None if current is None else _current_sizes(client, source, current, read),
        findings=tuple(
            note("ADV114", f"the sizes of {count(len(names), 'package')} are not known completely: {problem.text}")
            for problem, names in sorted(missing.items(), key=lambda item: item[0].text)
        ),
        final=not any(problem.temporary for problem in missing),
    )


def _has_file(candidate: Candidate) -> bool:
    """Whether a candidate is a file: repositories and directories have no size before they are built."""
    return candidate.direct is None or candidate.direct.kind == "archive"


def _package(name: str, version: Version, size: FileSize) -> PackageSize:
    return PackageSize(name=name, version=str(version), download=size.download, installed=size.installed)


def _current_sizes(
    client: IndexClient,
    source: IndexCandidates,
    current: Mapping[NormalizedName, LockedVersion],
    read: Mapping[tuple[NormalizedName, Version], FileSize],
) -> StackSizes:
    """Return the sizes of a lock: of files that were read, of candidates in the cache, or what the lock records."""
    loaded = set(source.loaded_packages)
    packages = []
    for name, locked in sorted(current.items()):
        size = None if locked.direct_reference else read.get((name, locked.version))
        if size is None:
            candidates = source.candidates(name) if name in loaded and not locked.direct_reference else ()
            same = next((c for c in candidates if c.version == locked.version and _has_file(c)), None)
            size = client.file_sizes.known(same.file) if same is not None else FileSize()
        if size.download is None and len(locked.files) == 1:
            size = replace(size, download=locked.files[0].size)
        packages.append(_package(name, locked.version, size))
    return StackSizes(packages=tuple(packages))
