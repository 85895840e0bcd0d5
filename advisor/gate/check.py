"""The gate: examines what a project has now, for each of its targets, alone or against a base."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from packaging.utils import NormalizedName

from advisor.gate.artifacts import Distribution
from advisor.gate.compare import LockComparison, compare, gap, regression, slow_settings
from advisor.gate.compatibility import unfit
from advisor.gate.findings import Finding, Place, merged
from advisor.gate.hash_loss import lost_hashes
from advisor.gate.policy import ABOUT_EXCEPTIONS, GatePolicy, Ignore, read_policy
from advisor.gate.prediction import Outlook
from advisor.gate.recommendation import Recommended
from advisor.gate.requirements_check import unmet
from advisor.gate.scope import Located, Scope
from advisor.gate.unindexed import replaced_by_directories
from advisor.index.client import IndexClient
from advisor.project.locks import Lock
from advisor.project.read_errors import UnreadableFileError
from advisor.project.switches import Switch
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.explain import requirements_within
from advisor.resolve.problem import Candidate, ResolutionProblem
from knowledge.domain.errors import AdvisorError, UnsatisfiableError
from knowledge.estimate.interface import Prediction
from knowledge.rules.catalogue import shipped_rules
from knowledge.rules.engine import RuleBook
from pi_runners.vocabulary import FRAMEWORKS


@dataclass(frozen=True, kw_only=True)
class State:
    """A project at one moment: the checkout, or what a commit has.

    Attributes:
        lock: What it has locked.
        problem: What it requires.
        expected: Addresses that its packages may come from.
        switches: What it sets.
        stated: Whether what it requires is known; of a base that is only a lock it is not.
    """

    lock: Lock
    problem: ResolutionProblem
    expected: Collection[str]
    switches: Sequence[Switch] = ()
    stated: bool = True


@dataclass(frozen=True, kw_only=True)
class GateCase:
    """A project to be examined for one target.

    Attributes:
        name: Name of the target; empty where it has none.
        head: The project.
        client: The indexes.
        outlook: What the observations imply on the target.
        recommend: Tells the recommended stack; none where that is not asked for.
        base: The project that it is compared with, with a name for people; none where there is none.
    """

    name: str
    head: State
    client: IndexClient
    outlook: Outlook
    recommend: Callable[[], Recommended] | None = None
    base: tuple[str, State] | None = None


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What came of one target.

    Attributes:
        case: What was examined.
        findings: What was found, before the policy's exceptions.
        recommended: The recommended stack; none where it was not asked for or could not be found.
        prospect: Predicted speed-up of the recommended stack over the lock.
        comparison: The lock against its base.
        failure: Why the examination is not complete; none where it is.
        located: The file of each locked package that the target would install, as far as there is one.
    """

    case: GateCase
    findings: tuple[Finding, ...]
    recommended: Recommended | None
    prospect: Prediction | None
    comparison: LockComparison | None
    failure: AdvisorError | None
    located: Located

    def required(self) -> Mapping[NormalizedName, Mapping[NormalizedName, tuple[str, ...]]]:
        """Return what the project and each locked package requires, the project by an empty name."""
        problem = self.case.head.problem
        return requirements_within(problem, IndexCandidates(self.case.client, problem), list(self.located.values()))


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What came of all targets.

    Attributes:
        targets: By target.
        policy: What was let pass.
        findings: What counts, the weightiest first.
        covered: What exceptions cover.
        unreadable: Why nothing was examined; none where something was.
    """

    targets: tuple[Examined, ...]
    policy: GatePolicy
    findings: tuple[Finding, ...]
    covered: tuple[tuple[Finding, Ignore], ...]
    unreadable: UnreadableFileError | None = None

    @cached_property
    def failures(self) -> tuple[tuple[str, AdvisorError], ...]:
        """Why the examination of a target is not complete, by name."""
        return tuple((t.case.name, t.failure) for t in self.targets if t.failure is not None)

    @property
    def exit_code(self) -> int:
        """0: nothing fails; 1: findings do; 2: nothing was examined; 3 or 4: it is not complete (see the failures).

        That no stack satisfies the constraints is no news where findings fail already: mostly they are why.
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
    """Examine a project for its targets.

    Args:
        cases: By target.
        policy: What is let pass.
        today: The day, in UTC.
        before: The policy of the base, where there is one: what is wrong with exceptions that it has, too, is not told.
        policy_changes: What of its policy the project has otherwise than the base whose policy is in force.

    Returns:
        What was found, whether or not the examination could be completed.
    """
    targets = tuple(examine(case, policy) for case in cases)
    every = [*policy_changes, *(f for target in targets for f in target.findings)]
    kept, covered = policy.apply(every, today=today)
    if before is not None:
        known = {ignore.identity for ignore in before.ignores}
        kept = [f for f in kept if f.code not in ABOUT_EXCEPTIONS or (f.package, f.subject) not in known]
    return GateResult(targets=targets, policy=policy, findings=merged(kept), covered=tuple(covered))


