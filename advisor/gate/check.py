"""The gate: checks the lock of a project for each of its targets, alone or compared with a base."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import NormalizedName

from advisor.domain.direct_reference import DirectReference
from advisor.gate.checks.artifacts import LockArtifacts
from advisor.gate.checks.compatibility import check_compatibility
from advisor.gate.checks.download import check_download, check_growth
from advisor.gate.checks.hash_loss import check_hash_loss
from advisor.gate.checks.locked_files import LockedFiles
from advisor.gate.checks.requirements import check_requirements
from advisor.gate.checks.settings import (
    RecommendedValues,
    check_contradictions,
    check_recommended_settings,
    check_slow_settings,
    check_supported_settings,
    check_unread_files,
)
from advisor.gate.checks.unindexed import check_changed_content, check_replaced_by_directories
from advisor.gate.compare import (
    LockComparison,
    check_gap,
    check_regression,
    check_setting_regression,
    compare,
)
from advisor.gate.findings import Finding, Place, gate_codes, merge_targets
from advisor.gate.policy import EXCEPTION_CODES, GatePolicy, Ignore, read_policy
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.scope import InstallableFiles, Scope
from advisor.gate.setting_changes import setting_changes, with_settings_of_lock
from advisor.index.client import IndexClient
from advisor.locks.lock import Lock
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.project_settings import ProjectSettings
from advisor.project.text_file import UnreadableFileError
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem
from advisor.resolve.explanation.findings import CUDA_LIBRARIES
from advisor.resolve.explanation.stack_requirements import requirements_within
from advisor.resolve.score.predictor import Predictor
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import shipped_rules
from knowledge.domain.errors import AdvisorError, UnsatisfiableError
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.interface import Prediction

if TYPE_CHECKING:
    from advisor.resolve.explanation.recommended_settings import CombinedGain

PREVENT_PREDICTION = ("ADV001", "ADV002", "ADV003", "ADV004", "ADV005", "ADV006", "ADV012")
"""Codes of findings about stacks that cannot be installed or do not run: their speed is not predicted."""


@dataclass(frozen=True, kw_only=True)
class ProjectState:
    """The state of a project: in the checkout, or in a commit.

    Attributes:
        lock: Its lock.
        problem: Its requirements.
        allowed_indexes: Addresses that its packages may come from.
        project_settings: Its run-time settings.
        recommended_settings: Run-time settings that its lock recommends.
        requirements_known: Whether its requirements are known; they are not if the base is only a lock file.
        trusted_references: Repositories, archives and directories that its packages may come from.
    """

    lock: Lock
    problem: ResolutionProblem
    allowed_indexes: Collection[str]
    project_settings: ProjectSettings = field(default_factory=ProjectSettings)
    recommended_settings: RecommendedValues = field(default_factory=dict)
    requirements_known: bool = True
    trusted_references: tuple[DirectReference, ...] = ()

    @property
    def settings_on_target(self) -> tuple[ProjectSetting, ...]:
        """Its run-time settings, without those of operations on devices that the target does not use."""
        return self.project_settings.on("cuda" if self.problem.target.hardware.gpu else "cpu")


@dataclass(frozen=True, kw_only=True)
class GateCase:
    """A project and a target to check it for.

    Attributes:
        name: Name of the target; empty if the project has no named targets.
        head: The project.
        client: The indexes.
        predictor: Predictions from the observations, for the target.
        recommend: Returns the recommended stack; none to skip that comparison.
        base: Display name and state of the base that the project is compared with, if there is one.
        max_size: Largest admissible download of the lock, in bytes; none for no limit.
    """

    name: str
    head: ProjectState
    client: IndexClient
    predictor: Predictor
    recommend: Callable[[], RecommendedStack] | None = None
    base: tuple[str, ProjectState] | None = None
    max_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """The result of checking one target.

    Attributes:
        case: The project and the target.
        findings: All findings; the policy's exceptions are not applied yet.
        recommended: The recommended stack; none if it was not requested or there is none.
        recommended_prediction: Predicted speed-up of the recommended stack over the lock; none if the lock cannot run.
        not_predicted: Why the speed of the lock is not predicted; empty if it is.
        comparison: The lock compared with its base.
        failure: Why the check is not complete; none if it is.
        installable: The file of each locked package that the target would install, if there is one.
    """

    case: GateCase
    findings: tuple[Finding, ...]
    recommended: RecommendedStack | None
    recommended_prediction: Prediction | None
    not_predicted: str
    comparison: LockComparison | None
    failure: AdvisorError | None
    installable: InstallableFiles

    @property
    def gain_with_settings(self) -> CombinedGain | None:
        """Speed-up of the recommended stack with its settings over the lock, if the lock recommends none."""
        from advisor.resolve.explanation.recommended_settings import gain_with_settings

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
        unreadable: The file that could not be read, so that nothing was checked; none if everything was read.
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


def check(
    cases: Sequence[GateCase],
    policy: GatePolicy,
    *,
    today: date,
    before: GatePolicy | None = None,
    policy_changes: Sequence[Finding] = (),
) -> GateResult:
    """Check a project for its targets.

    Args:
        cases: The project and a target, for each target.
        policy: The policy.
        today: The date, in UTC.
        before: The policy of the base, if there is one: problems of exceptions that it has, too, are not reported.
        policy_changes: Findings about the project's own policy, if it differs from that of the base, which is applied.

    Returns:
        The result, even if the check could not be completed.
    """
    targets = tuple(check_target(case, policy, today=today) for case in cases)
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
    """Check one target; with a base, only findings that the change causes are reported.

    Args:
        case: The project and the target.
        policy: The policy.
        today: The date, in UTC.
    """
    findings: list[Finding] = []
    comparison = best = recommended_prediction = failure = None
    scope = _scope(case.head, case.name, policy)
    installable: dict[NormalizedName, Candidate] = {}
    of_base_installable: dict[NormalizedName, Candidate] = {}
    of_base: list[Finding] = []
    of_head: list[Finding] = []
    try:
        if case.base is not None:
            name, state = case.base
            versions = case.head.lock.versions
            path = case.head.lock.path or state.lock.path or Path()
            settings = setting_changes(
                with_settings_of_lock(state.settings_on_target, state.recommended_settings, path),
                with_settings_of_lock(case.head.settings_on_target, case.head.recommended_settings, path),
                [versions, state.lock.versions],
                case.predictor,
                backends=FRAMEWORKS,
            )
            comparison = compare(
                name, state.lock.versions, versions, case.predictor, settings=settings, direct=_direct(case.head)
            )
            of_base.extend(_state_findings(case, state, policy, of_base_installable))
        of_head.extend(_state_findings(case, case.head, policy, installable))
    except AdvisorError as error:
        failure = error
    findings += _new_findings(of_head, of_base)
    obstacle = prediction_obstacle("the lock", of_head, policy, today=today)
    if comparison is not None and case.base is not None:
        reason = obstacle or prediction_obstacle(f"the base {case.base[0]}", of_base, policy, today=today)
        comparison = comparison.without_prediction(reason) if reason else comparison
    if failure is None:
        try:
            if comparison is not None and case.base is not None:
                findings += check_replaced_by_directories(scope, case.base[1].lock)
                findings += check_changed_content(scope, case.base[1].lock)
                findings += check_hash_loss(scope, case.base[1].lock)
                findings += check_regression(scope, comparison)
                findings += check_setting_regression(scope, comparison)
                base_lock = (comparison.base, case.base[1].lock, of_base_installable)
                findings += check_growth(scope, case.client, installable, base=base_lock)
            of_base_files = (case.base[1].lock, of_base_installable) if case.base is not None else None
            findings += check_download(scope, case.client, installable, limit=case.max_size, base=of_base_files)
            if case.recommend is not None:
                best = case.recommend()
                if not obstacle:
                    recommended_prediction = case.predictor.predict(best.versions, case.head.lock.versions)
                    findings += _gap_findings(case, scope, best, recommended_prediction)
        except AdvisorError as error:
            failure = error
    return TargetResult(
        case=case,
        findings=tuple(findings),
        recommended=best,
        recommended_prediction=recommended_prediction,
        not_predicted=obstacle,
        comparison=comparison,
        failure=failure,
        installable=installable,
    )


def prediction_obstacle(stack: str, findings: Iterable[Finding], policy: GatePolicy, *, today: date) -> str:
    """Return why the speed of a stack is not predicted: it cannot run, by an error that the policy does not ignore.

    Args:
        stack: What to call the stack.
        findings: Findings about the stack.
        policy: The policy.
        today: The date, in UTC.

    Returns:
        The reason; empty if the speed can be predicted.
    """
    reported, _ = policy.apply(list(findings), today=today)
    errors = [finding for finding in reported if finding.fails and finding.code in PREVENT_PREDICTION]
    if not errors:
        return ""
    first = errors[0]
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{stack} has {first.code} {gate_codes()[first.code].name}{more}"


def _new_findings(of_head: Iterable[Finding], of_base: Iterable[Finding]) -> list[Finding]:
    """Return the findings that the base does not have for the same files."""
    base_files: dict[tuple[str, str, str], set[str]] = {}
    for finding in of_base:
        base_files.setdefault(_key(finding), set()).update(finding.cause.files)
    return [
        finding
        for finding in of_head
        if not (_key(finding) in base_files and base_files[_key(finding)].issuperset(finding.cause.files))
    ]


def _gap_findings(case: GateCase, scope: Scope, best: RecommendedStack, prediction: Prediction) -> list[Finding]:
    """Return the finding about the gap to the recommended stack, if the base does not have the same gap."""
    findings = list(check_gap(scope, best, prediction))
    if findings and case.base is not None:
        state = case.base[1]
        base_prediction = case.predictor.predict(best.versions, state.lock.versions)
        if any(check_gap(_scope(state, case.name, scope.policy), best, base_prediction)):
            return []
    return findings


def _direct(state: ProjectState) -> set[str]:
    """Return the packages that a project names; pinned requirements name all packages, so CUDA's do not count."""
    names = {str(root.name) for root in state.problem.roots if not root.constraint}
    return {n for n in names if not n.startswith(CUDA_LIBRARIES)} if state.lock.is_project else names


