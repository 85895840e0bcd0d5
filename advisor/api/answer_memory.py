"""Answers of `advisor advise` that are remembered until anything that they depend on changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.pylock import is_valid_pylock_path
from packaging.utils import NormalizedName

from knowledge.domain.errors import UnavailableError, UnsatisfiableError
from knowledge.domain.identity import canonical_json, content_hash

if TYPE_CHECKING:
    from advisor.api.session import AdviceSession
    from advisor.resolve.baseline import NoStackError

_BUCKET = "answers"
_FORMAT = 2
"""Version of the stored answers; raise it when their meaning changes."""
_PACKAGES = ("advisor", "knowledge", "pi_runners")


@dataclass(frozen=True, kw_only=True)
class RememberedAnswer:
    """What an advice printed and wrote.

    Attributes:
        report: The report.
        locks: Text of each lock.
        conflict: Why there is no stack; none if there is one.
    """

    report: str = ""
    locks: Mapping[Path, str] = field(default_factory=dict)
    conflict: NoStackError | None = None


class AnswerMemory:
    """The answer to one question, in the cache of the indexes.

    It depends on the requirements, the target, the options, the observations, the rules, the program, the present lock,
    and the index pages of every package that the search loaded. All of them are compared.
    """

    def __init__(self, session: AdviceSession, *, format: str, outputs: Sequence[Path]) -> None:
        """Describe the question.

        Args:
            session: The project.
            format: Format of the report.
            outputs: Locks to write.
        """
        self._session = session
        self._format = format
        self._outputs = outputs

    @property
    def _is_possible(self) -> bool:
        """Whether an answer depends only on what is compared.

        Directories and repositories may change at any time, vulnerability records and descriptions of variants are not
        on index pages, and locks in other formats depend on further files.
        """
        context = self._session.context
        return (
            context.options.objective != "security"
            and not context.problem.policy.variants
            and all(root.direct is None for root in (*context.problem.roots, *context.problem.overrides))
            and all(is_valid_pylock_path(path) or path.suffix == ".txt" for path in self._outputs)
        )

    def recall(self) -> RememberedAnswer | None:
        """Return the stored answer; none if there is none, or anything that it depends on has changed."""
        stored = self._session.client.cache.read(_BUCKET, self._key) if self._is_possible else None
        if stored is None:
            return None
        client = self._session.client
        try:
            document = json.loads(stored)
            if not (document["final"] or client.offline):
                return None
            pages = document["pages"]
            client.prefetch(projects=[NormalizedName(name) for name in pages])
            if any(client.digest(NormalizedName(name)) != digest for name, digest in pages.items()):
                return None
            if "conflict" in document:
                from advisor.resolve.baseline import NoStackError

                cause = document["conflict"]
                error = NoStackError(cause["message"], details=tuple(cause["details"]), hint=cause["hint"])
                return RememberedAnswer(conflict=error)
            locks = {Path(path): text for path, text in document["locks"].items()}
            return RememberedAnswer(report=document["report"], locks=locks)
        except (UnavailableError, ValueError, KeyError, TypeError, AttributeError):
            # An index that cannot be read is reported by the search; the entry may be damaged.
            return None

    def store(self, answer: RememberedAnswer) -> None:
        """Store an answer, unless it was cut short; one that lacks sizes or an index is valid only without network."""
        session = self._session
        # A part of the indexes or of the sizes may be available in the next run.
        is_complete = session.sizes().final and not session.client.failed_builds
        optimum = session.recommend().optimum
        if not self._is_possible or optimum.stopped or optimum.not_compared:
            return
        locks = {str(path): text for path, text in answer.locks.items()}
        self._write({"final": is_complete, "report": answer.report, "locks": locks}, session.loaded_packages)

    def store_conflict(self, error: UnsatisfiableError) -> None:
        """Store that no stack satisfies the requirements; builds and limits of size or time may change.

        What was not found in time, a cause or a hint, may be found the next time.
        """
        from advisor.resolve.baseline import NoStackError

        client = self._session.client
        is_read = not (client.failed_builds or client.offline or self._session.context.problem.policy.build_sdists)
        if type(error) is NoStackError and self._is_possible and is_read and error.details and error.hint:
            cause = {"message": error.message, "details": error.details, "hint": error.hint}
            self._write({"final": True, "conflict": cause}, client.read_projects)

    def _write(self, document: Mapping[str, Any], packages: Iterable[NormalizedName]) -> None:
        """Write a document with the pages that it depends on."""
        client = self._session.client
        pages = {name: client.digest(name) for name in sorted(packages)}
        client.cache.write(_BUCKET, self._key, json.dumps({**document, "pages": pages}).encode())

    @cached_property
    def _key(self) -> str:
        session, context = self._session, self._session.context
        current = None if session.current is None else [str(session.current.path), session.current.versions]
        options = replace(context.options, time_limit=0.0, workers=1, knowledge=None)
        day = str(datetime.now(UTC).date()) if options.objective == "stable" else None
        question = [
            [_program_digest(), session.estimator.evidence_state],
            [context.name, options, context.workload, context.proposal, context.problem, day, current],
            [context.allowed, context.compared_pythons, context.uses_uv],
            [_project_state(context.files.directory)],
            [session.client.configuration, self._format, Path.cwd(), self._outputs, context.project.requires_python],
        ]
        return f"{_FORMAT} {content_hash(_plain(question))}"


def _plain(value: Any) -> Any:
    """Return a value as JSON-ready data that is equal in every process.

    Functions are a part of the program, whose digest is compared.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        return None
    if is_dataclass(value):
        # Private fields are computed from the others.
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((_plain(item) for item in value), key=canonical_json)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _project_state(directory: Path) -> list[list[Any]]:
    """Return the names, sizes and times of the files that may set run-time settings."""
    from advisor.project.code.files import FILE_PATTERNS, project_files

    return sorted([f.name, f.size, f.modified] for f in project_files(directory, FILE_PATTERNS))


def _program_digest() -> str:
    """Return a hash of the sizes and times of the program's files, which change when it is installed or edited."""
    root = Path(__file__).parents[2]
    return content_hash([[name, *state] for package in _PACKAGES for name, *state in _files(str(root / package))])


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith((".py", ".yaml", ".toml", ".json", ".j2", ".html")):
                yield entry.path, entry.stat().st_size, entry.stat().st_mtime_ns
