"""One pass over the new releases of a project's packages: what each does to it, and what is news."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from advisor.api.context import TargetContext
from advisor.api.gate.changed_lock import with_upgrades
from advisor.api.gate.gate_session import OpenCases, open_cases
from advisor.api.measurements.bisect import Notify
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import ProjectOptions
from advisor.domain.words import quoted
from advisor.gate.check import GateResult, TargetResult, check_target
from advisor.gate.findings import Finding, merge_targets
from advisor.gate.problem import without_pins
from advisor.gate.releases import (
    NO_FILE,
    ReleaseOutcome,
    ReportedRelease,
    WatchState,
    failed_reason,
    new_releases,
    outcome_of_release,
    reason_of,
    release_finding,
    removed_finding,
    removed_releases,
    watched_packages,
)
from advisor.gate.scope import GateCase
from advisor.locks.registry import format_to_read
from knowledge.domain.errors import InputError, UnsatisfiableError
from knowledge.domain.identity import hash_of_text
from knowledge.store.state_hash import default_path

logger = logging.getLogger(__name__)

_LEAST_SECONDS = 60.0
"""Least time of a measurement: less decides nothing."""


@dataclass(frozen=True, kw_only=True)
class JudgedRelease:
    """A new release, and what it does to a target.

    Attributes:
        release: The release with its outcome.
        case: The project with its lock.
        result: The smallest change of the lock that has it, checked; ``None`` if no lock has it.
        reason: Why it has the outcome.
    """

    release: ReportedRelease
    case: GateCase
    result: TargetResult | None
    reason: str

    @property
    def steps(self) -> tuple[str, ...]:
        """What to do to have the release."""
        lock = self.case.head.lock
        if self.result is None or lock.path is None or self.result.comparison is None:
            return ()
        changed = self.result.comparison.changes
        pins = [f"{change.package}=={change.after}" for change in changed if change.after is not None]
        command = format_to_read(lock.path).update_command(pins) if lock.tool else ""
        return (f"`{command}`",) if command else (f"set {quoted(pins)} in `{lock.path}`",)


@dataclass(kw_only=True)
class Watch:
    """A pass: what is new, and the state after it.

    Attributes:
        opened: The project.
        path: The file of the state.
        state: What was reported before.
        judged: The new releases.
        releases: The same, and those whose outcome was reported before.
        removed: Reported releases that the index does not offer any more, each with the project.
        packages: Names of the watched packages of all targets.
    """

    opened: OpenCases
    path: Path
    state: WatchState
    judged: list[JudgedRelease] = field(default_factory=list)
    releases: list[ReportedRelease] = field(default_factory=list)
    removed: list[tuple[ReportedRelease, GateCase]] = field(default_factory=list)
    packages: set[str] = field(default_factory=set)

    def result(self, only: JudgedRelease | None = None) -> GateResult:
        """Return what is new as findings, with the change for each release, or for one of them alone."""
        policy, listed = self.opened.policy, self.judged if only is None else [only]
        findings: list[Finding] = [
            release_finding(judged.release, judged.reason, case=judged.case, policy=policy) for judged in listed
        ]
        findings += [
            removed_finding(release, policy=policy, lock_path=str(case.head.lock.path or ""))
            for release, case in (self.removed if only is None else ())
        ]
        reported, ignored = policy.apply(findings, today=datetime.now(UTC).date())
        # Exceptions of the gate are about the lock: that one has nothing to do here is no news.
        reported = [finding for finding in reported if finding in findings]
        targets = tuple(judged.result for judged in listed if judged.result is not None)
        return GateResult(targets=targets, policy=policy, findings=merge_targets(reported), ignored=tuple(ignored))

    def best(self) -> JudgedRelease | None:
        """Return the release that makes the project fastest; ``None`` if none certainly makes it faster."""
        faster = [judged for judged in self.judged if judged.release.outcome == "faster"]
        return max(faster, key=_gain, default=None)

    def keep(self) -> None:
        """Write that everything was reported.

        Raises:
            InputError: If the file cannot be written.
        """
        state = self.state.without(release for release, _ in self.removed)
        state = state.with_releases(self.releases)
        if state != self.state:
            state.write(self.path)


def _gain(judged: JudgedRelease) -> float:
    verdict = judged.result.verdict if judged.result is not None else None
    return verdict.speed.mean if verdict is not None and verdict.speed is not None else 0.0


def state_path(directory: Path) -> Path:
    """Return the default file of the state of a project: next to the user's knowledge base.

    Raises:
        InputError: If the user has no home directory.
    """
    knowledge = default_path()
    if knowledge is None:
        raise InputError("there is no home directory to keep the state in", hint="name a file: `--state FILE`")
    return knowledge.with_name("watch") / f"{hash_of_text(str(directory.resolve()))[:16]}.json"


@contextmanager
def open_watch(
    options: ProjectOptions, limits: ExperimentOptions, *, state: Path | None, notify: Notify
) -> Iterator[Watch]:
    """Judge the new releases that the constraints of a project admit, and that were not reported before.

    Args:
        options: The project, and the target.
        limits: How long may be measured, where evidence does not say what a release does; by default nothing is.
        state: The file of the state; by default one in the user's directory.
        notify: Called before each run of a measurement.

    Raises:
        InputError: If the project has no lock, or the state cannot be read or written.
        UnavailableError: If an index cannot be read.
    """
    if limits.budget_seconds is not None and limits.budget_seconds < _LEAST_SECONDS:
        raise InputError(f"`--measure` is too short: a measurement takes at least {_LEAST_SECONDS:g} s")
    path = state or state_path(options.files.directory)
    if state is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.parent.is_dir():
        raise InputError(f"`{path.parent}` is not a directory")
    before = WatchState.read(path)
    with open_cases(options, recommends=False) as opened:
        watch = Watch(opened=opened, path=path, state=before)
        for context, case in zip(opened.contexts, opened.cases, strict=True):
            problem = without_pins(case.head.problem, case.head.lock)
            watch.packages.update(watched_packages(case))
            watch.removed += [(release, case) for release in removed_releases(case, problem, before)]
            for name, version, has_file in new_releases(case, problem):
                if before.is_settled(case.name, name, str(version)):
                    continue
                if has_file:
                    watch.judged.append(_judged(context, case, opened, name, version))
                else:
                    release = _release(case, name, version, "does-not-run")
                    watch.judged.append(JudgedRelease(release=release, case=case, result=None, reason=NO_FILE))
        if limits.budget_seconds:
            _measure(watch, options, limits, notify)
        # Once measured, always measured: what that did not decide is judged by evidence only.
        watch.releases = [
            replace(r, measured=r.measured or before.is_measured(r.key)) for r in (j.release for j in watch.judged)
        ]
        watch.judged = [j for j in watch.judged if before.outcome_of(*j.release.key) != j.release.outcome]
        yield watch


def _judged(context: TargetContext, case: GateCase, opened: OpenCases, name: str, version: Version) -> JudgedRelease:
    """Return what a release does to a target, by evidence."""
    today = datetime.now(UTC).date()
    try:
        changed = with_upgrades(context, case, [Requirement(f"{name}=={version}")])
        result = check_target(changed, opened.policy, today=today)
    except UnsatisfiableError as error:
        release = _release(case, name, version, "does-not-run")
        return JudgedRelease(release=release, case=case, result=None, reason=failed_reason(error))
    if result.failure is not None:
        raise result.failure
    return _of_result(case, name, version, result)


def _of_result(case: GateCase, name: str, version: Version | str, result: TargetResult) -> JudgedRelease:
    is_measured = result.verdict is not None and result.verdict.is_measured
    release = replace(_release(case, name, version, outcome_of_release(result)), measured=is_measured)
    return JudgedRelease(release=release, case=case, result=result, reason=reason_of(result))


def _release(case: GateCase, name: str, version: Version | str, outcome: ReleaseOutcome) -> ReportedRelease:
    return ReportedRelease(target=case.name, package=name, version=str(version), outcome=outcome)


def _measure(watch: Watch, options: ProjectOptions, limits: ExperimentOptions, notify: Notify) -> None:
    """Measure the releases of frameworks whose effect is not known, in equal shares of the time that is left."""
    # Measurements take long to import.
    from advisor.api.gate.measured_verdict import is_this_machine, measured, other_machine_error

    end = time.monotonic() + (limits.budget_seconds or 0.0)
    unknown = [(n, judged, judged.result) for n, judged in enumerate(watch.judged) if judged.result is not None]
    unknown = [(n, judged, result) for n, judged, result in unknown if _is_measurable(watch.state, judged, result)]
    here = [entry for entry in unknown if is_this_machine(entry[2])]
    if others := [entry[2] for entry in unknown if entry not in here]:
        logger.warning("%s", other_machine_error(others).message)
    for done, (number, judged, result) in enumerate(here):
        remaining = end - time.monotonic()
        if done and remaining < _LEAST_SECONDS:
            releases = [f"{entry[1].release.package} {entry[1].release.version}" for entry in here[done:]]
            logger.warning("the time was over before %s could be measured", quoted(releases))
            return
        seconds = max(_LEAST_SECONDS, remaining / (len(here) - done))
        own = measured(result, watch.opened.policy, options, replace(limits, budget_seconds=seconds), notify)
        watch.judged[number] = _of_result(judged.case, judged.release.package, judged.release.version, own)


def _is_measurable(state: WatchState, judged: JudgedRelease, result: TargetResult) -> bool:
    """Whether a measurement can decide about a release, and none was made yet."""
    is_open = judged.release.outcome == "not-known" and not state.is_measured(judged.release.key)
    return is_open and result.verdict is not None and result.verdict.has_frameworks
