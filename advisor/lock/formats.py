"""Which lock a file name stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.pylock import is_valid_pylock_path
from packaging.utils import NormalizedName

from advisor.index.configuration import IndexConfiguration
from advisor.index.page import DistributionFile
from advisor.lock.pipfile import write_pipfile_lock
from advisor.lock.pylock import write_pylock
from advisor.lock.requirements import write_requirements
from advisor.lock.sbom import write_sbom
from advisor.resolve.candidates import IndexCandidates
from advisor.resolve.explain import dependency_graph
from advisor.resolve.problem import Candidate, ResolutionProblem
from knowledge.domain.errors import InputError

_SBOM = (".cdx.json", "bom.json")


def check_lock_path(path: Path) -> None:
    """Refuse a lock that cannot be written, before any work is done for it.

    Raises:
        InputError: If the name stands for no lock, or its folder does not exist.
    """
    known = is_valid_pylock_path(path) or path.suffix == ".txt" or path.name == "Pipfile.lock"
    if not known and not path.name.endswith(_SBOM):
        raise InputError(
            f"`{path.name}` is not the name of a lock that can be written",
            hint="name it `pylock.toml`, `pylock.NAME.toml`, `requirements.txt`, `Pipfile.lock` or `NAME.cdx.json`",
        )
    if not path.parent.is_dir():
        raise InputError(
            f"`{path.parent}` is not a directory", hint="name a project, or a lock file in an existing folder"
        )


def lock_text(
    path: Path,
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    *,
    problem: ResolutionProblem,
    source: IndexCandidates,
    configuration: IndexConfiguration,
) -> str:
    """Return the text of the lock that a file name stands for.

    Args:
        path: The file that will be written.
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in.
        problem: What was resolved.
        source: The candidates.
        configuration: The indexes.

    Raises:
        InputError: If something beside the file that the lock must name cannot be read.
    """
    target = problem.target
    if path.suffix == ".txt":
        return write_requirements(stack, files, target, configuration)
    if path.name == "Pipfile.lock":
        return write_pipfile_lock(stack, files, target, configuration, path.with_name("Pipfile"))
    if path.name.endswith(_SBOM):
        graph = dependency_graph(problem, source, stack)
        return write_sbom(stack, files, graph, project=path.resolve().parent.name or "project")
    return write_pylock(stack, files, target)