def _scope(state: ProjectState, target: str, policy: GatePolicy) -> Scope:
    return Scope(
        lock=state.lock,
        problem=state.problem,
        policy=policy,
        target=target,
        trusted_references=state.trusted_references,
    )


def _key(finding: Finding) -> tuple[str, str, str]:
    return (finding.code, finding.package, finding.subject)


def _state_findings(
    case: GateCase, state: ProjectState, policy: GatePolicy, installable: dict[NormalizedName, Candidate]
) -> Iterator[Finding]:
    """Yield the findings about one state of a project by itself.

    Args:
        case: The project and the target.
        state: The state.
        policy: The policy.
        installable: Filled with the file of each package that the target would install.

    Raises:
        AdvisorError: If an index or the knowledge base cannot be read; earlier findings have been yielded.
    """
    scope = _scope(state, case.name, policy)
    rules = RuleBook(shipped_rules(), state.problem.target.hardware)
    yield from check_compatibility(scope, rules, case.predictor, frameworks=FRAMEWORKS)
    settings = state.settings_on_target
    of_lock = with_settings_of_lock(settings, state.recommended_settings, state.lock.path or Path())
    yield from check_slow_settings(scope, of_lock, case.predictor, backends=FRAMEWORKS)
    yield from check_recommended_settings(scope, settings, state.recommended_settings, backends=FRAMEWORKS)
    yield from check_supported_settings(scope, settings, backends=FRAMEWORKS)
    yield from check_contradictions(scope, settings, backends=FRAMEWORKS)
    yield from check_unread_files(scope, state.project_settings.unread)
    files = LockArtifacts(LockedFiles(scope, case.client, allowed_indexes=state.allowed_indexes))
    installable.update(files.installable)
    yield from files.findings
    if state.requirements_known:
        yield from check_requirements(scope, IndexCandidates(case.client, state.problem), files.installable)
    yield from files.vulnerabilities()
