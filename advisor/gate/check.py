"""The gate: checks the lock of a project for each of its targets, alone or compared with a base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Literal

from packaging.utils import NormalizedName

from advisor.gate.checks import checks_of
from advisor.gate.checks.artifacts import LockArtifacts
from advisor.gate.checks.speed_limits import check_gap
from advisor.gate.comparison import LockComparison, compare, setting_changes, with_settings_of_lock
from advisor.gate.findings import Finding, Place, merge_targets, resolved_findings
from advisor.gate.judgement import judge
from advisor.gate.policy import EXCEPTION_CODES, GatePolicy, Ignore, read_policy
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.scope import GateCase, InstallableFiles, ProjectState, Scope
from advisor.gate.verdict import ChangeVerdict, StackObstacle
from advisor.project.text_file import UnreadableFileError
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.explanation.findings import CUDA_LIBRARIES
from advisor.resolve.explanation.recommended_settings import CombinedGain, gain_with_settings
from advisor.resolve.explanation.stack_requirements import requirements_within
from knowledge.domain.errors import AdvisorError, UnsatisfiableError
from knowledge.estimate.interface import Prediction

PREVENT_PREDICTION = ("ADV001", "ADV002", "ADV003", "ADV004", "ADV005", "ADV006", "ADV012")
"""Codes of findings about stacks that cannot be installed or do not run: their speed is not predicted."""
_REMOVED = "ADV011"
"""The same for a version that a change brings and the target would install: where it is installed, it runs."""


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """The result of checking one target.

    Attributes:
        case: The project and the target.
        findings: All findings; the policy's exceptions are not applied yet.
        recommended: The recommended stack; `None` if it was not requested or there is none.
        recommended_prediction: Predicted speed-up of the recommended stack over the lock; `None` if that cannot run.
        not_predicted: Why the speed of the lock is not predicted; empty if it is.
        comparison: The lock compared with its base.
        verdict: What the change from the base does; `None` without a base.
        failure: Why the check is not complete; `None` if it is.
        installable: The file of each locked package that the target would install, if there is one.
    """

    case: GateCase
    findings: tuple[Finding, ...]
    recommended: RecommendedStack | None
    recommended_prediction: Prediction | None
    not_predicted: str
    comparison: LockComparison | None
    verdict: ChangeVerdict | None = None
    failure: AdvisorError | None
    installable: InstallableFiles

    @property
    def gain_with_settings(self) -> CombinedGain | None:
        """Speed-up of the recommended stack with its settings over the lock, if the lock recommends none."""
        if self.recommended is None or self.recommended_prediction is None or self.case.head.recommended_settings:
            return None
        return gain_with_settings(self.recommended_prediction, self.recommended.settings_gain)

    def required(self) -> Mapping[NormalizedName, Mapping[NormalizedName, tuple[str, ...]]]:
        """Return the requirements of the project (under an empty name) and of each locked package."""
        problem = self.case.head.problem
        return requirements_within(problem, IndexCandidates(self.case.client, problem), list(self.installable.values()))


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The result of checking all targets.

    Attributes:
        targets: The result of each target.
        policy: The policy that was applied.
        findings: Findings that no exception covers, the most important first.
        ignored: Findings that an exception covers, with the exception.
        unreadable: The file that could not be read, so that nothing was checked; `None` if everything was read.
    """

    targets: tuple[TargetResult, ...]
    policy: GatePolicy
    findings: tuple[Finding, ...]
    ignored: tuple[tuple[Finding, Ignore], ...]
    unreadable: UnreadableFileError | None = None

    @cached_property
    def failures(self) -> tuple[tuple[str, AdvisorError], ...]:
        """Name of each target whose check is not complete, and why."""
        return tuple((t.case.name, t.failure) for t in self.targets if t.failure is not None)

    @property
    def exit_code(self) -> int:
        """0: no finding fails; 1: some do; 2: nothing was checked; 3 or 4: the check is not complete.

        An unsatisfiable recommendation does not change the exit code if findings fail already: they usually are why.
        """
        if self.unreadable is not None:
            return self.unreadable.exit_code
        failed = int(any(finding.fails for finding in self.findings))
        codes = [failure.exit_code for _, failure in self.failures]
        if failed and all(code == UnsatisfiableError.exit_code for code in codes):
            return failed
        return max([failed, *codes])

    @property
    def state(self) -> str:
        """`passed`, `failed` or `not complete`."""
        return {0: "passed", 1: "failed"}.get(self.exit_code, "not complete")


def gate_result(
    targets: Iterable[TargetResult],
    policy: GatePolicy,
    *,
    today: date,
    before: GatePolicy | None = None,
    policy_changes: Sequence[Finding] = (),
) -> GateResult:
    """Return the result for all targets of a project, by its policy on a date in UTC.

    Problems of exceptions that the policy of the base (`before`) has, too, are not reported. `policy_changes` are
    findings about the project's own policy, if it differs from the policy that is applied.
    """
    targets = tuple(targets)
    every = [*policy_changes, *(f for target in targets for f in target.findings)]
    reported, ignored = policy.apply(every, today=today)
    if before is not None:
        ignored_before = {ignore.identity for ignore in before.ignores}
        reported = [
            f for f in reported if f.code not in EXCEPTION_CODES or (f.package, f.subject) not in ignored_before
        ]
    return GateResult(targets=targets, policy=policy, findings=merge_targets(reported), ignored=tuple(ignored))


