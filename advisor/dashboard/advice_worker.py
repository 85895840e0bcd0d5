"""Computes an advice in a process of its own, with limits: reads a question as JSON, writes answers as lines of JSON.

    python -m advisor.dashboard.advice_worker < question.json > answers.jsonl

The first line is the advice; the second one is the same with the price of each constraint, which takes longer.
The answer is that of `advisor advise --dry-run` for the same project and options, because the same functions make it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from advisor.api.measurements.measured_program import program_text
from advisor.api.options import (
    ProjectFiles,
    ProjectOptions,
)
from advisor.api.session import open_session
from advisor.report.advice.formats import ADVICE_FORMATS
from advisor.report.advice.formats.html import content, headline
from advisor.report.advice.reasons import price_text
from advisor.report.formats import Presentation
from advisor.resolve.candidates.problem import ResolutionProblem
from advisor.resolve.explanation.conflict import relax_requirement
from advisor.resolve.explanation.prices import Price, price_between, with_own_baseline
from knowledge.domain.errors import AdvisorError
from knowledge.store.base import KnowledgeBaseError

MOST_SECONDS = 300.0
"""Time after which a worker is ended."""
_MOST_MEMORY_BYTES = 8 * 2**30
_MOST_FILE_BYTES = 2**30
LOCK = "pylock.toml"
"""Name, and so the format, of the lock."""


def options_of(question: dict[str, Any]) -> ProjectOptions:
    """Return the options of a question: those that the dashboard was started with, and what the person chose."""
    base = TypeAdapter(ProjectOptions).validate_python(question.get("options", {}))
    directory = Path(question["directory"])
    machine = {name: question[name] for name in ("hardware", "python") if question[name]}
    target = replace(base.target, **machine, names=()) if machine else base.target
    if question["target"]:
        target = replace(target, names=(question["target"],))
    names = ("workload", "objective", "knowledge")
    resolution = replace(base.resolution, **{name: question[name] for name in names if question[name]})
    files = replace(base.files, directory=directory)
    if question.get("is_upload", True):
        # Nothing that an upload names is built, and no file of the dashboard's own project applies to it.
        files, resolution = (
            ProjectFiles(directory=directory),
            replace(resolution, build_project=False, build_sdists=False),
        )
        target = replace(target, names=())
    return replace(base, files=files, target=target, resolution=resolution)


def relaxed(problem: ResolutionProblem, without: set[str]) -> ResolutionProblem:
    """Return a problem without the constraints whose text is named."""
    for root in problem.roots:
        if str(root.requirement) in without:
            problem = relax_requirement(problem, root) or problem
    return problem


def answers_to(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the answer to a question, at first without prices: reports, the lock, and the constraints."""
    with open_session(options_of(question)) as session:
        session.reads_sizes = True
        request = session.select().request
        constraints = [str(r.requirement) for r in request.problem.roots if relax_requirement(request.problem, r)]
        before = session.solved() if question["without"] else None
        if before is not None:
            problem = relaxed(request.problem, set(question["without"]))
            session.replace_request(with_own_baseline(request.with_problem(problem)))
        result = session.result()

        def program() -> str:
            return program_text(session.context)

        answer = {
            "title": headline(result),
            "html": content(result, Presentation(program=program)),
            "text": ADVICE_FORMATS.render("text", result),
            "document": json.loads(ADVICE_FORMATS.render("json", result)),
            "lock": session.lock_texts([Path(LOCK)])[Path(LOCK)],
            "constraints": constraints,
            "prices": [],
            "gain": _price_record(price_between("", "", before, session.solved())) if before is not None else None,
            "is_complete": not constraints,
        }
        yield answer
        if constraints:
            prices = session.prices(other_pythons=())
            html = content(result, Presentation(prices=lambda: prices, program=program))
            yield {**answer, "html": html, "prices": [_price_record(price) for price in prices], "is_complete": True}


def _price_record(price: Price) -> dict[str, Any]:
    return {
        "constraint": price.constraint,
        "origin": price.origin,
        "text": price_text(price),
        "changes": [list(change) for change in price.changes],
    }


def main() -> None:
    """Read a question from the standard input, and write the answer."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(MOST_SECONDS), int(MOST_SECONDS) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    question = json.load(sys.stdin)
    try:
        for answer in answers_to(question):
            _write(answer)
    except KnowledgeBaseError:
        # The message of a database can contain names of hosts and users.
        _write_error("the knowledge base is not available", hint="try again later")
    except AdvisorError as error:
        _write_error(error.message, details=getattr(error, "details", ()), hint=error.hint)


def _end_with_parent(parent: int) -> None:
    """End this process with its children as soon as the dashboard has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


def _write_error(message: str, *, details: Sequence[str] = (), hint: str) -> None:
    _write({"error": message, "details": list(details), "hint": hint, "is_complete": True})


def _write(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
