"""New releases of packages of a lock: what each does to the project, and which were reported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import speed_text
from advisor.gate.check import TargetResult
from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.gate.scope import GateCase
from advisor.index.pages.filenames import version_of
from advisor.index.pages.page import is_distribution
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import ResolutionProblem
from advisor.resolve.score.predictor import performance_versions
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.domain.shared_files import write_atomically
from knowledge.records import RecordError, value_from

ReleaseOutcome = Literal["faster", "slower", "does-not-run", "not-different", "not-known"]
"""What a release does to a project."""
CODES: dict[ReleaseOutcome, str] = {
    "faster": "ADV042",
    "slower": "ADV043",
    "does-not-run": "ADV044",
    "not-different": "ADV045",
    "not-known": "ADV046",
}
_REMOVED = "ADV047"
_SCHEMA = 1
NO_FILE = "the index has no file of it for the target"
"""Why a release does not run that has wheels for other targets only."""
_SETTLED: tuple[ReleaseOutcome | None, ...] = ("faster", "slower", "not-different")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRelease:
    """A release that was reported.

    Attributes:
        target: Name of the target; empty if the project has no named ones.
        package: Its package.
        version: Its version.
        outcome: What it was reported to do.
        measured: Whether a measurement said so.
    """

    target: str
    package: str
    version: str
    outcome: ReleaseOutcome
    measured: bool = False

    def __post_init__(self) -> None:
        """Check the version."""
        Version(self.version)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the release."""
        return self.target, self.package, self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """The file of the state."""

    schema: int
    releases: tuple[ReportedRelease, ...]


@dataclass(frozen=True, slots=True)
class WatchState:
    """The releases that were reported, in a file. It contains no times, so no clock can confuse it."""

    releases: tuple[ReportedRelease, ...] = ()

    @classmethod
    def read(cls, path: Path) -> WatchState:
        """Read a file; without one, nothing was reported.

        Raises:
            InputError: If it cannot be read, or is of a newer program.
        """
        hint = "delete it to have everything reported again, or name another one with `--state`"
        try:
            document = value_from(_Document, path.read_bytes())
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise InputError(f"`{path}` cannot be read: {error.strerror}", hint=hint) from None
        except RecordError as error:
            raise InputError(f"`{path}` is not the state of `advisor watch`: {error}", hint=hint) from None
        if document.schema != _SCHEMA:
            raise InputError(f"`{path}` was written by another version of this program", hint=hint)
        return cls(document.releases)

    def write(self, path: Path) -> None:
        """Replace the file.

        Raises:
            InputError: If it cannot be written.
        """
        document = _Document(schema=_SCHEMA, releases=tuple(sorted(self.releases, key=lambda r: r.key)))
        write_atomically(path, json.dumps(asdict(document), indent=1) + "\n")

    def outcome_of(self, target: str, package: str, version: str) -> ReleaseOutcome | None:
        """Return what a release was reported to do; `None` if it was not reported."""
        return next((r.outcome for r in self.releases if r.key == (target, package, version)), None)

    def is_settled(self, target: str, package: str, version: str) -> bool:
        """Whether nothing more is to be said of a release: neither evidence nor a file for the target can be news."""
        key = target, package, version
        return any(
            r.key == key and (r.outcome in _SETTLED or (r.measured and r.outcome != "not-known")) for r in self.releases
        )

    def is_measured(self, key: tuple[str, str, str]) -> bool:
        """Whether a release was measured, even if that decided nothing."""
        return any(release.key == key and release.measured for release in self.releases)

    def with_releases(self, releases: Iterable[ReportedRelease]) -> WatchState:
        """Return the state after some releases were reported."""
        every = {release.key: release for release in (*self.releases, *releases)}
        return WatchState(tuple(every.values()))

    def without(self, releases: Iterable[ReportedRelease]) -> WatchState:
        """Return the state without some releases, so that they are reported again if they come back."""
        keys = {release.key for release in releases}
        return WatchState(tuple(release for release in self.releases if release.key not in keys))


def watched_packages(case: GateCase) -> list[NormalizedName]:
    """Return the locked packages whose releases may change the speed, or which the project names, sorted."""
    locked = case.head.lock.versions
    names = {*performance_versions(locked), *(n for n in case.head.problem.direct_names if n in locked)}
    return sorted(NormalizedName(name) for name in names)