def unreadable(error: UnreadableFileError) -> GateResult:
    """Return what a file that cannot be read comes to: one finding that no exception covers, and nothing examined."""
    policy = read_policy({})
    finding = Finding(
        code="ADV027",
        level="error",
        message=error.message,
        place=Place(path=str(error.path), line=error.line),
        package=error.package,
    )
    return GateResult(targets=(), policy=policy, findings=(finding,), covered=(), unreadable=error)


def examine(case: GateCase, policy: GatePolicy) -> Examined:
    """Examine one target; with a base, only what the change did is found."""
    found: list[Finding] = []
    comparison = best = prospect = failure = None
    scope = _scope(case.head, case.name, policy)
    located: dict[NormalizedName, Candidate] = {}
    try:
        known: dict[tuple[str, str, str], set[str]] = {}
        if case.base is not None:
            name, state = case.base
            comparison = compare(name, state.lock.versions, case.head.lock.versions, case.outlook)
            for finding in _of_state(case, state, policy, {}):
                known.setdefault(_key(finding), set()).update(finding.files)
        for finding in _of_state(case, case.head, policy, located):
            # The base has it only where it has it of the same files.
            if not (_key(finding) in known and known[_key(finding)].issuperset(finding.files)):
                found.append(finding)
        if comparison is not None and case.base is not None:
            found += replaced_by_directories(scope, case.base[1].lock)
            found += lost_hashes(scope, case.base[1].lock)
            found += regression(scope, comparison)
        if case.recommend is not None:
            best = case.recommend()
            prospect = case.outlook.predict(best.versions, case.head.lock.versions)
            beyond = list(gap(scope, best, prospect))
            if beyond and case.base is not None:
                # The change did it where its base does not lie as far behind.
                before = case.base[1]
                behind = case.outlook.predict(best.versions, before.lock.versions)
                beyond = [] if list(gap(_scope(before, case.name, policy), best, behind)) else beyond
            found += beyond
    except AdvisorError as error:
        failure = error
    return Examined(
        case=case,
        findings=tuple(found),
        recommended=best,
        prospect=prospect,
        comparison=comparison,
        failure=failure,
        located=located,
    )


def _scope(state: State, target: str, policy: GatePolicy) -> Scope:
    return Scope(lock=state.lock, problem=state.problem, policy=policy, target=target)


def _key(finding: Finding) -> tuple[str, str, str]:
    return (finding.code, finding.package, finding.subject)


def _of_state(
    case: GateCase, state: State, policy: GatePolicy, located: dict[NormalizedName, Candidate]
) -> Iterator[Finding]:
    """Yield what is wrong with one state of a project, without looking at another.

    Args:
        case: What is examined.
        state: The state.
        policy: What is let pass.
        located: Filled with the file of each package that the target would install.

    Raises:
        AdvisorError: If an index or the knowledge base cannot be read; what was found before was yielded.
    """
    scope = _scope(state, case.name, policy)
    rules = RuleBook(shipped_rules(), state.problem.target.hardware)
    yield from unfit(scope, rules, case.outlook, frameworks=FRAMEWORKS)
    yield from slow_settings(scope, state.switches, case.outlook, backends=FRAMEWORKS)
    files = Distribution(scope, case.client, expected=state.expected)
    located.update(files.located)
    yield from files.findings()
    if state.stated:
        yield from unmet(scope, IndexCandidates(case.client, state.problem), files.located)
    yield from files.vulnerabilities()
