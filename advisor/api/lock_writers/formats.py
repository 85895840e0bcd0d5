"""Formats of lock files, chosen by file name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.pylock import is_valid_pylock_path
from packaging.utils import NormalizedName

from advisor.project.formats.pyproject import ProjectIdentity, read_identity
from knowledge.domain.errors import InputError

if TYPE_CHECKING:
    from advisor.index.client import IndexClient
    from advisor.index.pages.page import DistributionFile
    from advisor.locks.setting_value import AppliedSetting
    from advisor.resolve.candidates.index import IndexCandidates
    from advisor.resolve.candidates.problem import Candidate, ResolutionProblem

_SBOM = (".cdx.json", "bom.json")


def check_lock_path(path: Path) -> None:
    """Check, before any work is done for it, that a lock can be written.

    Raises:
        InputError: If the file name matches no format, or its directory does not exist.
    """
    supported = is_valid_pylock_path(path) or path.suffix == ".txt" or path.name == "Pipfile.lock"
    if not supported and not path.name.endswith(_SBOM):
        raise InputError(
            f"`{path.name}` is not the name of a lock that can be written",
            hint="name it `pylock.toml`, `pylock.NAME.toml`, `requirements.txt`, `Pipfile.lock` or `NAME.cdx.json`",
        )
    if not path.parent.is_dir():
        raise InputError(
            f"`{path.parent}` is not a directory", hint="name a project, or a lock file in an existing directory"
        )


def lock_text(
    path: Path,
    stack: Sequence[Candidate],
    files: Mapping[NormalizedName, DistributionFile],
    *,
    problem: ResolutionProblem,
    source: IndexCandidates,
    client: IndexClient,
    settings: Sequence[AppliedSetting] | None = None,
) -> str:
    """Return the text of a lock in the format that its file name stands for.

    Args:
        path: The file that will be written.
        stack: The packages, sorted by name.
        files: By package, the file with its size and hash filled in; none for repositories and directories.
        problem: What was resolved.
        source: The candidates.
        client: The indexes.
        settings: Run-time settings, for `pylock.toml`; none if they are not recommended at all.

    Raises:
        InputError: If the Pipfile or `pyproject.toml` of the project cannot be read.
    """
    # Each format has its own libraries, which take longer to load than most locks to write.
    target, configuration = problem.target, client.configuration
    if path.suffix == ".txt":
        from advisor.api.lock_writers.no_deps import no_deps_reasons
        from advisor.api.lock_writers.requirements import write_requirements
        from advisor.api.lock_writers.requirers import requirers_of

        requirers = requirers_of(problem, source, stack, folder=path.parent)
        return write_requirements(
            stack,
            files,
            target,
            configuration,
            requirers,
            folder=path.parent,
            no_deps_reasons=no_deps_reasons(problem, source, stack),
        )
    if path.name == "Pipfile.lock":
        from advisor.api.lock_writers.pipfile import write_pipfile_lock

        return write_pipfile_lock(stack, files, target, configuration, path.with_name("Pipfile"))
    if path.name.endswith(_SBOM):
        from advisor.api.lock_writers.sbom import write_sbom
        from advisor.resolve.explanation.reasons import dependency_graph

        graph = dependency_graph(problem, source, stack)
        indexed = [candidate for candidate in stack if candidate.direct is None]
        client.prefetch(files=[files[candidate.name] for candidate in indexed])
        licenses = {candidate.name: client.licenses(candidate.file) for candidate in indexed}
        licenses |= {name: package.metadata.licenses for name, package in problem.direct.items()}
        return write_sbom(
            stack, files, graph, licenses=licenses, project=_identity(problem, path), previous=_text_of(path)
        )
    from advisor.api.lock_writers.pylock import TargetStack, write_pylock

    variants = source.variants.metadata_of(stack) if source.variants else {}
    locked = TargetStack(
        target=target,
        stack=stack,
        files=files,
        find_links=configuration.find_links,
        variants=variants,
        settings=settings,
    )
    return write_pylock([locked], folder=path.parent)


def _identity(problem: ResolutionProblem, path: Path) -> ProjectIdentity:
    """Return the identity from the `pyproject.toml` next to the requirements or the lock, else the directory's name."""
    folders = [Path(root.path).parent for root in problem.roots if root.path and not root.constraint]
    for folder in dict.fromkeys([*folders, path.parent]):
        if (identity := read_identity(folder / "pyproject.toml")) is not None:
            return identity
    return ProjectIdentity(name=path.resolve().parent.name or "project", version=None)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
