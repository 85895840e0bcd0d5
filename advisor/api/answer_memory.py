"""Answers of `advisor advise` that are remembered until anything that they depend on changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName

from advisor.api.context import AdviceInputs
from advisor.index.memo import Memo
from advisor.locks.registry import format_to_write
from advisor.project.code.files import FILE_PATTERNS, project_files
from advisor.resolve.candidates.problem import NoStackError
from knowledge.domain.errors import UnavailableError, UnsatisfiableError


@dataclass(frozen=True, kw_only=True)
class RememberedAnswer:
    """What an advice printed and wrote.

    Attributes:
        report: The report.
        locks: Text of each lock.
        conflict: Why there is no stack; ``None`` if there is one.
    """

    report: str = ""
    locks: Mapping[Path, str] = field(default_factory=dict)
    conflict: NoStackError | None = None


@dataclass
class AnswerMemory:
    """The answer to one question, in the cache of the indexes.

    It depends on the requirements, the target, the options, the observations, the rules, the program, the present lock,
    and the index pages of every package that the search loaded. All of them are compared.

    Attributes:
        inputs: The project with its indexes and predictions.
        format: Format of the report.
        outputs: Locks to write.
    """

    inputs: AdviceInputs
    _: KW_ONLY
    format: str
    outputs: Sequence[Path]

    @property
    def _memo(self) -> Memo:
        return Memo(self.inputs.client.cache, "answers")

    @property
    def _is_possible(self) -> bool:
        """Whether an answer depends only on what is compared.

        Directories and repositories may change at any time, and locks in other formats depend on further files.
        """
        context = self.inputs.context
        return (
            context.depends_on_pages
            and all(root.direct is None for root in (*context.problem.roots, *context.problem.overrides))
            and not any(format_to_write(path).depends_on_files for path in self.outputs)
        )

    def recall(self) -> RememberedAnswer | None:
        """Return the stored answer; ``None`` if there is none, or anything that it depends on has changed."""
        document = self._memo.read(self._question) if self._is_possible else None
        client = self.inputs.client
        if document is None or not (document["final"] or client.offline):
            return None
        try:
            client.prefetch(projects=[NormalizedName(name) for name in document["pages"]])
            if client.digests(document["pages"]) != document["pages"]:
                return None
        except UnavailableError:
            # The search reports an index that cannot be read.
            return None
        if "conflict" in document:
            cause = document["conflict"]
            error = NoStackError(cause["message"], details=tuple(cause["details"]), hint=cause["hint"])
            return RememberedAnswer(conflict=error)
        locks = {Path(path): text for path, text in document["locks"].items()}
        return RememberedAnswer(report=document["report"], locks=locks)

    def store(self, answer: RememberedAnswer, packages: Iterable[NormalizedName], *, is_final: bool) -> None:
        """Store an answer that depends on the index pages of packages; a final one is also valid with a network."""
        if self._is_possible:
            locks = {str(path): text for path, text in answer.locks.items()}
            self._write({"final": is_final, "report": answer.report, "locks": locks}, packages)

    def store_conflict(self, error: UnsatisfiableError) -> None:
        """Store that no stack satisfies the requirements; builds and limits of size or time may change.

        What was not found in time, a cause or a hint, may be found the next time.
        """
        client = self.inputs.client
        is_read = not (client.failed_builds or client.offline or self.inputs.context.problem.policy.build_sdists)
        if type(error) is NoStackError and self._is_possible and is_read and error.details and error.hint:
            cause = {"message": error.message, "details": error.details, "hint": error.hint}
            self._write({"final": True, "conflict": cause}, client.read_projects)

    def _write(self, document: Mapping[str, Any], packages: Iterable[NormalizedName]) -> None:
        """Write a document with the pages that it depends on."""
        self._memo.write(self._question, {**document, "pages": self.inputs.client.digests(sorted(packages))})

    @cached_property
    def _question(self) -> list[Any]:
        """Everything that the answer depends on, except the program and the index pages."""
        inputs, context = self.inputs, self.inputs.context
        current = None if inputs.current is None else [str(inputs.current.path), inputs.current.versions]
        return [
            inputs.estimator.evidence_state,
            context.criteria,
            [context.name, context.proposal, context.problem, current, context.compared_pythons, context.uses_uv],
            _project_state(context.files.directory),
            [inputs.client.configuration, self.format, Path.cwd(), self.outputs, context.project.requires_python],
        ]


def _project_state(directory: Path) -> list[list[Any]]:
    """Return the names, sizes and times of the files that may set run-time settings."""
    return sorted([f.name, f.size, f.modified] for f in project_files(directory, FILE_PATTERNS))
