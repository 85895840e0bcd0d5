"""The certificate of an experiment in a lock: whether it still says something about the lock on the target."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.findings import Finding
from advisor.gate.scope import Scope
from advisor.locks.certificate import stack_digest


def certificate_obstacle(scope: Scope) -> str:
    """Return why the lock's certificate says nothing about the lock on the target; empty if it is valid, or absent."""
    certificate = scope.state.certificate
    if certificate is None:
        return ""
    return certificate.obstacle(
        machine=scope.problem.target.hardware.identity,
        program=scope.case.program,
        stack=stack_digest(scope.lock.versions, scope.state.recommended_settings),
    )


def is_measured(scope: Scope) -> bool:
    """Whether measurements on the target have shown that no other arm is faster; then no prediction counts against it.

    What a lock says of itself cannot make anything unsafe pass: only predictions of its speed are not reported.
    """
    certificate = scope.state.certificate
    return certificate is not None and certificate.is_certain and not certificate_obstacle(scope)


def check_certificate(scope: Scope) -> Iterator[Finding]:
    """Yield that the lock's certificate is void, and why."""
    if obstacle := certificate_obstacle(scope):
        yield scope.finding("ADV040", f"the lock's certificate is void: {obstacle}")


STATE_CHECKS = (check_certificate,)
