"""Finds the requirements file of a project that has none with a usual name."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

from advisor.domain.words import quoted
from advisor.project.formats.notebook import installs_packages
from knowledge.domain.errors import InputError

_PATTERNS = ("requirements*.txt", "*requirements.txt", "requirements/*.txt", "requirements/*.in", "*freeze*.txt")
_ELSEWHERE = (
    "pyproject.toml",
    "requirements*.txt",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "environment*.y*ml",
    "pixi.toml",
)
"""Files that a user may have meant, in other folders or for one machine."""
_DEEPEST = 4
_MOST_FOLDERS = 1000
"""Limits of the search for them."""
_DOCKER = re.compile(r"\bpip3?\s+install\s+(.+?)(?:\s*(?:&&|\|\||[;|\\]).*)?$")
_MOST_NAMES = 3
_MAIN = ("requirements", "base", "main", "core", "common", "default", "install", "prod", "production", "runtime")
"""Names of the file of a directory `requirements` that lists what the program needs, in the order of preference."""


def find_requirement_file(directory: Path) -> tuple[Path, tuple[str, ...]] | None:
    """Return the requirements file of a project, and messages about the files that are not read; `None` without a file.

    Args:
        directory: The directory of the project.

    Raises:
        InputError: If there are several files, and no name says which one the program needs.
    """
    files = [path for pattern in _PATTERNS for path in sorted(directory.glob(pattern)) if path.is_file()]
    files = list(dict.fromkeys(files))
    if not files:
        return None
    by_name = {path.stem: path for path in reversed(files)}
    main = next((by_name[name] for name in _MAIN if name in by_name), files[0] if len(files) == 1 else None)
    names = [path.relative_to(directory).as_posix() for path in files]
    if main is None:
        raise InputError(
            f"`{directory}` has several requirements files, and none is the usual one: {quoted(names)}",
            hint=f"name one or more: `--requirements {names[0]}`",
        )
    others = [name for name, path in zip(names, files, strict=True) if path != main]
    name = main.relative_to(directory).as_posix()
    messages = [f"`{name}` was read: the project has no `pyproject.toml` or `requirements.txt` with requirements"]
    if others:
        messages.append(f"{quoted(others)} {'were' if len(others) > 1 else 'was'} not read: use `--requirements FILE`")
    return main, tuple(messages)


def find_notebook(directory: Path) -> Path | None:
    """Return the only notebook of a directory that installs packages; `None` if there is none.

    Raises:
        InputError: If there are several.
    """
    notebooks = [path for path in sorted(directory.glob("*.ipynb")) if installs_packages(path)]
    if len(notebooks) > 1:
        raise InputError(
            f"`{directory}` has several notebooks that install packages: {quoted([path.name for path in notebooks])}",
            hint=f"name one or more: `--requirements {notebooks[0].name}`",
        )
    return notebooks[0] if notebooks else None


def describe_other_files(directory: Path) -> str:
    """Return a hint about what a project without a usual file has: files in other folders, lines of a `Dockerfile`."""
    names = _files_elsewhere(directory)
    hints = ["pass a file with `--requirements FILE`"]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        hints.append(f"there {'are' if len(names) > 1 else 'is'} {quoted(names[:_MOST_NAMES])}{more}")
    if installed := _docker_line(directory / "Dockerfile"):
        hints.append(installed)
    return "; ".join(hints)


def _files_elsewhere(directory: Path) -> list[str]:
    """Return the files in a project and its folders whose names are usual for requirements, the highest first."""
    names: list[tuple[int, str]] = []
    for number, (folder, folders, files) in enumerate(os.walk(directory)):
        below = Path(folder).relative_to(directory)
        hidden = {name for name in folders if name.startswith(".") or (Path(folder) / name / "pyvenv.cfg").exists()}
        folders[:] = sorted(set(folders) - hidden - {"node_modules"}) if len(below.parts) < _DEEPEST else []
        names += [
            (len(below.parts), (below / name).as_posix())
            for name in files
            if any(fnmatch(name, pattern) for pattern in _ELSEWHERE) and (below.parts or name.startswith("environment"))
        ]
        if number == _MOST_FOLDERS:
            break
    return [name for _, name in sorted(names)]


def _docker_line(path: Path) -> str:
    """Describe the first line of a `Dockerfile` that installs packages; empty if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for number, line in enumerate(lines, 1):
        if match := _DOCKER.search(line):
            return f"`{path.name}`, line {number}, installs `{match[1].strip()}`: write it to `requirements.txt`"
    return ""