def unreadable(error: UnreadableFileError) -> GateResult:
    """Return the result for a file that cannot be read: one finding that no exception covers, and no target."""
    policy = read_policy({})
    finding = Finding(
        code="ADV027",
        level="error",
        message=error.message,
        place=Place(path=str(error.path), line=error.line),
        package=error.package,
    )
    return GateResult(targets=(), policy=policy, findings=(finding,), ignored=(), unreadable=error)


def check_target(case: GateCase, policy: GatePolicy, *, today: date) -> TargetResult:
    """Check one target; with a base, only findings that the change causes are reported."""
    head = Scope(case=case, state=case.head, policy=policy)
    base = Scope(case=case, state=case.base[1], policy=policy) if case.base is not None else None
    of_base, of_head = list[Finding](), list[Finding]()
    comparison = verdict = best = prediction = failure = None
    try:
        if base is not None:
            comparison = _compared(head, base)
            _run("STATE_CHECKS", base, of_base)
        _run("STATE_CHECKS", head, of_head)
    except AdvisorError as error:
        failure = error
    findings = _new_findings(of_head, of_base)
    new_findings = () if comparison is None else tuple(f for f in findings if f.package in head.lock.versions)
    preventing = [f for f in of_head if f.code in PREVENT_PREDICTION or (f.code == _REMOVED and f in new_findings)]
    obstacle = StackObstacle("the lock", _failing(preventing, policy, today=today))
    before_obstacle = StackObstacle("", ())
    if comparison is not None:
        preventing = [f for f in of_base if f.code in PREVENT_PREDICTION]
        before_obstacle = StackObstacle(f"the base {comparison.base}", _failing(preventing, policy, today=today))
        reason = str(obstacle or before_obstacle)
        comparison = comparison.without_prediction(reason) if reason else comparison
    if failure is None:
        # What was made once for the checks of the state is not made again.
        try:
            if comparison is not None and base is not None:
                resolved = resolved_findings(of_base, of_head)
                verdict = judge(head, base, comparison, (obstacle, before_obstacle), resolved)
            head = replace(head, base=base, comparison=comparison, verdict=verdict)
            _run("CHANGE_CHECKS", head, findings)
            if case.recommend is not None:
                best = case.recommend()
                if not obstacle:
                    prediction = case.predictor.predict(best.versions, head.lock.versions)
                    findings += _gap_findings(head, best, prediction)
        except AdvisorError as error:
            failure = error
    return TargetResult(
        case=case,
        findings=tuple(findings),
        recommended=best,
        recommended_prediction=prediction,
        not_predicted=str(obstacle),
        comparison=comparison,
        verdict=verdict,
        failure=failure,
        installable=artifacts.installable if (artifacts := head.made(LockArtifacts)) is not None else {},
    )


def _run(kind: Literal["STATE_CHECKS", "CHANGE_CHECKS"], scope: Scope, findings: list[Finding]) -> None:
    """Add the findings of checks to a list; if a check raises an error, its earlier findings are in the list."""
    for check in checks_of(kind):
        findings.extend(check(scope))


def _compared(head: Scope, base: Scope) -> LockComparison:
    stacks = [head.lock.versions, base.lock.versions]
    path = head.lock.path or base.lock.path or Path()
    before, after = (
        with_settings_of_lock(scope.settings, scope.state.recommended_settings, path) for scope in (base, head)
    )
    assert head.case.base is not None
    return compare(
        head.case.base[0],
        base.lock.versions,
        head.lock.versions,
        head.case.predictor,
        settings=setting_changes(before, after, stacks, head.case.predictor),
        direct=_direct(head.state),
    )


def _failing(findings: Sequence[Finding], policy: GatePolicy, *, today: date) -> tuple[str, ...]:
    """Return the codes of those findings that fail the check and that the policy does not ignore."""
    reported, _ = policy.apply(list(findings), today=today)
    return tuple(finding.code for finding in reported if finding.fails and finding in findings)


def _new_findings(of_head: Iterable[Finding], of_base: Iterable[Finding]) -> list[Finding]:
    """Return the findings that the base does not have for the same files."""
    base_files: dict[tuple[str, str, str], set[str]] = {}
    for finding in of_base:
        base_files.setdefault(finding.key, set()).update(finding.cause.files)
    return [f for f in of_head if f.key not in base_files or not base_files[f.key].issuperset(f.cause.files)]


def _gap_findings(head: Scope, best: RecommendedStack, prediction: Prediction) -> list[Finding]:
    """Return the finding about the gap to the recommended stack, if the base does not have the same gap."""
    findings = list(check_gap(head, best, prediction))
    if findings and head.base is not None:
        base_prediction = head.case.predictor.predict(best.versions, head.base.lock.versions)
        if any(check_gap(head.base, best, base_prediction)):
            return []
    return findings


def _direct(state: ProjectState) -> set[str]:
    """Return the packages that a project names; pinned requirements name all packages, so CUDA's do not count."""
    names = {str(root.name) for root in state.problem.roots if not root.constraint}
    return {n for n in names if not n.startswith(CUDA_LIBRARIES)} if state.lock.is_project else names
