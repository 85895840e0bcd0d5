"""Locks stacks to measure: the newest versions for a machine, as exact files with hashes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target, make_target
from advisor.index.client import IndexClient
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidatePolicy, NoStackError, ResolutionProblem, admits
from advisor.resolve.optimum.baseline import resolve_baseline
from knowledge.catalogue.rules import undeclared_requirements
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.stack import PackageVersion
from pi_runners.execution.environment import EnvironmentBuildError, LockedPackage, StackLock, read_interpreter, run_uv

LOADGEN = "mlcommons-loadgen==6.0.17"
"""All stacks are measured with the same version, so that its changes do not look like changes of a stack."""


class StackLocker:
    """Lists versions and locks stacks, for interpreters of this machine or, if remote, of other machines.

    Other machines look up interpreters that are named by version.
    """

    def __init__(self, client: IndexClient, hardware: HardwareProfile, *, is_remote: bool = False) -> None:
        self._client = client
        self._is_remote = is_remote
        self._hardware = hardware
        self.interpreter = cache(self._find_interpreter)
        self.target = cache(self._make_target)

    def versions_of(self, requirement: Requirement, python: str) -> Sequence[Version]:
        """Return the versions that an interpreter can install and a requirement admits, newest first."""
        root = RootRequirement(requirement=requirement, origin="the matrix")
        problem = ResolutionProblem(roots=(root,), target=self.target(python), policy=_POLICY)
        candidates = IndexCandidates(self._client, problem).candidates(canonicalize_name(requirement.name))
        return [c.version for c in candidates if admits(requirement, c.version)]

    def lock(self, requested: Sequence[str], python: str, *, cudnn: str | None = None) -> StackLock:
        """Resolve requirements into an exact lock.

        Args:
            requested: Requirements, such as ``tensorflow-cpu==2.18.0`` and ``numpy<2``.
            python: Interpreter to build the environment with: a path or a version.
            cudnn: Release of cuDNN that replaces the one that the framework requires, such as ``9.10``.

        Raises:
            InputError: If a requirement is malformed.
            NoStackError: If no stack satisfies them, or the cuDNN release has another major version.
        """
        text = " ".join(requested)
        roots = tuple(RootRequirement(requirement=_parse(w), origin=f"--stack {text!r}") for w in requested)
        # Only wheels: nothing is built while stacks are measured.
        problem = ResolutionProblem(
            roots=roots, target=self.target(python), policy=_POLICY, undeclared=undeclared_requirements
        )
        stack = self._resolve(problem, text)
        if cudnn is not None:
            stack = self._resolve(_with_cudnn(problem, stack, cudnn, text), text)
        return self.lock_of(stack, requested, python)

    def lock_of(self, stack: Iterable[Candidate], requested: Sequence[str], python: str) -> StackLock:
        """Return the exact lock of a stack of wheels, resolved from ``requested``; see :meth:`lock`."""
        return StackLock(
            requested=tuple(requested),
            packages=tuple(self._locked_package(candidate) for candidate in stack),
            python=self.interpreter(python),
            platform=self.target(python).platform,
        )

    def _resolve(self, problem: ResolutionProblem, text: str) -> tuple[Candidate, ...]:
        try:
            return tuple(resolve_baseline(problem, IndexCandidates(self._client, problem)))
        except NoStackError as error:
            target = problem.target
            raise NoStackError(
                f"stack `{text}` cannot be resolved for Python {target.python} on {target.platform}: {error.message}",
                details=error.details,
                hint=error.hint,
            ) from None

    def _locked_package(self, candidate: Candidate) -> LockedPackage:
        if candidate.direct is not None:
            raise InputError(
                f"`{candidate.name}` comes from `{candidate.direct.printable}`: only stacks from indexes are measured",
                hint="require a released version of it",
            )
        file = self._client.pinned(candidate.file)
        return LockedPackage(
            package=PackageVersion(
                name=candidate.name,
                version=str(candidate.version),
                index=self._client.configuration.name_of(candidate.file.index),
            ),
            url=file.url,
            sha256=file.sha256 or "",
            size=file.size,
        )

    def _find_interpreter(self, python: str) -> str:
        """Return the path of an interpreter given by path or version; on other machines, the version itself."""
        if os.sep in python or self._is_remote:
            return python
        process = run_uv("python", "find", "--no-python-downloads", python)
        if process.returncode:
            raise InputError(f"there is no interpreter `{python}` on this machine", hint="install it, or pass its path")
        return process.stdout.strip()

    def _make_target(self, python: str) -> Target:
        path = self.interpreter(python)
        if os.sep not in path:
            return make_target(python=path, platform=None, hardware=self._hardware)
        try:
            version, _ = read_interpreter(Path(path))
        except EnvironmentBuildError as error:
            raise InputError(error.message) from None
        return make_target(python=version, platform=None, hardware=self._hardware)


_POLICY = CandidatePolicy(only_binary=frozenset({":all:"}))


def _parse(word: str) -> Requirement:
    try:
        return Requirement(word)
    except InvalidRequirement as error:
        raise InputError(
            f"`{word}` is not a requirement: {str(error).splitlines()[0]}",
            hint="write it as `--stack 'numpy==2.2.6'`; separate several requirements by spaces",
        ) from None


def _with_cudnn(problem: ResolutionProblem, stack: Sequence[Candidate], cudnn: str, text: str) -> ResolutionProblem:
    """Return the problem with cuDNN replaced, within its major version.

    NVIDIA guarantees that a newer minor release works with programs built against an older one, but not the reverse
    (https://docs.nvidia.com/deeplearning/cudnn/latest/developer/forward-compatibility.html). Such a measurement shows
    whether an older release works.
    """
    locked_cudnn = next((c for c in stack if c.name.startswith("nvidia-cudnn-cu")), None)
    if locked_cudnn is None:
        raise NoStackError(f"stack `{text}` contains no cuDNN that could be replaced")
    if locked_cudnn.version.major != Version(cudnn).major:
        raise NoStackError(
            f"stack `{text}` requires cuDNN {locked_cudnn.version}; {cudnn} has another major version",
            hint=f"choose a release of cuDNN {locked_cudnn.version.major}",
        )
    override = RootRequirement(requirement=Requirement(f"{locked_cudnn.name}=={cudnn}.*"), origin="the matrix")
    return replace(problem, overrides=(override,))
