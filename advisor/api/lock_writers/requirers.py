"""Which files and packages require each package of a stack, as the `# via` comments of pip-compile name them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import NormalizedName

from advisor.domain.requirement import RootRequirement
from advisor.project.formats.pyproject import read_identity
from advisor.resolve.candidates.problem import Candidate, CandidateSource, ResolutionProblem
from advisor.resolve.explanation.stack_requirements import PROJECT, requirements_within


def requirers_of(
    problem: ResolutionProblem, source: CandidateSource, stack: Sequence[Candidate], *, folder: Path
) -> dict[NormalizedName, tuple[str, ...]]:
    """Return, for each package of a stack, what requires or constrains it, sorted.

    Args:
        problem: What was resolved.
        source: The candidates.
        stack: The packages.
        folder: Directory of the lock; files are named relative to it.

    Returns:
        By package: `-r FILE`, `-c FILE` and `--override FILE` for requirements files, `NAME (pyproject.toml)` for a
        project, and the names of packages.

    Raises:
        InputError: If a `pyproject.toml` with requirements can no longer be read.
    """
    requirers: dict[NormalizedName, set[str]] = {candidate.name: set() for candidate in stack}
    for package, required in requirements_within(problem, source, stack).items():
        for name in required:
            if package not in (PROJECT, name) and name in requirers:
                requirers[name].add(package)
    for option, roots in (("", problem.roots), ("--override", problem.overrides)):
        for root in roots:
            if root.name in requirers and not root.is_added and problem.applies(root.requirement):
                requirers[root.name].add(_place(root, option or ("-c" if root.constraint else "-r"), folder))
    return {name: tuple(sorted(places)) for name, places in requirers.items()}


def _place(root: RootRequirement, option: str, folder: Path) -> str:
    """Return where a requirement of the user was read, as one line."""
    path = Path(root.path)
    if not root.path:
        text = root.origin
    elif path.name == "pyproject.toml":
        identity = read_identity(path)
        text = f"{identity.name} ({path.name})" if identity else path.name
    elif path.suffix in (".txt", ".in"):
        text = f"{option} {Path(os.path.relpath(path, folder)).as_posix()}"
    else:
        text = path.name
    # A line break in the name of a file would begin a line of the lock.
    return "".join(character if character.isprintable() else "?" for character in text)
