"""Locks the stacks that are to be measured: newest first, for this machine, exact files with hashes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target, make_target
from advisor.index.client import IndexClient
from advisor.resolve.baseline import NoStackError, resolve_baseline
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.problem import Candidate, CandidatePolicy, ResolutionProblem, admits
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.stack import PackageVersion
from pi_runners.environment import LockedPackage, StackLock, find_uv

LOADGEN = "mlcommons-loadgen==6.0.17"
"""One version for all, so that its changes are not taken for a stack's."""


class StackLocker:
    """Finds versions and locks stacks, for interpreters of this machine or of others."""

    def __init__(self, client: IndexClient, hardware: HardwareProfile, *, elsewhere: bool = False) -> None:
        """Remember where to look.

        Args:
            client: The indexes.
            hardware: The machine that stacks are locked for.
            elsewhere: Whether an interpreter that is named by its version is looked for where the stack is installed,
                and not here.
        """
        self._client = client
        self._elsewhere = elsewhere
        self._hardware = hardware
        self.interpreter = cache(self._find_interpreter)
        self._target = cache(self._make_target)

    def versions_of(self, requirement: Requirement, python: str) -> Sequence[Version]:
        """Return the versions that an interpreter can install and a requirement admits, newest first."""
        root = RootRequirement(requirement=requirement, origin="the matrix")
        problem = ResolutionProblem(roots=(root,), target=self._target(python), policy=_POLICY)
        offered = IndexCandidates(self._client, problem).candidates(canonicalize_name(requirement.name))
        return [c.version for c in offered if admits(requirement, c.version)]

    def lock(self, requested: Sequence[str], python: str, *, cudnn: str | None = None) -> StackLock:
        """Resolve requirements into an exact lock.

        Args:
            requested: Such as ``tensorflow-cpu==2.18.0`` and ``numpy<2``.
            python: Interpreter to build the environment with: a path or a version.
            cudnn: Release of cuDNN that replaces the one that the framework asks for, such as ``9.10``.

        Raises:
            InputError: If a requirement is malformed.
            NoStackError: If nothing satisfies them, or the replacement is of another major version.
        """
        text = " ".join(requested)
        roots = tuple(RootRequirement(requirement=_parsed(w), origin=f"--stack {text!r}") for w in requested)
        # Wheels only: nothing is built while stacks are measured.
        problem = ResolutionProblem(roots=roots, target=self._target(python), policy=_POLICY)
        chosen = self._resolve(problem, text)
        if cudnn is not None:
            chosen = self._resolve(_with_cudnn(problem, chosen, cudnn, text), text)
        return StackLock(
            requested=tuple(requested),
            packages=tuple(self._locked(candidate) for candidate in chosen),
            python=self.interpreter(python),
            platform=problem.target.platform,
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

    def _locked(self, candidate: Candidate) -> LockedPackage:
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
        """Return the path of an interpreter that is named by its path or its version; the version for elsewhere."""
        if os.sep in python or self._elsewhere:
            return python
        done = subprocess.run(
            [find_uv(), "python", "find", "--no-python-downloads", python],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise InputError(
                f"there is no interpreter `{python}` on this machine", hint="name the path of one, or install it"
            )
        return done.stdout.strip()

    def _make_target(self, python: str) -> Target:
        path = self.interpreter(python)
        if os.sep not in path:
            return make_target(python=path, platform=None, hardware=self._hardware)
        program = "import platform; print(platform.python_version())"
        try:
            done = subprocess.run(
                [path, "-I", "-c", program], capture_output=True, encoding="utf-8", errors="replace", check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise InputError(f"the interpreter `{path}` does not run: {error}") from None
        return make_target(python=done.stdout.strip(), platform=None, hardware=self._hardware)


_POLICY = CandidatePolicy(only_binary=frozenset({":all:"}))


def _parsed(word: str) -> Requirement:
    try:
        return Requirement(word)
    except InvalidRequirement as error:
        raise InputError(
            f"`{word}` is not a requirement: {str(error).splitlines()[0]}",
            hint="write it as `--stack 'numpy==2.2.6'`, several requirements with spaces between them",
        ) from None


def _with_cudnn(problem: ResolutionProblem, chosen: Sequence[Candidate], cudnn: str, text: str) -> ResolutionProblem:
    """Return the problem with cuDNN replaced, within its major version.

    NVIDIA promises that a newer minor release serves what was built against an older one, not the other way round
    (https://docs.nvidia.com/deeplearning/cudnn/latest/developer/forward-compatibility.html); whether an older one does
    is what such a measurement finds out.
    """
    carried = next((c for c in chosen if c.name.startswith("nvidia-cudnn-cu")), None)
    if carried is None:
        raise NoStackError(f"stack `{text}` carries no cuDNN that could be replaced")
    if carried.version.major != Version(cudnn).major:
        raise NoStackError(
            f"stack `{text}` asks for cuDNN {carried.version}; {cudnn} is of another major version",
            hint=f"take a release of cuDNN {carried.version.major}",
        )
    override = RootRequirement(requirement=Requirement(f"{carried.name}=={cudnn}.*"), origin="the matrix")
    return ResolutionProblem(roots=problem.roots, target=problem.target, policy=problem.policy, overrides=(override,))
