"""A source of candidates with fixed versions and requirements, for tests that compare answers with brute force."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.index.pages.page import DistributionFile
from advisor.resolve.candidates.problem import Candidate, Dependency


class FixedCandidates(ABC):
    """Candidates whose metadata is unknown until it is fetched; a subclass says which there are, and what they require.

    Attributes:
        fetched: Addresses of the files whose metadata has been requested.
    """

    def __init__(self) -> None:
        self.fetched: set[str] = set()

    @abstractmethod
    def versions_of(self, name: NormalizedName) -> Iterable[Version]:
        """Return the versions of a package, in any order."""

    @abstractmethod
    def requirements_of(self, candidate: Candidate, extra: NormalizedName | None) -> Iterable[Requirement]:
        """Return what a candidate requires, or what an extra of it requires in addition."""

    def stated_size(self, name: NormalizedName, version: Version) -> int | None:
        """Return the size that the page of a package states, in bytes; none if it states none."""
        return None

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package, newest first."""
        return tuple(
            Candidate(
                name=name,
                version=version,
                file=DistributionFile(
                    filename=f"{name}-{version}.whl",
                    url=f"{name}-{version}",
                    index="",
                    size=self.stated_size(name, version),
                ),
            )
            for version in sorted(self.versions_of(name), reverse=True)
        )

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return the dependencies of a candidate, or the additional ones of an extra; none if they are unusable."""
        assert candidate.file.url in self.fetched, "metadata must be fetched before it is read"
        return tuple(
            Dependency(name=canonicalize_name(requirement.name), requirement=requirement)
            for requirement in self.requirements_of(candidate, extra)
        )

    def vulnerabilities(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Return none: there are no records."""
        return None

    def size(self, candidate: Candidate) -> int | None:
        """Return the size of a candidate's file in bytes, as far as it is known."""
        return candidate.file.size

    def lacks_extra(self, candidate: Candidate, extra: NormalizedName) -> bool:
        """Return that every candidate provides every extra."""
        return False

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata has been fetched."""
        return candidate.file.url in self.fetched

    def lacks_build(self, candidate: Candidate) -> bool:
        """Return that no candidate needs a build."""
        return False

    def failed_newer(self, candidate: Candidate) -> Sequence[Version]:
        """Return that no build failed."""
        return ()

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Make the metadata of candidates known."""
        self.fetched.update(candidate.file.url for candidate in candidates)

    def prefetch(self, names: Iterable[NormalizedName], requirements: Iterable[Requirement] = ()) -> None:
        """Return without reading anything: there are no pages."""
        return

    def prefetch_metadata(self, candidates: Iterable[Candidate]) -> None:
        """Return without reading anything: all metadata is here."""
        return
