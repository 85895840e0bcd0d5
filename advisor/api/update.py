"""The smallest change of a project's lock that passes the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import Version

from advisor.api.gate_session import GateOptions, open_gate
from advisor.api.lock_files import lock_texts, write_locks
from advisor.api.options import IndexOptions, ProjectFiles, ResolutionOptions, TargetOptions
from advisor.api.session import AdviceSession
from advisor.api.targets import check_only_target
from advisor.domain.target import Target
from advisor.gate.compare import PackageChange, changes_between, effect_order
from advisor.gate.findings import Finding
from advisor.gate.recommendation import without_pins
from advisor.gate.update import find_smallest_update
from advisor.index.client import IndexClient
from advisor.lock.pins import with_pins
from advisor.project.locks import Lock
from advisor.resolve.optimum import Optimum
from advisor.resolve.package_choices import locked_extras
from advisor.resolve.request import ResolutionRequest
from knowledge.domain.atomic_file import write_atomically
from knowledge.domain.errors import InputError
from knowledge.estimate.interface import Effect, Prediction

_TOOLS = {"uv.lock": "uv", "poetry.lock": "Poetry", "pdm.lock": "PDM"}
"""Locks that only their own tool writes."""
NO_LOCK = "there was no lock to compare with"
"""Why a change from no lock has no prediction."""


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """A change of a lock, and its reasons.

    Attributes:
        target: What the lock is for.
        before: Versions of the lock; none if there was no lock to compare with.
        optimum: The stack after the change, and its proof.
        prediction: Predicted speed-up over the lock; none if there was none or it cannot run.
        effects: The same at each indicator.
        cleared: Findings of the gate that the change removes.
        remaining: Findings of the gate that fail before and after it.
        is_smallest: Whether it is the smallest change that clears the findings; else the best stack.
        reasons: Sentence that explains the version of a package, by package.
        outputs: Files that were written.
        commands: Commands to run, for locks that only their own tool writes.
        not_predicted: Why there is no prediction; empty if there is one.
        leaves_open: Whether the lock does not list all packages: one that it does not list is no change of it.
    """

    target: Target
    before: Mapping[str, Version] | None
    optimum: Optimum
    prediction: Prediction | None
    effects: Sequence[Effect]
    cleared: Sequence[Finding] = ()
    remaining: Sequence[Finding] = ()
    is_smallest: bool = False
    reasons: Mapping[str, str]
    outputs: Sequence[str] = ()
    commands: Sequence[str] = ()
    not_predicted: str = ""
    leaves_open: bool = False

    @property
    def changes(self) -> tuple[PackageChange, ...]:
        """Packages that differ, by name."""
        differences = changes_between(self.before or {}, {str(c.name): c.version for c in self.optimum.stack})
        return tuple(c for c in differences if c.before is not None or not self.leaves_open)


def change_to_best(session: AdviceSession, *, outputs: Sequence[Path] = ()) -> LockChange:
    """Return the change from the project's present lock to the best stack.

    Args:
        session: The project.
        outputs: Locks that were written.
    """
    advice, before = session.recommend(), session.current_versions
    stack = {str(c.name): c.version for c in advice.optimum.stack}
    return LockChange(
        target=session.context.target,
        before=before,
        optimum=advice.optimum,
        prediction=None if before is None else session.estimator.predict(stack, before),
        effects=() if before is None else sorted(session.estimator.effects(stack, before), key=effect_order),
        not_predicted=NO_LOCK if before is None else "",
        reasons=advice.reasons,
        outputs=tuple(map(str, outputs)),
    )


def update_lock(
    files: ProjectFiles,
    target: TargetOptions,
    indexes: IndexOptions,
    resolution: ResolutionOptions,
    *,
    outputs: Sequence[Path] = (),
    dry_run: bool = False,
) -> LockChange:
    """Find the smallest change of a lock that passes the gate, and write it.

    Args:
        files: The project's files.
        target: The target.
        indexes: The package indexes.
        resolution: What the best stack is.
        outputs: Locks to write instead of the project's own.
        dry_run: Whether to write nothing.

    Returns:
        The change, with findings that remain.

    Raises:
        InputError: If the project or an option is wrong, or it has several targets.
        NoStackError: If no stack passes the gate.
        SearchLimitError: If the search was not completed.
        UnavailableError: If an index cannot be read.
    """
    with open_gate(files, target, indexes, resolution, GateOptions()) as gate:
        if len(gate.contexts) > 1:
            raise InputError("a lock is updated for one target at a time", hint="name one `--target`")
        target_result, context = gate.result.targets[0], gate.contexts[0]
        case = target_result.case
        lock, reason = case.head.lock, target_result.not_predicted
        problem = without_pins(case.head.problem, lock)
        # Locked versions stay candidates even if they were yanked: the gate decides whether they may stay.
        policy = replace(problem.policy, retained=frozenset(lock.versions.items()))
        context = replace(context, problem=replace(problem, policy=policy))
        # The smallest change keeps the extras that the lock has, and adds none.
        request = context.request(case.client, case.predictor, choose_packages=False)
        extras = locked_extras(request.problem, request.source, request.builds, lock.versions)
        request = request.with_problem(request.problem.with_substitutions(extras)) if extras else request
        update = find_smallest_update(target_result, request, gate.result.policy, today=datetime.now(UTC).date())
        stack = {str(c.name): c.version for c in update.optimum.stack}
        change = LockChange(
            target=context.target,
            before=lock.versions,
            optimum=update.optimum,
            prediction=None if reason else case.predictor.predict(stack, lock.versions),
            effects=() if reason else sorted(case.predictor.effects(stack, lock.versions), key=effect_order),
            not_predicted=reason,
            cleared=update.cleared,
            remaining=update.remaining,
            is_smallest=True,
            reasons={},
            leaves_open=lock.is_project,
        )
        if not change.changes or (dry_run and outputs):
            return change
        check_only_target(context, outputs or ([lock.path] if lock.path else []))
        return _apply(change, lock, () if dry_run else outputs, request, case.client, dry_run=dry_run)


def _apply(
    change: LockChange,
    lock: Lock,
    outputs: Sequence[Path],
    request: ResolutionRequest,
    client: IndexClient,
    *,
    dry_run: bool,
) -> LockChange:
    """Write a change to the lock, or name the command of the lock's own tool; return it with what was done."""
    path = lock.path
    if outputs or path is None:
        write_locks(lock_texts(outputs, change.optimum, request, client))
        return replace(change, outputs=tuple(map(str, outputs)))
    if path.name in _TOOLS:
        return replace(change, commands=(_command(path.name, change),))
    if dry_run:
        return change
    if lock.is_project and not lock.records_hashes:
        versions = {c.package: c.after for c in change.changes if c.after is not None}
        # A requirements file may include others.
        pinned = sorted({Path(root.path) for root in request.problem.roots if root.name in versions})
        for file in pinned:
            write_atomically(file, with_pins(file.read_text(encoding="utf-8"), versions))
        return replace(change, outputs=tuple(map(str, pinned)))
    write_locks(lock_texts([path], change.optimum, request, client))
    return replace(change, outputs=(str(path),))


def _command(lock: str, change: LockChange) -> str:
    pins = [f"{c.package}=={c.after}" for c in change.changes if c.after is not None]
    if lock == "uv.lock":
        return f"uv lock {' '.join(f'--upgrade-package {pin}' for pin in pins)}"
    return f"lock {', '.join(pins)} with {_TOOLS[lock]}, which alone writes `{lock}`"
