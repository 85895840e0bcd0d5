"""Locks the stacks that are to be measured: newest first, for this machine, exact files with hashes."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement

from advisor.index.client import IndexClient
from advisor.resolve.baseline import Impossible, resolve_baseline
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.problem import Candidate, Policy, Problem, RootRequirement
from advisor.resolve.target import Target
from knowledge.domain.errors import InputError
from knowledge.domain.stack import PackageVersion
from pi_runners.environment import LockedPackage, StackLock


def lock_stack(text: str, *, client: IndexClient, target: Target, python: str) -> StackLock:
    """Resolve the requirements of one ``--stack``, separated by spaces, into an exact lock.

    Args:
        text: Such as ``tensorflow-cpu==2.18.0 numpy<2``.
        client: The indexes.
        target: This machine.
        python: Interpreter to build the environment with.

    Raises:
        InputError: If a requirement is malformed.
        Impossible: If nothing satisfies them.
    """
    requested = tuple(text.split())
    roots = []
    for word in requested:
        try:
            roots.append(RootRequirement(requirement=Requirement(word), origin=f"--stack {text!r}"))
        except InvalidRequirement as error:
            raise InputError(
                f"`{word}` in `--stack` is not a requirement: {str(error).splitlines()[0]}",
                hint="write it as `--stack 'numpy==2.2.6'`, several requirements with spaces between them",
            ) from None
    # Wheels only: nothing is built while stacks are measured.
    problem = Problem(roots=tuple(roots), target=target, policy=Policy(only_binary=frozenset({":all:"})))
    try:
        chosen = resolve_baseline(problem, IndexCandidates(client, problem))
    except Impossible as error:
        raise Impossible(
            f"stack `{text}` cannot be resolved for Python {target.python} on {target.platform}: {error.message}",
            details=error.details,
            hint=error.hint,
        ) from None
    return StackLock(
        requested=requested,
        packages=tuple(_locked(client, candidate) for candidate in chosen),
        python=python,
        platform=target.platform,
    )


def _locked(client: IndexClient, candidate: Candidate) -> LockedPackage:
    file = client.pinned(candidate.file)
    return LockedPackage(
        package=PackageVersion(
            name=candidate.name,
            version=str(candidate.version),
            index=client.configuration.name_of(candidate.file.index),
        ),
        url=file.url,
        sha256=file.sha256 or "",
    )
