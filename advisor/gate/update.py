"""The smallest change of a lock that makes it pass the gate, with a proof that no smaller one does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import count
from advisor.gate.check import TargetResult, check_target
from advisor.gate.checks.speed_limits import exceeds_gap
from advisor.gate.findings import Finding, gate_codes
from advisor.gate.policy import EXCEPTION_CODES, GatePolicy
from advisor.gate.recommendation import RecommendedStack
from advisor.locks.lock import Lock, LockedFile, LockedVersion
from advisor.resolve.candidates.problem import Candidate, NoStackError
from advisor.resolve.explanation.alternatives import best_alternative
from advisor.resolve.explanation.no_stack import error_about_size
from advisor.resolve.optimum.baseline import verify
from advisor.resolve.optimum.request import ResolutionRequest, solve
from advisor.resolve.optimum.result import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.score.costs import Choice
from advisor.resolve.score.criteria import LeastChange
from advisor.resolve.score.predictor import performance_versions

_MAX_ROUNDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The smallest change that resolves every finding which other versions can resolve.

    Attributes:
        optimum: The stack after the change; its first bound is the number of packages that change.
        remaining: Failing findings that no choice of versions resolves.
        older: Why a new direct requirement has an older version than in the recommended stack, by package.
    """

    optimum: Optimum
    older: Mapping[str, str]
    remaining: tuple[Finding, ...]


def find_smallest_update(
    target_result: TargetResult, request: ResolutionRequest, policy: GatePolicy, *, today: date
) -> Update:
    """Return the smallest change of a lock that resolves the findings which fail it.

    Solves for the fewest changes, checks the solution like any lock, excludes the combinations of versions that fail,
    and solves again. An excluded combination fails in every stack that contains it, so the first solution that passes
    is the smallest. There is one exception, which the report names: the gap to the recommended stack may differ in a
    stack with one more measured package, and such stacks are not searched for a smaller change. The request has the
    locked versions among its candidates.

    Raises:
        NoStackError: If no stack resolves them.
        SearchLimitError: If the search ended before it found a stack or a proof that there is none.
        AdvisorError: If a stack cannot be checked.
    """
    case, lock = target_result.case, target_result.case.head.lock
    before = failing_findings(target_result, policy, today=today)
    excluded: set[frozenset[Choice]] = set()
    for _ in range(_MAX_ROUNDS):
        # In a pinned requirements file only the packages that it names are part of the lock.
        change = LeastChange(locked=lock.versions, refused=tuple(excluded), added=int(not lock.is_project))
        changed_request = request.with_score(change=change)
        optimum = _fewest_changes(changed_request, before)
        head = replace(case.head, lock=updated_lock(lock, optimum.stack), problem=request.problem)
        after = check_target(replace(case, head=head, base=None), policy, today=today)
        remaining = tuple(failing_findings(after, policy, today=today))
        fresh = {
            choices for finding in remaining for choices in _excluded_combinations(finding, after, request, policy)
        } - excluded
        if not fresh:
            verify(request.problem, request.source, optimum.stack)
            older = _reasons_for_older(changed_request, optimum, lock, target_result.recommended)
            return Update(optimum=optimum, older=older, remaining=remaining)
        excluded |= fresh
    raise SearchLimitError(f"the search for the smallest change did not end within {_MAX_ROUNDS} rounds")


def _fewest_changes(request: ResolutionRequest, before: Iterable[Finding]) -> Optimum:
    """Return the stack with the fewest changes of the lock; errors name what fails the lock now."""
    try:
        return solve(request)
    except StackTooLargeError as error:
        raise error_about_size(request, [error.smallest], further=" and passes the gate") from None
    except InfeasibleError:
        raise NoStackError(
            "no stack satisfies the requirements and passes the gate",
            details=tuple(f"{finding.code}: {finding.message}" for finding in before),
            hint="relax the requirements, or ignore a finding with a reason in `[tool.advisor.gate]`",
        ) from None


def _reasons_for_older(
    request: ResolutionRequest, optimum: Optimum, lock: Lock, recommended: RecommendedStack | None
) -> dict[str, str]:
    """Return why new direct requirements are older than in the recommended stack: what the newer version would cost."""
    versions = recommended.versions if recommended is not None else {}
    return {
        str(c.name): _cost_of_version(request, optimum, c.name, versions[c.name])
        for c in optimum.stack
        if c.name in request.problem.direct_names
        and c.name not in lock.versions
        and c.name in versions
        and c.version < versions[c.name]
    }


