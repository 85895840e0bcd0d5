"""Brings a campaign's tasks to an engine and its observations home.

Everything that is decided is read from the campaign's folder, so that a coordinator may be killed at any instant and
another one goes on. What is written before it is done can be done again: a submission is noted before it is made, and
is made under a name that the engine knows; an observation is in the knowledge base before its file is moved, and adding
it again changes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.campaign.directory import (
    CampaignPlan,
    Cell,
    Home,
    HomeError,
    block_name,
    cell_files,
    read_document,
    write_whole,
)
from advisor.campaign.engines import Engine, open_engine
from advisor.campaign.submission_log import Submission, TaskState, batch_of, submission_from
from advisor.campaign.worker import cells_in
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.identity import canonical_json
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.base import KnowledgeBase, KnowledgeBaseError
from pi_runners.campaign import ObservationSink, measured_cells
from pi_runners.executors.base import Batch, ExecutorError, RefusedError, TaskStatus

_NOISE = ("seshat-cell ", "Try ")
_TOGETHER = 200
"""So many cells are stored in one transaction."""


class Coordinator:
    """Runs one campaign; one at a time does (see :meth:`advisor.campaign.directory.Home.coordinated`)."""

    def __init__(
        self,
        home: Home,
        plan: CampaignPlan,
        *,
        sink: ObservationSink,
        attempts: int = 3,
        warn: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Remember where things are.

        Args:
            home: The campaign's folder.
            plan: Its plan.
            sink: Receives the observations.
            attempts: Give up on a task after this many attempts without a new result.
            warn: Told what does not work for now, once, with a hint.
        """
        self.home = home
        self.plan = plan
        self._sink = sink
        self._attempts = attempts
        self._warn = warn
        self._told: set[str] = set()
        self._polled: dict[int, TaskStatus] = {}
        self._ending = False
        self._heard: set[tuple[str, int]] = set()

    def recall(self, store: KnowledgeBase) -> None:
        """Take what the knowledge base has of the campaign's blocks as measured, where the folder does not know it.

        Raises:
            InputError: If a block was begun with other stacks or settings.
        """
        names = {block.name: block for block in self.plan.blocks}
        blocks = {held.name: held for held in store.blocks()}
        for cell in self.home.cells(self.home.kept):
            # Another knowledge base may be asked for now, or this one was restored.
            if block_name(self.plan.blocks[cell.block], cell.machine) not in blocks:
                self.home.keep_again(cell)
        for held in blocks.values():
            planned = names.get(held.name.rpartition("-")[0])
            if planned is None:
                continue
            found = tuple(store.observations(block=held.name))
            if block_name(planned, found[0].hardware.identity) != held.name:
                continue
            # It was planned for other hardware than what measured it, where that is elsewhere.
            measured_cells(replace(planned, hardware=found[0].hardware), found)
            for cell, content in cell_files(self.plan, found):
                self.home.put(cell, content, kept=True)
                self.home.keep(cell)

    def submissions(self) -> tuple[Submission, ...]:
        """Return what was submitted, oldest first."""
        return tuple(
            submission_from(folder)
            for folder in sorted(self.home.batches.iterdir())
            if (folder / "submission.json").exists()
        )

    def step(self, engine: Engine | None) -> bool:
        """Look after the campaign once; return whether anything is left to wait for.

        Args:
            engine: Where tasks are submitted that are missing; none submits nothing.
        """
        if self.cancelled and not self._ending:
            # Marked by another process, such as `advisor pi cancel`.
            self.cancel()
        for submission in self.submissions():
            if not submission.closed:
                self._follow(submission, submit=engine is not None)
        self.take_in()
        if engine is not None and not self.cancelled and not self.under_way:
            waiting = [state.task for state in self.states() if state.state == "waiting"]
            if waiting:
                self._submit(engine, waiting)
        return self.under_way or bool(self.home.cells(self.home.spool))

    def ask(self) -> None:
        """Ask the engines how things are; nothing is changed."""
        for submission in self.submissions():
            if submission.handle and not submission.closed:
                engine = self._engine(submission)
                try:
                    told = engine.executor.poll(self._batch(submission, engine), submission.handle)
                except ExecutorError as error:
                    self._once(error.message, error.hint)
                    continue
                self._polled.update({status.task: status for status in told})

    def states(self) -> tuple[TaskState, ...]:
        """Return how far each task is, as far as was asked last."""
        cells = self.home.cells()
        done = {task for task in range(len(self.plan.tasks)) if self._whole(task, cells)}
        submissions = self.submissions()
        after = read_document(self.home.folder / "retry.json").get("after", "")
        return tuple(
            self._state(task, done=task in done, submissions=submissions, after=str(after))
            for task in range(len(self.plan.tasks))
        )

    def read_output(self, output: str) -> int:
        """Put the cells in a task's output where workers put theirs; return how many were new."""
        return sum(self.home.put(cell, content) for cell, content in cells_in(output))

    def take_in(self) -> int:
        """Bring what workers have spooled into the knowledge base; return how many cells were."""
        taken = 0
        waiting = list(self.home.cells(self.home.spool).items())
        for start in range(0, len(waiting), _TOGETHER):
            some = waiting[start : start + _TOGETHER]
            sound = {cell: found for cell, path in some if (found := self._read(cell, path)) is not None}
            try:
                self._sink.add(o for found in sound.values() for o in found)
            except KnowledgeBaseError as error:
                self._once(f"{error.message}; {len(waiting) - taken} cells wait in `{self.home.spool}`", error.hint)
                return taken
            for cell in sound:
                self.home.keep(cell)
            taken += len(sound)
        return taken

    def cancel(self) -> None:
        """End every task that has not ended; what was measured is kept."""
        (self.home.folder / "cancelled").touch()
        self._ending = True
        for submission in self.submissions():
            if not submission.closed:
                engine = self._engine(submission)
                batch = self._batch(submission, engine)
                if handle := submission.handle or engine.executor.find(batch):
                    write_whole(submission.folder / "handle", handle.encode())
                    if not engine.executor.sees_files:
                        for task in batch.tasks:
                            self.read_output(engine.executor.output(batch, handle, task))
                    engine.executor.cancel(batch, handle)
                else:
                    (submission.folder / "submission.json").unlink()

    @property
    def under_way(self) -> bool:
        """Whether something was submitted that has not ended."""
        return any(not s.closed for s in self.submissions())

    @property
    def cancelled(self) -> bool:
        """Whether the campaign was cancelled."""
        return (self.home.folder / "cancelled").exists()

    def resume(self, *, retry: bool) -> None:
        """Take back that the campaign was cancelled; with ``retry`` also that tasks were given up."""
        (self.home.folder / "cancelled").unlink(missing_ok=True)
        if retry:
            numbers = [s.folder.name for s in self.submissions()]
            document = {"after": max(numbers, default="")}
            write_whole(self.home.folder / "retry.json", canonical_json(document).encode())

    def _follow(self, submission: Submission, *, submit: bool) -> None:
        """Ask how a submission is; where all of it has ended, note how."""
        engine = self._engine(submission)
        batch = self._batch(submission, engine)
        try:
            if not submission.handle:
                if not submit:
                    return
                submission = self._hand_over(submission, engine)
            told = engine.executor.poll(batch, submission.handle)
            for status in told:
                self._polled[status.task] = status
                if status.final and not engine.executor.sees_files and (batch.name, status.task) not in self._heard:
                    self.read_output(engine.executor.output(batch, submission.handle, status.task))
                    self._note_node(status)
                    self._heard.add((batch.name, status.task))
        except ExecutorError as error:
            self._once(error.message, error.hint)
            return
        cells = self.home.cells()
        if not all(s.final or (s.state == "queued" and self._whole(s.task, cells)) for s in told):
            return
        if not all(status.final for status in told):
            # An engine that was interrupted may ask again for what was measured already.
            self._cancel(engine, batch, submission.handle)
        self._close(submission, engine, told)

    def _cancel(self, engine: Engine, batch: Batch, handle: str) -> None:
        try:
            engine.executor.cancel(batch, handle)
        except ExecutorError as error:
            self._once(error.message, error.hint)

    def _note_node(self, status: TaskStatus) -> None:
        """Note where a task ran, where its worker cannot."""
        nodes = {str(arm.number): status.node for arm in self.plan.arms(status.task)}
        self.home.note(status.task, {"node": status.node, "nodes": nodes})

    def _close(self, submission: Submission, engine: Engine, told: tuple[TaskStatus, ...]) -> None:
        has = self._counts(submission.tasks)
        document = {
            str(s.task): {
                "state": s.state,
                "node": s.node or str(self.home.noted(s.task).get("node", "")),
                "reason": "" if s.state == "done" else self._reason(submission, engine, s),
                "gained": has[s.task] - submission.had.get(s.task, 0),
            }
            for s in told
        }
        write_whole(submission.folder / "closed.json", canonical_json(document).encode())

    def _submit(self, engine: Engine, tasks: list[int]) -> None:
        """Note a submission, then make it."""
        number = len(self.submissions()) + 1
        folder = self.home.batches / f"{number:03}"
        document = {
            "tasks": tasks,
            "had": {str(task): count for task, count in self._counts(tasks).items()},
            "engine": engine.name,
            "options": dict(engine.options),
            "at": time.time(),
        }
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(f"`{folder}` cannot be written: {error.strerror}") from None
        write_whole(folder / "submission.json", canonical_json(document).encode())
        try:
            self._hand_over(submission_from(folder), engine)
        except RefusedError:
            # Nothing of it runs: as if it had never been asked.
            (folder / "submission.json").unlink()
            raise
        except ExecutorError as error:
            # It may run all the same: it is asked for again under its name.
            self._once(error.message, error.hint)

    def _hand_over(self, submission: Submission, engine: Engine) -> Submission:
        handle = engine.executor.submit(self._batch(submission, engine))
        write_whole(submission.folder / "handle", handle.encode())
        return submission_from(submission.folder)

    def _engine(self, submission: Submission) -> Engine:
        return open_engine(submission.engine, submission.options, self.home, self.plan)

    def _batch(self, submission: Submission, engine: Engine) -> Batch:
        return batch_of(self.home, self.plan, engine, number=submission.folder.name, tasks=submission.tasks)

    def _state(self, task: int, *, done: bool, submissions: tuple[Submission, ...], after: str) -> TaskState:
        if done:
            return TaskState(task=task, state="done", node=str(self.home.noted(task).get("node", "")))
        mine = [s for s in submissions if task in s.tasks]
        if mine and not mine[-1].closed:
            status = self._polled.get(task)
            if status is None:
                return TaskState(task=task, state="queued")
            return TaskState(task=task, state=status.state, node=status.node, reason=status.reason)
        attempts, last = 0, dict[str, Any](node="", reason="")
        for submission in mine:
            last = submission.closed[task]
            # What gave something new was no failure: it goes on where it stopped.
            fruitless = last["gained"] == 0 and last["state"] != "cancelled" and submission.folder.name > after
            attempts = attempts + 1 if fruitless else 0
        state = "cancelled" if self.cancelled else "given-up" if attempts >= self._attempts else "waiting"
        return TaskState(task=task, state=state, node=last["node"], reason=last["reason"], attempts=attempts)

    def _whole(self, task: int, cells: Iterable[Cell]) -> bool:
        """Whether all stacks of a task were measured on one kind of machine."""
        number, round_ = self.plan.tasks[task]
        wanted = {arm.number for arm in self.plan.arms(task)}
        found: dict[str, set[int]] = {}
        for cell in cells:
            if (cell.block, cell.round) == (number, round_):
                found.setdefault(cell.machine, set()).add(cell.arm)
        return not wanted or any(wanted <= arms for arms in found.values())

    def _counts(self, tasks: Iterable[int]) -> dict[int, int]:
        cells = [(cell.block, cell.round) for cell in self.home.cells()]
        return {task: cells.count(self.plan.tasks[task]) for task in tasks}

    def _read(self, cell: Cell, path: Path) -> tuple[Observation, ...] | None:
        """Return a cell's observations; one that is damaged is put aside, and will be measured again."""
        try:
            return tuple(read_observations(read_lines(path.read_bytes(), where=str(path)), where=str(path)))
        except InputError as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            self._once(f"{error.message}; it is kept as `{aside}` and measured again", "")
        except FileNotFoundError:
            pass
        return None

    def _reason(self, submission: Submission, engine: Engine, status: TaskStatus) -> str:
        """Return why a task failed: its own last words, or the engine's."""
        try:
            output = engine.executor.output(self._batch(submission, engine), submission.handle, status.task)
        except UnavailableError:
            output = ""
        lines = [line for line in map(str.strip, output.splitlines()) if line and not line.startswith(_NOISE)]
        # Our own, or those of what starts the worker, such as `srun: error: ...`.
        errors = [line.removeprefix("error: ") for line in lines if re.match(r"([\w-]+: )?error: ", line)]
        own = errors[-1] if errors else (lines[-1] if lines and status.state == "failed" else "")
        return ": ".join(part for part in (status.reason, own[-600:]) if part) or status.state

    def _once(self, message: str, hint: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._warn(message, hint)
