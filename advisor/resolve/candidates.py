"""Candidates of each package for the target, read from the index, newest first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import Specifier
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.index.client import IndexClient
from advisor.index.distributions import MetadataError
from advisor.index.metadata import CoreMetadata
from advisor.index.pages import ProjectPage
from advisor.resolve.compatible_files import Offer, OfferReader
from advisor.resolve.problem import Candidate, Dependency, ResolutionProblem, admits
from advisor.resolve.requirements_cache import KeptRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCandidates:
    """Files or versions of a package that could not be candidates, and why."""

    package: str
    reason: str
    count: int
    example: str


class IndexCandidates:
    """The candidates that the configured indexes offer a problem.

    Attributes:
        fetched: Candidates whose metadata was asked for so far.
        unknown_extras: ``(package, extra)`` pairs that were required but that the chosen version does not provide.
    """

    def __init__(self, client: IndexClient, problem: ResolutionProblem, *, advisories: bool = False) -> None:
        self._client = client
        self._problem = problem
        self._advisories = advisories
        self._candidates: dict[NormalizedName, tuple[Candidate, ...]] = {}
        self._skipped: dict[NormalizedName, Counter[str]] = {}
        self._examples: dict[tuple[NormalizedName, str], str] = {}
        self._dependencies: dict[tuple[str, NormalizedName | None], tuple[Dependency, ...] | None] = {}
        self._offers = OfferReader(problem.target, client.cache)
        self._kept = KeptRequirements(problem.target, client.cache)
        self._lock = threading.Lock()
        self._ahead: set[NormalizedName] = set()
        self._asked: set[str] = set()
        self.fetched: set[str] = set()
        self.unknown_extras: set[tuple[str, str]] = set()

    def candidates(self, name: NormalizedName) -> tuple[Candidate, ...]:
        """Return the candidates of a package for the target, newest first."""
        self._asked.add(name)
        return self._offered(name)

    def _offered(self, name: NormalizedName) -> tuple[Candidate, ...]:
        if name not in self._candidates:
            pages = self._client.pages(name)
            with self._lock:
                if name not in self._candidates:
                    self._candidates[name] = self._select(name, pages)
        return self._candidates[name]

    def dependencies(self, candidate: Candidate, extra: NormalizedName | None = None) -> tuple[Dependency, ...] | None:
        """Return what a candidate requires on the target, or requires more with an extra.

        None where the candidate's metadata is malformed, contradicts its file, or is only known after a build.
        """
        key = (candidate.file.url, extra)
        if key not in self._dependencies:
            self._dependencies[key] = self._read_dependencies(candidate, extra)
        return self._dependencies[key]

    def fetch(self, candidates: Iterable[Candidate]) -> None:
        """Fetch the metadata of candidates in one parallel batch."""
        wanted = [c for c in candidates if c.file.url not in self.fetched]
        self._client.prefetch(files=[c.file for c in wanted if not self._kept.holds(c.file)])
        if self._advisories:
            self._client.prefetch_vulnerabilities((c.file, c.name, str(c.version)) for c in wanted)
        for candidate in wanted:
            self.dependencies(candidate)

    def vulnerabilities(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Return a candidate's known vulnerabilities, or none where its index keeps no record."""
        return self._client.vulnerabilities(candidate.file, candidate.name, str(candidate.version))

    def variant(self, problem: ResolutionProblem) -> IndexCandidates:
        """Return the candidates of a problem that differs in the user's own requirements only."""
        other = IndexCandidates(self._client, problem, advisories=self._advisories)
        roots = (*problem.roots, *self._problem.roots)
        changed = {r.name for r in roots if problem.roots_of(r.name) != self._problem.roots_of(r.name)}
        other._candidates = {name: found for name, found in self._candidates.items() if name not in changed}
        other._dependencies = self._dependencies
        other.fetched = self.fetched
        other._offers = self._offers
        other._kept = self._kept
        other._ahead = self._ahead
        return other

    def is_known(self, candidate: Candidate) -> bool:
        """Whether the candidate's metadata was read."""
        return candidate.file.url in self.fetched

    def prefetch(self, names: Iterable[NormalizedName]) -> None:
        """Start fetching the pages of packages, and what their newest candidates require, without waiting."""
        names = list(names)
        self._client.prefetch(projects=names)
        for name in names:
            self._look_ahead(name)

    def _look_ahead(self, name: NormalizedName) -> None:
        """Fetch what a resolver is likely to ask for next; nothing of it counts as known before it is asked for."""
        if not self._client.offline and name not in self._ahead:
            self._ahead.add(name)
            self._client.in_background(lambda: self._fetch_ahead(name))

    def _fetch_ahead(self, name: NormalizedName) -> None:
        roots = [root.requirement for root in self._problem.roots_of(name)]
        for candidate in self._offered(name):
            if all(admits(requirement, candidate.version) for requirement in roots):
                for requirement in self._client.metadata(candidate.file).requires:
                    if self._problem.applies(requirement):
                        self._look_ahead(canonicalize_name(requirement.name))
                return

    @property
    def reached(self) -> Sequence[NormalizedName]:
        """Packages whose candidates were asked for, sorted."""
        return sorted(self._candidates)

    def knows(self, name: NormalizedName) -> bool:
        """Whether any index knows a package."""
        return bool(self._client.pages(name))

    def skipped(self) -> tuple[SkippedCandidates, ...]:
        """Return what could not be a candidate, by package and reason."""
        return tuple(
            SkippedCandidates(package=name, reason=reason, count=count, example=self._examples[name, reason])
            for name, reasons in sorted(self._skipped.items())
            if name in self._asked
            for reason, count in sorted(reasons.items())
        )

    def reasons(self, name: str) -> str:
        """Say in a few words which files of a package could not be candidates."""
        return "; ".join(f"{s.count} {s.reason}" for s in self.skipped() if s.package == name)

    def _skip(self, name: NormalizedName, reason: str, filename: str, count: int = 1) -> None:
        self._skipped.setdefault(name, Counter())[reason] += count
        self._examples.setdefault((name, reason), filename)

    def _select(self, name: NormalizedName, pages: Sequence[ProjectPage]) -> tuple[Candidate, ...]:
        roots = self._problem.roots_of(name)
        hashes = [root.hashes for root in roots if root.hashes]
        pinned = [s for root in roots for s in root.requirement.specifier if _is_pin(s)]
        best: dict[Version, Offer] = {}
        taken: set[str] = set()
        for page in pages:
            offers = self._offers.read(page, name)
            for reason, count in offers.refused.items():
                self._skip(name, reason, offers.examples[reason], count)
            for offer in offers.files:
                # Where several pages offer a file of one name, the first one's counts.
                if offer.file.filename in taken:
                    continue
                taken.add(offer.file.filename)
                file = offer.file
                known = best.get(offer.version)
                if reason := self._refusal(name, offer):
                    self._skip(name, reason, file.filename)
                elif (
                    file.yanked
                    and (name, offer.version) not in self._problem.policy.kept
                    and not any(s.contains(offer.version, prereleases=True) for s in pinned)
                ):
                    self._skip(name, "yanked", file.filename)
                elif any(file.sha256 not in accepted for accepted in hashes):
                    self._skip(name, "hash not among those required", file.filename)
                elif known is None or offer.rank < known.rank:
                    best[offer.version] = offer
        return tuple(
            Candidate(name=name, version=version, file=best[version].file)
            for version in sorted(self._without_prereleases(name, best), reverse=True)
        )

    def _refusal(self, name: NormalizedName, offer: Offer) -> str:
        """Return why the policy refuses a file, or nothing."""
        policy, uploaded = self._problem.policy, offer.file.uploaded
        if offer.is_wheel and not policy.takes_wheels(name):
            return "wheels are excluded by `--no-binary`"
        if not offer.is_wheel and not policy.takes_sdists(name):
            return "sdists are excluded by `--only-binary`"
        if policy.exclude_newer and (uploaded is None or uploaded > policy.exclude_newer):
            return "newer than `--exclude-newer`" if uploaded else "no upload time, which `--exclude-newer` needs"
        return ""

    def _without_prereleases(self, name: NormalizedName, versions: Iterable[Version]) -> list[Version]:
        """Drop pre-releases unless they are all there is, or the user's own requirement names one (PEP 440)."""
        versions = list(versions)
        opted_in = self._problem.policy.prereleases or any(
            root.requirement.specifier.prereleases for root in self._problem.roots_of(name)
        )
        kept = self._problem.policy.kept
        final = [v for v in versions if not v.is_prerelease or (name, v) in kept]
        if opted_in or not final:
            return versions
        for version in versions:
            if version not in final:
                self._skip(name, "pre-release", str(version))
        return final

    def _read_dependencies(self, candidate: Candidate, extra: NormalizedName | None) -> tuple[Dependency, ...] | None:
        kept = self._kept.read(candidate.file, extra)
        if kept is not None:
            self.fetched.add(candidate.file.url)
            return self._overridden(kept)
        metadata = self._usable_metadata(candidate)
        if metadata is None:
            return None
        if extra is not None and extra not in metadata.extras:
            self.unknown_extras.add((candidate.name, extra))
            return ()
        wanted = [
            requirement
            for requirement in metadata.requires
            if (
                self._problem.applies(requirement)
                if extra is None
                else self._problem.applies(requirement, extra) and not self._problem.applies(requirement)
            )
        ]
        if not candidate.is_sdist:
            self._kept.write(candidate.file, extra, wanted)
        return self._overridden(wanted)

    def _overridden(self, declared: Iterable[Requirement]) -> tuple[Dependency, ...]:
        return tuple(
            Dependency(name=canonicalize_name(requirement.name), requirement=requirement)
            for one in declared
            for requirement in self._problem.overridden(one)
        )

    def _usable_metadata(self, candidate: Candidate) -> CoreMetadata | None:
        self.fetched.add(candidate.file.url)
        try:
            metadata = self._client.metadata(candidate.file)
        except MetadataError as error:
            self._skip(candidate.name, str(error), candidate.file.filename)
            return None
        if candidate.is_sdist and metadata.dynamic:
            if not self._problem.policy.build_sdists:
                reason = "sdist whose requirements are only known after a build of its metadata (`--build-sdists`)"
                self._skip(candidate.name, reason, candidate.file.filename)
                return None
            try:
                metadata = self._client.built_metadata(candidate.file)
            except MetadataError as error:
                self._skip(candidate.name, str(error), candidate.file.filename)
                return None
        if metadata.name != candidate.name or metadata.version.public != candidate.version.public:
            self._skip(candidate.name, "metadata and file name disagree", candidate.file.filename)
            return None
        if metadata.requires_python and not self._offers.runs_on_target(str(metadata.requires_python)):
            self._skip(candidate.name, "requires another Python", candidate.file.filename)
            return None
        return metadata


def _is_pin(specifier: Specifier) -> bool:
    """Whether a specifier names one version, which may then be one that was withdrawn (PEP 592)."""
    return specifier.operator == "===" or (specifier.operator == "==" and not specifier.version.endswith(".*"))
