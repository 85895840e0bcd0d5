"""What is examined: one lock, for one target, under one policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import NormalizedName

from advisor.domain.requirement import RootRequirement
from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.project.locks import Lock
from advisor.resolve.problem import Candidate, ResolutionProblem


@dataclass(frozen=True, kw_only=True)
class Scope:
    """One lock, for one target, under one policy.

    Attributes:
        lock: The lock.
        problem: What the project requires on the target.
        policy: What is let pass.
        target: Name of the target; empty where it has none.
    """

    lock: Lock
    problem: ResolutionProblem
    policy: GatePolicy
    target: str

    def finding(
        self,
        code: str,
        message: str,
        *,
        package: str = "",
        place: Place | None = None,
        subject: str = "",
        source: str = "",
        versions: Mapping[str, object] | None = None,
        files: Sequence[str] = (),
    ) -> Finding:
        """Return a finding; by default it points at its package in the lock."""
        return Finding(
            code=code,
            level=self.policy.level_of(code),
            message=message,
            place=place or self.place_of(package),
            package=package,
            subject=subject,
            targets=(self.target,),
            source=source,
            versions=tuple((name, str(version)) for name, version in (versions or {}).items()),
            files=tuple(files),
        )

    def place_of(self, package: str) -> Place:
        """Return where a package stands in the lock; the lock itself where it does not."""
        if self.lock.path is None:
            return Place()
        locked = self.lock.packages.get(NormalizedName(package))
        if locked is None:
            return Place(path=str(self.lock.path), line=1)
        return Place(path=locked.path or str(self.lock.path), line=locked.line)


def place_of_root(root: RootRequirement) -> Place | None:
    """Return where a requirement of the user's own stands, or none where it stands in no file."""
    return Place(path=root.path, line=root.line) if root.path and root.line else None


Located = Mapping[NormalizedName, Candidate]
"""The file of each locked package that the target would install, as far as the index has one."""
