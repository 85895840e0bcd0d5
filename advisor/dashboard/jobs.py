"""Advice that is computed in the background: questions, their workers, and the answers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import TypeAdapter

from advisor.api.options import ProjectOptions
from advisor.dashboard.access import DeniedError
from advisor.dashboard.advice_worker import MOST_SECONDS
from advisor.dashboard.upload import Upload

logger = logging.getLogger(__name__)
_MOST_RUNNING, _MOST_WAITING, _MOST_OF_ONE, _MOST_ANSWERS = 2, 8, 4, 64
"""Workers at a time, questions that wait for one, unanswered questions of one person, and questions that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an advice is asked for.

    Attributes:
        target: A target of the project; empty if it has none, or another machine is chosen.
        hardware: Hardware profile; empty for the project's, or this machine.
        python: Version of the interpreter; empty for the project's.
        workload: Name of the workload; empty for none.
        objective: Name of the objective; empty for the default.
        without: Constraints that are left out.
    """

    target: str = ""
    hardware: str = ""
    python: str = ""
    workload: str = ""
    objective: str = ""
    without: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Job:
    """A question with its answer.

    Attributes:
        identity: Random identifier in addresses.
        user: Who asked.
        question: The question.
        upload: Requirements that the person sent; ``None`` for the dashboard's own project.
        started: When it was asked, in seconds of a monotonic clock.
        answer: The answer; empty until it is ready.
        answered_at: When it was ready, ISO 8601.
    """

    user: str
    question: Question
    upload: Upload | None
    identity: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    started: float = field(default_factory=time.monotonic)
    answer: dict[str, Any] = field(default_factory=dict)
    answered_at: str = ""

    @property
    def seconds(self) -> int:
        """Whole seconds since it was asked."""
        return int(time.monotonic() - self.started)


class Jobs:
    """The questions of a dashboard. Thread-safe."""

    def __init__(self, *, project: Path | None, knowledge: str | None, options: ProjectOptions | None = None) -> None:
        """Create the list without questions.

        Args:
            project: Directory of the dashboard's own project.
            options: Options that the dashboard was started with.
            knowledge: Address of the knowledge base; ``None`` for the user's own.
        """
        self._project, self._knowledge = project, knowledge
        self._options = TypeAdapter(ProjectOptions).dump_python(options or ProjectOptions(), mode="json")
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._free = threading.Semaphore(_MOST_RUNNING)

    def ask(self, question: Question, upload: Upload | None, user: str, *, retry: bool = False) -> Job:
        """Begin to answer a question; the same question about the same requirements is answered once, until `forget`.

        Args:
            question: The question.
            upload: Requirements that the person sent; ``None`` for the dashboard's own project.
            user: Who asks.
            retry: Whether a question that had no answer is answered again.

        Raises:
            DeniedError: If too many questions wait.
        """
        with self._lock:
            for job in tuple(self._jobs.values()):
                if (job.question, job.upload, job.user) == (question, upload, user):
                    if not (retry and "error" in job.answer):
                        return job
                    del self._jobs[job.identity]
            waiting = [job.user for job in self._jobs.values() if not job.answer]
            if len(waiting) >= _MOST_RUNNING + _MOST_WAITING or waiting.count(user) >= _MOST_OF_ONE:
                raise DeniedError(429, "too many questions wait", "try again in a minute", {"Retry-After": "60"})
            while len(self._jobs) >= _MOST_ANSWERS:
                oldest = next(identity for identity, job in self._jobs.items() if job.answer)
                del self._jobs[oldest]
            job = Job(user=user, question=question, upload=upload)
            self._jobs[job.identity] = job
        threading.Thread(target=self._answer, args=(job,), name="advice", daemon=True).start()
        return job

    def find(self, identity: str, user: str) -> Job:
        """Return a question that a person asked.

        Raises:
            DeniedError: If there is none.
        """
        with self._lock:
            job = self._jobs.get(identity)
        if job is None or job.user != user:
            raise DeniedError(404, "there is no such question", "ask again: answers are stored for a limited time")
        return job

    def forget(self, job: Job) -> None:
        """Delete a question that is answered, such as one whose project may have changed.

        One that is not still takes a worker, so that it counts as waiting.
        """
        with self._lock:
            if job.answer:
                self._jobs.pop(job.identity, None)

    def _answer(self, job: Job) -> None:
        try:
            with self._free, tempfile.TemporaryDirectory(prefix="advisor-") as folder:
                directory = self._project
                if job.upload is not None:
                    directory = Path(folder)
                    _write_project(directory, job.upload)
                document = {
                    **asdict(job.question),
                    "directory": str(directory),
                    "knowledge": self._knowledge,
                    "options": self._options,
                    "is_upload": job.upload is not None,
                }
                for answer in _answers(document):
                    job.answered_at = datetime.now(UTC).isoformat(timespec="seconds")
                    job.answer = answer
        except OSError as error:
            logger.warning("a question has no answer: %s", error)
            job.answer = {**_NO_ANSWER, "error": "the search could not be started"}


def _write_project(directory: Path, upload: Upload) -> None:
    """Write an upload as a project that only has requirements."""
    if not upload.python:
        text = "\n".join([*upload.requirements, ""])
        (directory / "requirements.txt").write_text(text, encoding="utf-8")
        return
    project = {
        "name": "upload",
        "version": "0",
        "requires-python": upload.python,
        "dependencies": list(upload.requirements),
    }
    (directory / "pyproject.toml").write_text(tomli_w.dumps({"project": project}), encoding="utf-8")


def _answers(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run a worker, and yield each answer that it writes; the last one is complete."""
    answer: dict[str, Any] = {}
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *_WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        timer = threading.Timer(MOST_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with process.stdin, contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(question).encode())
            for line in process.stdout:
                answer = json.loads(line)
                yield answer
        finally:
            process.wait()
            timer.cancel()
        errors.seek(0)
        output = errors.read().decode(errors="replace")
    if not answer:
        # The error output can contain paths, and addresses of databases.
        logger.warning("a search ended without an answer: %s", output[-2000:])
        is_late = time.monotonic() - started >= MOST_SECONDS
        ending = f"took longer than {MOST_SECONDS:.0f} s" if is_late else "ended without an answer"
        yield {**_NO_ANSWER, "error": f"the search {ending}"}
    elif not answer["is_complete"]:
        # The advice stays; only the prices are missing.
        yield {**answer, "is_complete": True}


_WORKER = ("-P", "-m", "advisor.dashboard.advice_worker")
"""Without `-P`, Python would import modules of the working directory, which may be those of a project."""
_NO_ANSWER: dict[str, Any] = {
    "details": [],
    "hint": "run `advisor advise` in a terminal, where the limits can be chosen",
    "is_complete": True,
}