def new_releases(case: GateCase, problem: ResolutionProblem) -> Iterator[tuple[NormalizedName, Version, bool]]:
    """Yield the newest release of each watched package that a problem admits, if it is newer than the lock.

    If the target has no file of it, the newest release that has one follows.

    Yields:
        Package, version, and whether the target has a file of it.

    Raises:
        UnavailableError: If an index cannot be read.
    """
    source, names = IndexCandidates(case.client, problem), watched_packages(case)
    case.client.prefetch(projects=names)
    for name in names:
        specifiers = [root.requirement.specifier for root in problem.roots_of(name)]
        listed = _listed(case, name, problem.policy.exclude_newer)
        newest = max((version for version in listed if _is_release(version, specifiers)), default=None)
        usable = [c.version for c in source.candidates(name) if _is_release(c.version, specifiers)]
        newer = [version for version in usable if version > case.head.lock.versions[name]]
        if newest is not None and newest not in {Version(version.public) for version in newer}:
            yield name, newest, False
        if newer:
            yield name, max(newer), True


def _listed(case: GateCase, name: NormalizedName, until: str | None) -> Iterator[Version]:
    """Yield the releases on the pages of a package that are newer than the lock, for whatever target."""
    locked = case.head.lock.versions[name]

    def is_newer(filename: str) -> bool:
        version = version_of(filename)
        return version is not None and version > locked and is_distribution(filename)

    for page in case.client.pages(name):
        for file in page.read(is_newer).files:
            version = version_of(file.filename)
            is_too_new = until is not None and (file.uploaded is None or file.uploaded > until)
            if version is not None and not file.yanked and not is_too_new:
                yield Version(version.public)


def _is_release(version: Version, specifiers: Iterable[SpecifierSet]) -> bool:
    """Whether a version is final, and requirements admit it."""
    return not version.is_prerelease and all(specifier.contains(version) for specifier in specifiers)


def removed_releases(case: GateCase, problem: ResolutionProblem, state: WatchState) -> Iterator[ReportedRelease]:
    """Yield the reported releases of a target that the index does not offer any more."""
    locked = case.head.lock.versions
    for release in state.releases:
        name = NormalizedName(release.package)
        if release.target != case.name or name not in locked or Version(release.version) <= locked[name]:
            continue
        # Also without a file for the target, or against newer constraints, it is a release of the index.
        if Version(Version(release.version).public) not in set(_listed(case, name, problem.policy.exclude_newer)):
            yield release


def outcome_of_release(result: TargetResult) -> ReleaseOutcome:
    """Return what a release does to a target."""
    verdict = result.verdict
    if result.not_predicted:
        return "does-not-run"
    if verdict is None:
        return "not-known"
    if verdict.speed is None and verdict.outcome != "no-difference":
        # Also where only the lock cannot run now: nothing says how fast the release is.
        return "does-not-run" if verdict.outcome == "worse" else "not-known"
    names: dict[str, ReleaseOutcome] = {"better": "faster", "worse": "slower", "no-difference": "not-different"}
    return names.get(verdict.outcome, "not-known")


def release_finding(release: ReportedRelease, reason: str, *, case: GateCase, policy: GatePolicy) -> Finding:
    """Return the finding about a release, with a reason in words."""
    code = CODES[release.outcome]
    texts = {
        "faster": "is faster",
        "slower": "is slower",
        "does-not-run": "does not run",
        "not-different": "does not change the speed",
        "not-known": "may change the speed",
    }
    lock = case.head.lock
    message = f"`{release.package} {release.version}` {texts[release.outcome]}: {reason}"
    return _finding(code, release, message, lock_path=str(lock.path or ""), policy=policy)


def removed_finding(release: ReportedRelease, *, policy: GatePolicy, lock_path: str) -> Finding:
    """Return the finding about a release that was reported and that the index removed."""
    message = f"`{release.package} {release.version}` was reported, and the index does not offer it any more"
    return _finding(_REMOVED, release, message, lock_path=lock_path, policy=policy)


def _finding(code: str, release: ReportedRelease, message: str, *, lock_path: str, policy: GatePolicy) -> Finding:
    return Finding(
        code=code,
        level=policy.level_of(code),
        message=message,
        place=Place(path=lock_path),
        package=release.package,
        subject=release.version,
        targets=(release.target,),
    )


def reason_of(result: TargetResult) -> str:
    """Return why a release does what it does, in a few words."""
    verdict = result.verdict
    if result.not_predicted:
        return result.not_predicted
    if verdict is None:
        return "its effect is not known"
    return verdict.reason if verdict.speed is None else speed_text(verdict.speed, "the lock")


def failed_reason(error: AdvisorError) -> str:
    """Return why no lock has a release, from the error that says so."""
    details = getattr(error, "details", ())
    return "; ".join([error.message, *details[:2]])