def _cost_of_version(request: ResolutionRequest, optimum: Optimum, name: NormalizedName, version: Version) -> str:
    """Return what the stack that minimises the changes loses if a package has a newer version."""
    other = best_alternative(request, optimum, name, f"==={version}", version)
    if other.conflict:
        return f"no stack with {version} passes the gate: {other.conflict[0]}"
    criterion, difference = next(((n, d) for n, d in other.worse if d > 0), ("", 0))
    if criterion == "changes":
        return f"{version} would change {count(difference, 'more package')} of the lock"
    return f"{version} is worse by the criterion `{criterion}`"


def failing_findings(target_result: TargetResult, policy: GatePolicy, *, today: date) -> Sequence[Finding]:
    """Return the findings that fail under a policy, without those that an exception covers.

    Raises:
        AdvisorError: If the check is not complete.
    """
    if target_result.failure is not None:
        raise target_result.failure
    reported, _ = policy.apply(list(target_result.findings), today=today)
    return [finding for finding in reported if finding.fails and finding.code not in EXCEPTION_CODES]


def needs_tool(finding: Finding, lock: Lock) -> bool:
    """Whether only the tool of a lock can resolve a finding: what the whole lock requires follows from the project."""
    return finding.code == "ADV012" and not finding.package and bool(lock.tool)


def lock_again(lock: Lock) -> str:
    """Return what to do about a finding that only the tool of a lock can resolve."""
    return f"`{lock.tool.lower()} lock` writes the lock again, if the project admits the target's Python"


def may_resolve(finding: Finding, lock: Lock) -> bool:
    """Whether an update of a lock can resolve a finding about it, if there is a stack that passes."""
    if lock.path is None or needs_tool(finding, lock) or not gate_codes()[finding.code].update:
        return False
    return bool(finding.cause.versions) or not lock.is_edited


def _excluded_combinations(
    finding: Finding, after: TargetResult, request: ResolutionRequest, policy: GatePolicy
) -> Iterator[frozenset[Choice]]:
    """Yield the combinations of versions that a finding excludes; nothing if it is not about versions."""
    if not finding.cause.versions:
        return
    choices = frozenset((NormalizedName(name), Version(version)) for name, version in finding.cause.versions)
    yield choices
    if finding.code == "ADV008" and after.recommended is not None:
        # Exclude at once all versions of the framework that have the same gap with the same companions.
        stack = after.case.head.lock.versions
        for candidate in request.source.candidates(NormalizedName(finding.package)):
            other = {**stack, finding.package: candidate.version}
            if exceeds_gap(after.case.predictor.predict(after.recommended.versions, other), policy.max_gap):
                yield frozenset(
                    (NormalizedName(name), version) for name, version in performance_versions(other).items()
                )


def updated_lock(lock: Lock, stack: Sequence[Candidate]) -> Lock:
    """Return a lock with the versions of a stack; in a requirements file without hashes, only the pins change."""
    if not lock.is_project:
        return lock_from_stack(stack)
    if not lock.is_edited:
        return replace(lock_from_stack([c for c in stack if c.name in lock.versions]), is_project=True)
    versions = {c.name: c.version for c in stack}
    entries = tuple((name, replace(e, version=versions.get(name, e.version))) for name, e in lock.entries)
    packages = {name: replace(e, version=versions[name]) for name, e in lock.packages.items() if name in versions}
    return replace(lock, packages=packages, entries=entries)


def lock_from_stack(stack: Sequence[Candidate]) -> Lock:
    """Return the lock that a stack would be written to."""
    packages = {}
    for candidate in stack:
        file = candidate.file
        packages[candidate.name] = LockedVersion(
            version=candidate.version,
            files=(LockedFile(name=file.filename, sha256=file.sha256 or ""),),
            hashes=frozenset({file.sha256} if file.sha256 else ()),
            direct_reference=candidate.direct.address if candidate.direct else "",
        )
    return Lock(path=None, packages=packages)
