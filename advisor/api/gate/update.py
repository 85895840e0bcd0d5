"""The smallest change of a project's lock that passes the gate."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import Version

from advisor.api.gate.changed_lock import request_for_lock
from advisor.api.gate.gate_session import open_gate
from advisor.api.locked_stack import lock_texts
from advisor.api.options import ProjectOptions
from advisor.api.session import AdviceSession
from advisor.domain.target import Target
from advisor.gate.check import GateResult
from advisor.gate.comparison import PackageChange, changes_between, effect_order
from advisor.gate.findings import Finding, resolved_findings
from advisor.gate.problem import without_pins
from advisor.gate.update import find_smallest_update, lock_again, needs_tool
from advisor.index.client import IndexClient
from advisor.locks.formats.requirements import with_pins
from advisor.locks.lock import Lock
from advisor.locks.registry import format_to_read
from advisor.locks.settings_table import read_settings
from advisor.resolve.optimum.request import ResolutionRequest, Solved
from advisor.resolve.optimum.result import Optimum
from knowledge.domain.errors import InputError
from knowledge.domain.shared_files import write_all
from knowledge.estimate.interface import Effect, Prediction

NO_LOCK = "there was no lock to compare with"
"""Why a change from no lock has no prediction."""


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """A change of a lock, and its reasons.

    Attributes:
        target: What the lock is for.
        before: Versions of the lock; ``None`` if there was no lock to compare with.
        optimum: The stack after the change, and its proof.
        prediction: Predicted speed-up over the lock; ``None`` if there was none or it cannot run.
        effects: The same at each indicator.
        cleared: Failing findings of the gate that the change resolves.
        remaining: Failing findings of the gate that it does not resolve.
        is_smallest: Whether it is the smallest change that clears the findings; else the best stack.
        reasons: Sentence that explains the version of a package, by package.
        outputs: Files that were written.
        commands: Commands to run with the tool that writes the lock.
        instructions: Sentences that say what else to do, where this program does not write the lock.
        not_predicted: Why there is no prediction; empty if there is one.
        leaves_open: Whether the lock does not list all packages: one that it does not list is no change of it.
        dropped_settings: Run-time settings that the lock recorded and that its new versions do not have.
        passes: Whether the lock passes the gate, as it is in its file now.
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
    instructions: Sequence[str] = ()
    not_predicted: str = ""
    leaves_open: bool = False
    dropped_settings: Sequence[str] = ()
    passes: bool = True

    @property
    def changes(self) -> tuple[PackageChange, ...]:
        """Packages that differ, by name."""
        differences = changes_between(self.before or {}, self.optimum.stack.versions)
        return tuple(c for c in differences if c.before is not None or not self.leaves_open)


def change_to_best(session: AdviceSession, *, outputs: Sequence[Path] = ()) -> LockChange:
    """Return the change from the project's present lock to the best stack, with the locks that were written."""
    advice, before = session.recommend(), session.current_versions
    stack = advice.optimum.stack.versions
    return LockChange(
        target=session.context.target,
        before=before,
        optimum=advice.optimum,
        prediction=None if before is None else session.inputs.estimator.predict(stack, before),
        effects=() if before is None else sorted(session.inputs.estimator.effects(stack, before), key=effect_order),
        not_predicted=NO_LOCK if before is None else "",
        reasons=advice.reasons,
        outputs=tuple(map(str, outputs)),
    )


def update_lock(options: ProjectOptions, *, outputs: Sequence[Path] = (), dry_run: bool = False) -> LockChange:
    """Find the smallest change of a lock that passes the gate, write it, and check what was written.

    Returns:
        The change, with findings that remain.

    Raises:
        InputError: If the project or an option is wrong, or it has several targets.
        NoStackError: If no stack passes the gate.
        SearchLimitError: If the search was not completed.
        UnavailableError: If an index cannot be read.
    """
    with open_gate(options) as (result, opened):
        context, *others = opened.contexts
        if others:
            raise InputError("a lock is updated for one target at a time", hint="name one `--target`")
        case = result.targets[0].case
        lock = case.head.lock
        _refuse_other_file(lock, outputs)
        before = _failing(result)
        request = request_for_lock(context, case, without_pins(case.head.problem, lock))
        change = _smallest_change(result, request, before, is_new_lock=bool(outputs))
        if not (change.changes or change.cleared or outputs) or (dry_run and outputs):
            return change
        context.check_only_target(outputs or ([lock.path] if lock.path else []))
        change, texts = _rendered(change, lock, outputs, request, case.client)
    if dry_run or not texts:
        return change
    write_all(texts)
    change = replace(change, outputs=tuple(map(str, texts)))
    return _checked(change, before, replace(options, indexes=replace(options.indexes, refresh=False)), outputs=outputs)


