"""Submits the tasks of a campaign to an engine and stores their observations in the knowledge base.

All decisions are based on the files in the campaign directory, so that a coordinator may be killed at any time and
another one can continue. Each step can be repeated safely: a submission is written to disk before it is sent to the
engine, under a name that the engine can look up; an observation is added to the knowledge base before its file is
moved, and adding it twice changes nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.campaign.directory import (
    CampaignDirectory,
    CampaignDirectoryError,
    CampaignPlan,
    Cell,
    Submission,
    block_name,
    cell_files,
    read_submission,
    write_file,
)
from advisor.campaign.engines import Engine, open_engine
from advisor.campaign.worker import cells_in
from advisor.domain.words import count
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.domain.shared_files import read_document
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.base import KnowledgeBase, KnowledgeBaseError
from pi_runners.execution.campaign import ObservationSink, measured_cells
from pi_runners.executors.base import Batch, Executor, ExecutorError, RefusedError, State, TaskStatus

_NOISE = ("seshat-cell ", "Try ")
_CELLS_PER_TRANSACTION = 200
"""Maximum number of cells that are stored in one transaction."""


@dataclass
class Coordinator:
    """Runs one campaign. Only one process may coordinate a campaign: see ``CampaignDirectory.lock_coordinator``.

    Attributes:
        directory: The campaign directory.
        plan: The plan in it.
        sink: Receives the observations; ``None`` for a coordinator that only reads.
        attempts: Give up on a task after this many attempts without a new result.
        warn: Called once for each temporary problem, with a message and a hint.
    """

    directory: CampaignDirectory
    plan: CampaignPlan
    sink: ObservationSink | None = None
    attempts: int = 3
    warn: Callable[[str, str], None] = lambda *_: None
    _warned: set[str] = field(default_factory=set, init=False)
    _statuses: dict[int, TaskStatus] = field(default_factory=dict, init=False)
    _is_cancelling: bool = field(default=False, init=False)
    _collected_outputs: set[tuple[str, int]] = field(default_factory=set, init=False)

    def import_results(self, store: KnowledgeBase) -> None:
        """Mark the cells whose observations are in the knowledge base, but not in the directory, as measured.

        Raises:
            InputError: If a block in the knowledge base has other stacks or settings than the plan.
        """
        planned_blocks = {block.name: block for block in self.plan.blocks}
        blocks = {stored.name: stored for stored in store.blocks()}
        for cell in self.directory.cells(self.directory.stored):
            # The knowledge base may be another one than before, or may have been restored from a backup.
            if block_name(self.plan.blocks[cell.block], cell.machine) not in blocks:
                self.directory.mark_stored(cell, is_stored=False)
        for stored in blocks.values():
            planned = planned_blocks.get(stored.name.rpartition("-")[0])
            if planned is None:
                continue
            observations = tuple(store.observations(block=stored.name))
            if block_name(planned, observations[0].hardware.identity) != stored.name:
                continue
            # A block that ran on another machine was planned for the hardware of this one.
            measured_cells(replace(planned, hardware=observations[0].hardware), observations)
            for cell, content in cell_files(self.plan, observations):
                self.directory.put(cell, content, stored=True)
                self.directory.mark_stored(cell)

    def submissions(self) -> tuple[Submission, ...]:
        """Return all submissions, oldest first.

        Raises:
            CampaignDirectoryError: If the directory of the batches cannot be read.
        """
        try:
            # Not `glob`, which returns nothing where a directory cannot be read: its tasks would be submitted again.
            folders = sorted(self.directory.batches.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise CampaignDirectoryError(
                f"`{self.directory.batches}` cannot be read: {error.strerror or error}",
                hint="check that the directory of the campaign can be read, then run the same command again",
            ) from None
        return tuple(read_submission(folder) for folder in folders if (folder / "submission.json").exists())

    def step(self, engine: Engine | None) -> bool:
        """Check all submissions, collect results, and submit missing tasks if nothing is active.

        Args:
            engine: The engine for missing tasks; `None` submits nothing.

        Returns:
            Whether tasks are still active or results still wait to be stored.
        """
        if self.is_cancelled and not self._is_cancelling:
            # Another process, such as `advisor pi cancel`, marked the campaign as cancelled.
            self.cancel()
        for submission in self.submissions():
            if not submission.outcomes:
                self._update(submission, submit=engine is not None)
        self.collect()
        if engine is not None and not self.is_cancelled and not self.is_active:
            waiting = [state.task for state in self.states() if state.state == "waiting"]
            if waiting:
                self._submit(engine, waiting)
        return self.is_active or bool(self.directory.cells(self.directory.spool))

    def poll(self, *, engine: str | None = None) -> None:
        """Get the current state of all tasks from the engines, or from the named one; nothing else changes."""
        for submission in self.submissions():
            if submission.handle and not submission.outcomes and engine in (None, submission.engine):
                executor, batch = self._open(submission)
                try:
                    self._statuses.update((s.task, s) for s in executor.poll(batch, submission.handle))
                except ExecutorError as error:
                    self._warn_once(error.message, error.hint)

    def states(self) -> tuple[TaskStatus, ...]:
        """Return the state of each task, as of the last poll."""
        cells, submissions = self.directory.cells(), self.submissions()
        after = str(read_document(self.directory.path / "retry.json").get("after", ""))
        return tuple(
            TaskStatus(task=task, state="done", node=str(self.directory.read_progress(task).get("node", "")))
            if self._is_complete(task, cells)
            else self._state(task, [s for s in submissions if task in s.tasks], after)
            for task in range(len(self.plan.tasks))
        )

    def read_output(self, output: str) -> None:
        """Write the cells in a task's output to the spool."""
        for cell, content in cells_in(output):
            self.directory.put(cell, content)

    def collect(self) -> int:
        """Store the spooled observations in the knowledge base; return the number of stored cells."""
        assert self.sink is not None, "a coordinator that only reads stored observations"
        stored = 0
        waiting = list(self.directory.cells(self.directory.spool).items())
        for start in range(0, len(waiting), _CELLS_PER_TRANSACTION):
            group = waiting[start : start + _CELLS_PER_TRANSACTION]
            contents = {cell: self._read(path) for cell, path in group}
            readable = {cell: observations for cell, observations in contents.items() if observations is not None}
            try:
                self.sink(o for observations in readable.values() for o in observations)
            except KnowledgeBaseError as error:
                rest = len(waiting) - stored
                cells = f"{count(rest, 'cell')} not stored yet, in `{self.directory.spool}`"
                self._warn_once(f"{error.message}; {cells}", error.hint)
                return stored
            for cell in readable:
                self.directory.mark_stored(cell)
            stored += len(readable)
        return stored

    def cancel(self) -> None:
        """Cancel every active task; results so far stay."""
        (self.directory.path / "cancelled").touch()
        self._is_cancelling = True
        for submission in self.submissions():
            if not submission.outcomes:
                executor, batch = self._open(submission)
                if handle := submission.handle or executor.find(batch):
                    write_file(submission.folder / "handle", handle.encode())
                    if not executor.sees_files:
                        for task in batch.tasks:
                            self.read_output(executor.output(batch, handle, task))
                    executor.cancel(batch, handle)
                else:
                    (submission.folder / "submission.json").unlink()

    @property
    def is_active(self) -> bool:
        """Whether a submission has not ended."""
        return any(not s.outcomes for s in self.submissions())

    @property
    def is_coordinated(self) -> bool:
        """Whether a process coordinates the campaign."""
        with self.directory.lock_coordinator() as is_free:
            return not is_free

    @property
    def is_cancelled(self) -> bool:
        """Whether the campaign was cancelled."""
        return (self.directory.path / "cancelled").exists()

    def resume(self, *, retry: bool) -> None:
        """Undo a cancellation; ``retry`` also retries tasks that were given up."""
        (self.directory.path / "cancelled").unlink(missing_ok=True)
        if retry:
            numbers = [s.folder.name for s in self.submissions()]
            document = {"after": max(numbers, default="")}
            write_file(self.directory.path / "retry.json", canonical_json(document).encode())

    def _update(self, submission: Submission, *, submit: bool) -> None:
        """Poll a submission, collect the output of tasks that ended, and record the outcome once all have ended."""
        executor, batch = self._open(submission)
        if not submission.handle and not submit:
            return
        try:
            if not submission.handle:
                submission = self._send(submission, executor, batch)
            statuses = executor.poll(batch, submission.handle)
            for status in statuses:
                self._statuses[status.task] = status
                key = (batch.name, status.task)
                if status.final and not executor.sees_files and key not in self._collected_outputs:
                    self.read_output(executor.output(batch, submission.handle, status.task))
                    # The workers of such an engine cannot write to the campaign directory.
                    nodes = {str(arm.number): status.node for arm in self.plan.arms(status.task)}
                    self.directory.write_progress(status.task, {"node": status.node, "nodes": nodes})
                    self._collected_outputs.add(key)
        except ExecutorError as error:
            self._warn_once(error.message, error.hint)
            return
        cells = self.directory.cells()
        if not all(s.final or (s.state == "queued" and self._is_complete(s.task, cells)) for s in statuses):
            return
        if not all(status.final for status in statuses):
            # An interrupted engine may have queued tasks again that are already measured.
            try:
                executor.cancel(batch, submission.handle)
            except ExecutorError as error:
                self._warn_once(error.message, error.hint)
        self._close(submission, executor, batch, statuses)

    def _close(
        self, submission: Submission, executor: Executor, batch: Batch, statuses: tuple[TaskStatus, ...]
    ) -> None:
        cells = self._counts(submission.tasks)
        document = {
            str(s.task): {
                "state": s.state,
                "node": s.node or str(self.directory.read_progress(s.task).get("node", "")),
                "reason": "" if s.state == "done" else _reason(executor, batch, submission.handle, s),
                "gained": cells[s.task] - submission.cells_before.get(s.task, 0),
            }
            for s in statuses
        }
        write_file(submission.folder / "closed.json", canonical_json(document).encode())

    def _submit(self, engine: Engine, tasks: list[int]) -> None:
        """Write a submission to disk, then send it to the engine."""
        number = len(self.submissions()) + 1
        folder = self.directory.batches / f"{number:03}"
        document = {
            "tasks": tasks,
            "had": {str(task): count for task, count in self._counts(tasks).items()},
            "engine": engine.executor.name,
            "options": asdict(engine.executor.options),
            "at": time.time(),
        }
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise CampaignDirectoryError(f"`{folder}` cannot be written: {error.strerror}") from None
        write_file(folder / "submission.json", canonical_json(document).encode())
        submission = read_submission(folder)
        try:
            self._send(submission, *self._open(submission))
        except RefusedError:
            # The engine rejected it and runs nothing of it.
            (folder / "submission.json").unlink()
            raise
        except ExecutorError as error:
            # It may run nevertheless: the next step looks it up by its name.
            self._warn_once(error.message, error.hint)

    def _send(self, submission: Submission, executor: Executor, batch: Batch) -> Submission:
        handle = executor.submit(batch)
        write_file(submission.folder / "handle", handle.encode())
        return replace(submission, handle=handle)

    def _open(self, submission: Submission) -> tuple[Executor, Batch]:
        """Return the executor and the batch of a submission."""
        engine = open_engine(submission.engine, submission.options, self.directory, self.plan)
        number, tasks = submission.folder.name, submission.tasks
        return engine.executor, engine.batch(self.directory, self.plan.name, number=number, tasks=tasks)

    def _state(self, task: int, submissions: Sequence[Submission], after: str) -> TaskStatus:
        """Return the state of a task that is not complete; its submissions until a number do not count as attempts."""
        if submissions and not submissions[-1].outcomes:
            return self._statuses.get(task, TaskStatus(task=task, state="queued"))
        attempts, last = 0, dict[str, Any](node="", reason="")
        for submission in submissions:
            last = submission.outcomes[task]
            # An attempt with a new result is not a failure: the next one continues where it stopped.
            fruitless = last["gained"] == 0 and last["state"] != "cancelled" and submission.folder.name > after
            attempts = attempts + 1 if fruitless else 0
        state: State = "cancelled" if self.is_cancelled else "given-up" if attempts >= self.attempts else "waiting"
        return TaskStatus(task=task, state=state, node=last["node"], reason=last["reason"], attempts=attempts)

    def _is_complete(self, task: int, cells: Iterable[Cell]) -> bool:
        """Whether all stacks of a task were measured on one kind of machine."""
        number, round_ = self.plan.tasks[task]
        required = {arm.number for arm in self.plan.arms(task)}
        measured: dict[str, set[int]] = {}
        for cell in cells:
            if (cell.block, cell.round) == (number, round_):
                measured.setdefault(cell.machine, set()).add(cell.arm)
        return not required or any(required <= arms for arms in measured.values())

    def _counts(self, tasks: Iterable[int]) -> dict[int, int]:
        cells = [(cell.block, cell.round) for cell in self.directory.cells()]
        return {task: cells.count(self.plan.tasks[task]) for task in tasks}

    def _read(self, path: Path) -> tuple[Observation, ...] | None:
        """Return the observations of a cell; `None` if the file is absent, or damaged, in which case it is renamed."""
        try:
            return tuple(read_observations(read_lines(path.read_bytes(), where=str(path)), where=str(path)))
        except InputError as error:
            damaged = path.with_suffix(".damaged")
            path.replace(damaged)
            self._warn_once(f"{error.message}; it was renamed to `{damaged}`, and the cell is measured again", "")
        except FileNotFoundError:
            pass
        return None

    def _warn_once(self, message: str, hint: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.warn(message, hint)


def _reason(executor: Executor, batch: Batch, handle: str, status: TaskStatus) -> str:
    """Return why a task failed: the engine's reason and the last error in the task's output."""
    output = ""
    with contextlib.suppress(UnavailableError):
        output = executor.output(batch, handle, status.task)
    lines = [line for line in map(str.strip, output.splitlines()) if line and not line.startswith(_NOISE)]
    # Errors of the worker, or of the program that starts it, such as `srun: error: ...`.
    errors = [line.removeprefix("error: ") for line in lines if re.match(r"([\w-]+: )?error: ", line)]
    error_text = errors[-1] if errors else (lines[-1] if lines and status.state == "failed" else "")
    return ": ".join(part for part in (status.reason, error_text[-600:]) if part) or status.state
