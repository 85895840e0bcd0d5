"""Verification of a stack by an independent resolver, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.resolve.baseline import NoStackError, resolve_baseline
from advisor.resolve.problem import Candidate, CandidateSource, ResolutionProblem
from knowledge.domain.errors import AdvisorError


class VerificationError(AdvisorError):
    """Raised when the independent resolver does not accept the optimum: a defect of this program."""

    code = "verification-failed"
    exit_code = 4


def verify(problem: ResolutionProblem, source: CandidateSource, stack: Iterable[Candidate]) -> None:
    """Check that resolvelib, with every version pinned, accepts exactly this stack.

    Raises:
        VerificationError: If it does not; nothing must be written then.
    """
    stack = tuple(stack)
    hint = "this is a defect of `advisor`: please report it with the project's requirements; no lock was written"
    try:
        accepted = resolve_baseline(problem, source, pins={c.name: c for c in stack})
    except NoStackError as error:
        conflict = "; ".join(error.details)
        raise VerificationError(f"the chosen stack violates a requirement: {conflict}", hint=hint) from None
    if {c.name for c in accepted} != {c.name for c in stack}:
        surplus = sorted({c.name for c in stack} - {c.name for c in accepted})
        raise VerificationError(f"the chosen stack has packages that nothing requires: {surplus}", hint=hint)
