"""What each check of the gate looks at: one state of a project, for one target and under one policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from packaging.utils import NormalizedName

from advisor.domain.direct_reference import DirectReference
from advisor.gate.comparison import LockComparison, RecommendedValues, with_settings_of_lock
from advisor.gate.findings import Cause, Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.gate.recommendation import RecommendedStack
from advisor.gate.verdict import ChangeVerdict
from advisor.index.client import IndexClient
from advisor.locks.certificate import Certificate
from advisor.locks.lock import Lock, LockedVersion
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.project_settings import ProjectSettings
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem
from advisor.resolve.score.predictor import Predictor
from advisor.resolve.score.setting_choice import TargetSettings

_T = TypeVar("_T")
_NO_CAUSE = Cause()

InstallableFiles = Mapping[NormalizedName, Candidate]
"""The file that the target would install for each locked package; packages without such a file are absent."""


@dataclass(frozen=True, kw_only=True)
class ProjectState:
    """The state of a project: in the checkout, or in a commit.

    Attributes:
        lock: Its lock.
        problem: Its requirements.
        allowed_indexes: Addresses that its packages may come from, in addition to PyPI.
        project_settings: Its run-time settings.
        recommended_settings: Run-time settings that its lock recommends.
        requirements_known: Whether its requirements are known; they are not if the base is only a lock file.
        trusted_references: Repositories, archives and directories that its packages may come from.
        certificate: What an experiment says about its lock; `None` if none was made.
    """

    lock: Lock
    problem: ResolutionProblem
    allowed_indexes: Collection[str]
    project_settings: ProjectSettings = field(default_factory=ProjectSettings)
    recommended_settings: RecommendedValues = field(default_factory=dict)
    requirements_known: bool = True
    trusted_references: tuple[DirectReference, ...] = ()
    certificate: Certificate | None = None


@dataclass(frozen=True, kw_only=True)
class GateCase:
    """A project and a target to check it for.

    Attributes:
        name: Name of the target; empty if the project has no named targets.
        head: The project.
        client: The indexes.
        predictor: Predictions from the observations, for the target.
        recommend: Returns the recommended stack; `None` to skip that comparison.
        base: Display name and state of the base that the project is compared with, if there is one.
        max_size: Largest admissible download of the lock, in bytes; `None` for no limit.
        settings: Run-time settings that may be recommended; `None` if none may.
        program: Identity of what `advisor advise --measure` would measure; empty if no lock has a certificate.
        change: Name of a lock that is neither a file nor an environment, for people; else empty.
    """

    name: str
    head: ProjectState
    client: IndexClient
    predictor: Predictor
    recommend: Callable[[], RecommendedStack] | None = None
    base: tuple[str, ProjectState] | None = None
    max_size: int | None = None
    settings: TargetSettings | None = None
    program: str = ""
    change: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scope:
    """What a check looks at: the state of a project or of its base, for one target and under one policy.

    For the checks of a change, `base`, `comparison` and `verdict` are stated, too.
    """

    case: GateCase
    state: ProjectState
    policy: GatePolicy
    base: Scope | None = None
    comparison: LockComparison | None = None
    verdict: ChangeVerdict | None = None
    _results: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def lock(self) -> Lock:
        """The lock."""
        return self.state.lock

    @property
    def problem(self) -> ResolutionProblem:
        """What the project requires on the target."""
        return self.state.problem

    @cached_property
    def settings(self) -> tuple[ProjectSetting, ...]:
        """Run-time settings of the project, without those of operations on devices that the target does not use."""
        return self.state.project_settings.on(self.problem.target.hardware.device)

    @cached_property
    def settings_with_lock(self) -> tuple[ProjectSetting, ...]:
        """The same, with those that the lock recommends and that nothing else sets."""
        return with_settings_of_lock(self.settings, self.state.recommended_settings, self.lock.path or Path())

    def once(self, make: Callable[[Scope], _T]) -> _T:
        """Return the result of a function for this state; it is called for the first check that needs it."""
        if make not in self._results:
            self._results[make] = make(self)
        result: _T = self._results[make]
        return result

    def made(self, make: Callable[[Scope], _T]) -> _T | None:
        """Return the result of a function that :meth:`once` called; `None` if no check needed it so far."""
        return self._results.get(make)

    def finding(
        self,
        code: str,
        message: str,
        *,
        package: str = "",
        place: Place | None = None,
        subject: str = "",
        source: str = "",
        cause: Cause = _NO_CAUSE,
    ) -> Finding:
        """Return a finding with the level that the policy gives its code; by default, its place is the package's."""
        return Finding(
            code=code,
            level=self.policy.level_of(code),
            message=message,
            place=place or self.place_of(package),
            package=package,
            subject=subject,
            targets=(self.case.name,),
            source=source,
            cause=cause,
        )

    def place_of(self, package: str) -> Place:
        """Return the place of a package's entry in the lock, or of the lock itself if it has no such entry."""
        if self.lock.path is None:
            return Place()
        locked = self.lock.packages.get(NormalizedName(package))
        return self.at(1) if locked is None else self.place_of_entry(locked)

    def place_of_entry(self, locked: LockedVersion) -> Place:
        """Return the place of an entry of the lock."""
        return Place(path=locked.path or str(self.lock.path), line=locked.line)

    def at(self, line: int) -> Place:
        """Return the place of a line of the lock."""
        return Place(path=str(self.lock.path), line=line)


Check = Callable[[Scope], Iterator[Finding]]
"""A check: yields its findings.

A check that reads an index, or the knowledge base, may raise an error after some findings.
"""
