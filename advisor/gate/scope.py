"""The scope of one check: one lock, one target, one policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import NormalizedName

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.gate.findings import Cause, Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.locks.lock import Lock
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem

_NO_CAUSE = Cause()


@dataclass(frozen=True, kw_only=True)
class Scope:
    """One lock, checked for one target under one policy.

    Attributes:
        lock: The lock.
        problem: What the project requires on the target.
        policy: What fails the gate.
        target: Name of the target; empty if the project has no named targets.
        trusted_references: Repositories, archives and directories that packages may come from.
    """

    lock: Lock
    problem: ResolutionProblem
    policy: GatePolicy
    target: str
    trusted_references: tuple[DirectReference, ...] = ()

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
        """Return a finding with the level that the policy gives its code.

        Args:
            code: Code of the finding, such as ``ADV001``.
            message: One sentence, without a final full stop.
            package: The package that it is about, if any.
            place: Where it points; by default the package's entry in the lock.
            subject: What distinguishes it from other findings of the same code and package.
            source: Where the fact comes from.
            cause: The versions and files that cause it.
        """
        return Finding(
            code=code,
            level=self.policy.level_of(code),
            message=message,
            place=place or self.place_of(package),
            package=package,
            subject=subject,
            targets=(self.target,),
            source=source,
            cause=cause,
        )

    def place_of(self, package: str) -> Place:
        """Return the place of a package's entry in the lock, or of the lock itself if it has no such entry."""
        if self.lock.path is None:
            return Place()
        locked = self.lock.packages.get(NormalizedName(package))
        if locked is None:
            return Place(path=str(self.lock.path), line=1)
        return Place(path=locked.path or str(self.lock.path), line=locked.line)


def place_of_root(root: RootRequirement) -> Place | None:
    """Return the place of a requirement of the project, or none if it comes from no file."""
    return Place(path=root.path, line=root.line) if root.path and root.line else None


InstallableFiles = Mapping[NormalizedName, Candidate]
"""The file that the target would install for each locked package; packages without such a file are absent."""
