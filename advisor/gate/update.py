"""The smallest change of a lock after which the gate finds nothing that fails: proven to be the smallest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.gate.check import Examined, examine
from advisor.gate.compare import lies_behind
from advisor.gate.findings import Finding
from advisor.gate.policy import ABOUT_EXCEPTIONS, GatePolicy
from advisor.gate.prediction import performance_versions
from advisor.project.lock_formats import LockedFile
from advisor.project.locks import Lock, LockedVersion
from advisor.resolve.baseline import Impossible
from advisor.resolve.encode import Choice
from advisor.resolve.optimise import NoSolution, Optimum, SearchLimitError
from advisor.resolve.problem import Candidate
from advisor.resolve.recommend import ResolutionRequest
from advisor.resolve.verify import verify

_MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The smallest change that clears what versions can clear.

    Attributes:
        optimum: The stack after it; the first bound is the number of packages that change.
        cleared: Findings that failed the lock and are gone.
        remaining: Findings that fail and that no choice of versions clears.
    """

    optimum: Optimum
    cleared: tuple[Finding, ...]
    remaining: tuple[Finding, ...]


def least_update(examined: Examined, inquiry: ResolutionRequest, policy: GatePolicy, *, today: date) -> Update:
    """Return the smallest change of a lock that clears the findings that fail it.

    Solves for the least change, examines the answer as any lock, refuses the combinations that fail and solves again.
    What is refused fails in every stack that holds it, so the first answer that passes is the smallest that does. Only
    a gap to the recommended stack may be another one where one more measured package is there; whether such a stack is
    smaller still is not looked for, and the report says so.

    Args:
        examined: What came of the lock.
        inquiry: The problem, with the locked versions among its candidates.
        policy: What is let pass.
        today: The day, in UTC.

    Raises:
        Impossible: If no stack clears them.
        SearchLimitError: If that remained open.
        AdvisorError: If a stack cannot be examined.
    """
    case, lock = examined.case, examined.case.head.lock
    before = failing(examined, policy, today=today)
    refused: set[frozenset[Choice]] = set()
    for _ in range(_MOST_ROUNDS):
        # Where the project pins what it names and leaves the rest open, what is open is no part of the lock.
        criteria = inquiry.criteria.with_least_change(lock.versions, refused, added=int(not lock.is_project))
        asked = replace(inquiry, criteria=criteria)
        try:
            optimum = asked.best()
        except NoSolution:
            raise Impossible(
                "no stack satisfies the requirements and clears what the gate finds",
                details=tuple(f"{finding.code}: {finding.message}" for finding in before),
                hint="relax the requirements, or ignore a finding with a reason in `[tool.advisor.gate]`",
            ) from None
        head = replace(case.head, lock=lock_of(optimum.stack), problem=inquiry.problem)
        after = examine(replace(case, head=head, base=None), policy)
        found = failing(after, policy, today=today)
        fresh = {choices for finding in found for choices in _refusals(finding, after, inquiry, policy)} - refused
        if not fresh:
            verify(inquiry.problem, inquiry.source, optimum.stack)
            left = {(f.code, f.package, f.subject) for f in found}
            cleared = tuple(f for f in before if (f.code, f.package, f.subject) not in left)
            return Update(optimum=optimum, cleared=cleared, remaining=tuple(found))
        refused |= fresh
    raise SearchLimitError(f"the search for the smallest change did not close within {_MOST_ROUNDS} rounds")


def failing(examined: Examined, policy: GatePolicy, *, today: date) -> Sequence[Finding]:
    """Return the findings that fail under a policy, its exceptions honoured.

    Raises:
        AdvisorError: If the examination is not complete.
    """
    if examined.failure is not None:
        raise examined.failure
    kept, _ = policy.apply(list(examined.findings), today=today)
    return [finding for finding in kept if finding.fails and finding.code not in ABOUT_EXCEPTIONS]


def _refusals(
    finding: Finding, after: Examined, inquiry: ResolutionRequest, policy: GatePolicy
) -> Iterator[frozenset[Choice]]:
    """Yield the combinations of versions that a finding refuses; none where it is not about versions."""
    if not finding.versions:
        return
    choices = frozenset((NormalizedName(name), Version(version)) for name, version in finding.versions)
    yield choices
    if finding.code == "ADV008" and after.recommended is not None:
        # Other versions of the framework that lag behind, too, beside the same companions: all at once.
        stack = after.case.head.lock.versions
        for candidate in inquiry.source.candidates(NormalizedName(finding.package)):
            other = {**stack, finding.package: candidate.version}
            if lies_behind(after.case.outlook.predict(after.recommended.versions, other), policy.max_gap):
                yield frozenset(
                    (NormalizedName(name), version) for name, version in performance_versions(other).items()
                )


def lock_of(stack: Sequence[Candidate]) -> Lock:
    """Return a stack as the lock that it would be."""
    packages = {}
    for candidate in stack:
        file = candidate.file
        packages[candidate.name] = LockedVersion(
            version=candidate.version,
            files=(LockedFile(name=file.filename, sha256=file.sha256 or ""),),
            hashes=frozenset({file.sha256} if file.sha256 else ()),
        )
    return Lock(path=None, packages=packages)