def _refuse_other_file(lock: Lock, outputs: Sequence[Path]) -> None:
    """Refuse another file that is to be written for a pinned requirements file."""
    if lock.is_project and any(path.resolve() != lock.path.resolve() for path in outputs if lock.path):
        raise InputError(
            f"the pins of `{lock.path}` are the project's requirements, too: no other lock can differ from them",
            hint="leave out `--output`: the file itself is updated",
        )


def _smallest_change(
    result: GateResult, request: ResolutionRequest, before: Sequence[Finding], *, is_new_lock: bool
) -> LockChange:
    """Return the smallest change of a lock that passes, with what the user must do where this program writes no file.

    A new lock is another file than the present one, which has the failing findings `before`.
    """
    target_result, case = result.targets[0], result.targets[0].case
    lock, reason = case.head.lock, target_result.not_predicted
    update = find_smallest_update(target_result, request, result.policy, today=datetime.now(UTC).date())
    stack = update.optimum.stack.versions
    # The search is about stacks; other findings are about the policy, such as an expired exception, or the project.
    others = [f for f in before if f not in target_result.findings or (needs_tool(f, lock) and not is_new_lock)]
    remaining = (*others, *update.remaining)
    change = LockChange(
        target=request.problem.target,
        before=lock.versions,
        optimum=update.optimum,
        prediction=None if reason else case.predictor.predict(stack, lock.versions),
        effects=() if reason else sorted(case.predictor.effects(stack, lock.versions), key=effect_order),
        not_predicted=reason,
        cleared=resolved_findings(before, remaining),
        remaining=remaining,
        is_smallest=True,
        reasons=update.older,
        leaves_open=lock.is_project,
        passes=not before,
    )
    return change if is_new_lock else _with_steps(change, lock)


def _with_steps(change: LockChange, lock: Lock) -> LockChange:
    """Return a change with what the user must do about a lock that this program does not write."""
    has_effect = bool(change.changes or change.cleared)
    if lock.path is None:
        step = "write a lock with `--output FILE`, and install it: the environment itself is not changed"
        return replace(change, instructions=(step,) if has_effect else ())
    if not lock.tool:
        return change
    again = (lock_again(lock),) if any(needs_tool(finding, lock) for finding in change.remaining) else ()
    if not has_effect:
        return replace(change, instructions=again)
    repaired = [c for c in change.optimum.stack if any(f.package == c.name for f in change.cleared)]
    versions = {c.package: c.after for c in change.changes if c.after is not None}
    versions |= {str(c.name): c.version for c in repaired}
    pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
    if command := format_to_read(lock.path).update_command(pins):
        return replace(change, commands=(command,), instructions=again)
    step = f"lock {', '.join(pins) or 'again'} with {lock.tool}, which alone writes `{lock.path.name}`"
    return replace(change, instructions=(step, *again))


def _checked(
    change: LockChange, before: Sequence[Finding], options: ProjectOptions, *, outputs: Sequence[Path]
) -> LockChange:
    """Return a change that was written, with the findings that the gate has about the files as they are now."""
    remaining: list[Finding] = []
    for current in map(str, outputs) if outputs else [options.files.current]:
        written = replace(options, files=replace(options.files, current=current))
        with _without_warnings(), open_gate(written) as (result, _):
            remaining += _failing(result)
    return replace(change, cleared=resolved_findings(before, remaining), remaining=remaining, passes=not remaining)


def _failing(result: GateResult) -> tuple[Finding, ...]:
    """Return the findings that fail the gate."""
    for _, failure in result.failures:
        raise failure
    return tuple(finding for finding in result.findings if finding.fails)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Log no warnings: they were logged when the same inputs were read first."""
    logger = logging.getLogger("advisor")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _text_in_utf8(file: Path) -> str:
    """Return the text of a requirements file to change: in another encoding, its other lines could change, too."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        message = f"`{file}` is not in UTF-8, so `--update` does not change it"
        raise InputError(message, hint="save it in UTF-8") from None


def _rendered(
    change: LockChange, lock: Lock, outputs: Sequence[Path], request: ResolutionRequest, client: IndexClient
) -> tuple[LockChange, dict[Path, str]]:
    """Return a change with what it means for the files of the project, and the text of each file to write."""
    path = lock.path
    if not outputs and (path is None or lock.tool):
        return change, {}
    if not outputs and lock.is_edited:
        versions = {c.package: c.after for c in change.changes if c.after is not None}
        # A requirements file may include others.
        pinned = sorted({Path(root.path) for root in request.problem.roots if root.name in versions})
        texts = {file: _text_in_utf8(file) for file in pinned}
        changed = {file: with_pins(text, versions) for file, text in texts.items()}
        return change, {file: text for file, text in changed.items() if text != texts[file]}
    recorded = read_settings(path) if path is not None and path.is_file() else None
    settings = None
    if recorded is not None:
        settings = recorded.known_to(change.optimum.stack.versions)
        change = replace(change, dropped_settings=tuple(s.label for s in recorded.settings if s not in settings))
    paths = outputs or ([path] if path else [])
    return change, lock_texts(paths, Solved(request=request, optimum=change.optimum), client, settings)
