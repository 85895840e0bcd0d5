"""How the gate reads a project: its problem without its own pins, packages from other places, locks of no target."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from advisor.domain.direct_reference import DirectReference
from advisor.domain.requirement import RootRequirement
from advisor.gate.findings import Finding, Place
from advisor.gate.policy import GatePolicy
from advisor.index.client import IndexClient
from advisor.locks.lock import Lock
from advisor.locks.registry import lock_formats
from advisor.resolve.candidates.direct import with_direct_packages
from advisor.resolve.candidates.problem import ResolutionProblem
from knowledge.domain.errors import AdvisorError

logger = logging.getLogger(__name__)


def with_readable_packages(problem: ResolutionProblem, client: IndexClient) -> ResolutionProblem:
    """Return the problem with the packages that come from no index and can be read; a warning names the others.

    Raises:
        InputError: If a package has another name than required.
        UnsatisfiableError: If a package comes from two places.
    """

    def skip(error: AdvisorError) -> None:
        logger.warning("what a package from another place than an index requires is not checked: %s", error.message)

    return with_direct_packages(problem, client, skip=skip)


def references_of(problem: ResolutionProblem) -> tuple[DirectReference, ...]:
    """Return where the packages of a project come from, other than indexes."""
    required = [root.direct for root in (*problem.roots, *problem.overrides) if root.direct is not None]
    further = [package.candidate.direct for package in problem.direct.values() if package.candidate.direct is not None]
    return tuple(dict.fromkeys([*required, *further]))


def without_pins(problem: ResolutionProblem, lock: Lock) -> ResolutionProblem:
    """Return a problem without pins if the lock is its own requirements file: there, a pin is the locked version."""
    return _freed(problem, problem.roots) if lock.is_project else problem


def without_pins_of(problem: ResolutionProblem, path: Path) -> ResolutionProblem:
    """Return a problem without the pins in a file: they say what is locked there, and another lock may differ."""
    return _freed(problem, [root for root in problem.roots if root.path and Path(root.path) == path])


def _freed(problem: ResolutionProblem, roots: Collection[RootRequirement]) -> ResolutionProblem:
    free = (r.without_versions() if r in roots and _is_pin(r) else r for r in problem.roots)
    return replace(problem, roots=tuple(free))


def _is_pin(root: RootRequirement) -> bool:
    return not root.constraint and any(s.operator in ("==", "===") for s in root.requirement.specifier)


def find_unchecked_locks(
    directory: Path, policy: GatePolicy, *, checked: Collection[Path], base: Path | None
) -> Iterator[Finding]:
    """Yield a note for each lock that no target checks; with a base, only for locks that the change adds or edits.

    The files with the project's requirements count as checked. `base` is the project's directory in the base.
    """
    for path in (path for lock_format in lock_formats() for path in lock_format.all(directory)):
        before = base / path.name if base is not None else None
        is_new = before is None or not before.is_file() or before.read_bytes() != path.read_bytes()
        if path not in checked and is_new:
            yield Finding(
                code="ADV022",
                level=policy.level_of("ADV022"),
                message=f"the lock `{path.name}` is not checked: set it as the `lock` of a target, or use `--current`",
                place=Place(path=str(path), line=1),
                subject=path.name,
            )
