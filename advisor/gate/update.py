"""The smallest change of a lock that makes it pass the gate, with a proof that no smaller one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.gate.check import TargetResult, check_target
from advisor.gate.compare import exceeds_gap
from advisor.gate.findings import Finding
from advisor.gate.policy import EXCEPTION_CODES, GatePolicy
from advisor.project.lock_formats import LockedFile
from advisor.project.locks import Lock, LockedVersion
from advisor.resolve.baseline import NoStackError
from advisor.resolve.choices import Choice
from advisor.resolve.no_stack import error_about_size
from advisor.resolve.optimum import InfeasibleError, Optimum, SearchLimitError, StackTooLargeError
from advisor.resolve.predictor import performance_versions
from advisor.resolve.problem import Candidate
from advisor.resolve.request import ResolutionRequest
from advisor.resolve.verify import verify

_MAX_ROUNDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The smallest change that resolves every finding which other versions can resolve.

    Attributes:
        optimum: The stack after the change; its first bound is the number of packages that change.
        cleared: Failing findings that the change resolves.
        remaining: Failing findings that no choice of versions resolves.
    """

    optimum: Optimum
    cleared: tuple[Finding, ...]
    remaining: tuple[Finding, ...]


def find_smallest_update(
    target_result: TargetResult, request: ResolutionRequest, policy: GatePolicy, *, today: date
) -> Update:
    """Return the smallest change of a lock that resolves the findings which fail it.

    Solves for the fewest changes, checks the solution like any lock, excludes the combinations of versions that fail,
    and solves again. An excluded combination fails in every stack that contains it, so the first solution that passes
    is the smallest. There is one exception, which the report names: the gap to the recommended stack may differ in a
    stack with one more measured package, and such stacks are not searched for a smaller change.

    Args:
        target_result: Result of checking the lock.
        request: The problem, with the locked versions among its candidates.
        policy: The policy.
        today: The date, in UTC.

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
        criteria = request.criteria.with_least_change(lock.versions, excluded, added=int(not lock.is_project))
        changed_request = replace(request, criteria=criteria, optimum=None)
        try:
            optimum = changed_request.best()
        except StackTooLargeError as error:
            further = " and passes the gate"
            raise error_about_size(
                request, [error.smallest], not_compared=request.not_compared, further=further
            ) from None
        except InfeasibleError:
            raise NoStackError(
                "no stack satisfies the requirements and passes the gate",
                details=tuple(f"{finding.code}: {finding.message}" for finding in before),
                hint="relax the requirements, or ignore a finding with a reason in `[tool.advisor.gate]`",
            ) from None
        head = replace(case.head, lock=_updated_lock(lock, optimum.stack), problem=request.problem)
        after = check_target(replace(case, head=head, base=None), policy, today=today)
        remaining = failing_findings(after, policy, today=today)
        fresh = {
            choices for finding in remaining for choices in _excluded_combinations(finding, after, request, policy)
        } - excluded
        if not fresh:
            verify(request.problem, request.source, optimum.stack)
            remaining_keys = {(f.code, f.package, f.subject) for f in remaining}
            cleared = tuple(f for f in before if (f.code, f.package, f.subject) not in remaining_keys)
            return Update(optimum=optimum, cleared=cleared, remaining=tuple(remaining))
        excluded |= fresh
    raise SearchLimitError(f"the search for the smallest change did not end within {_MAX_ROUNDS} rounds")


def failing_findings(target_result: TargetResult, policy: GatePolicy, *, today: date) -> Sequence[Finding]:
    """Return the findings that fail under a policy, without those that an exception covers.

    Raises:
        AdvisorError: If the check is not complete.
    """
    if target_result.failure is not None:
        raise target_result.failure
    reported, _ = policy.apply(list(target_result.findings), today=today)
    return [finding for finding in reported if finding.fails and finding.code not in EXCEPTION_CODES]


def _excluded_combinations(
    finding: Finding, after: TargetResult, request: ResolutionRequest, policy: GatePolicy
) -> Iterator[frozenset[Choice]]:
    """Yield the combinations of versions that a finding excludes; none if it is not about versions."""
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


def _updated_lock(lock: Lock, stack: Sequence[Candidate]) -> Lock:
    """Return a lock with the versions of a stack; pinned requirements list the same packages as before."""
    if not lock.is_project:
        return lock_from_stack(stack)
    return replace(lock_from_stack([c for c in stack if c.name in lock.versions]), is_project=True)


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
