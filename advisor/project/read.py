"""Reads a project: the files that the user chose, or the files of its directory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from advisor.domain.words import quoted
from advisor.project.formats.conda import ENVIRONMENTS, read_environment, read_pixi
from advisor.project.formats.notebook import installs_packages, read_notebook
from advisor.project.formats.pipfile import read_pipfile
from advisor.project.formats.pyproject import read_pyproject, read_settings, states_requirements
from advisor.project.formats.requirements import PINNED, is_pinned, read_requirements
from advisor.project.formats.setup_files import has_setup_files, read_setup_files
from advisor.project.interface import (
    NOTHING,
    NoRequirementsError,
    ProjectRequirements,
    SelectedParts,
    merge_requirements,
)
from knowledge.domain.errors import InputError

_MOST_NAMES = 3
"""Maximum number of files that a message names."""
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
_MAIN = ("requirements", "base", "main", "core", "common", "default", "install", "prod", "production", "runtime")
"""Names of the file of a directory `requirements` that lists what the program needs, in the order of preference."""


def read_project(
    directory: Path,
    *,
    requirements: Sequence[Path] = (),
    constraints: Sequence[Path] = (),
    overrides: Sequence[Path] = (),
    selection: SelectedParts = NOTHING,
) -> ProjectRequirements:
    """Read the requirements of a project.

    Args:
        directory: The directory of the project.
        requirements: Requirements files; if there are any, only ``[tool.advisor]`` is read in addition.
        constraints: Constraints files.
        overrides: Requirements files whose lines replace every requirement on the same packages.
        selection: What the user selected.

    Raises:
        InputError: If the project has no requirements file, or a file cannot be read.
        BuildError: If a build fails.
    """
    if not directory.is_dir():
        raise InputError(f"`{directory}` is not a directory")
    if requirements and (selection.extras or selection.groups):
        raise InputError("`--extra` and `--group` select parts of `pyproject.toml`, which `--requirements` replaces")
    pyproject = directory / "pyproject.toml"
    parts = [_read_file(path, directory, selection) for path in requirements]
    parts = parts or _own_parts(directory, selection)
    if requirements and pyproject.is_file():
        parts[0] = replace(parts[0], settings=read_settings(pyproject))
    parts += [read_requirements(path, constraint=True, directory=directory) for path in constraints]
    overriding = tuple(root for path in overrides for root in read_requirements(path, directory=directory).roots)
    skipped = tuple(reason for part in parts for reason in part.skipped)
    project = merge_requirements(parts)
    return replace(project, overrides=(*project.overrides, *overriding), skipped=skipped)


def _own_parts(directory: Path, selection: SelectedParts) -> list[ProjectRequirements]:
    """Read the files in the directory of a project: the first with requirements, and all settings."""
    pyproject, pipfile = directory / "pyproject.toml", directory / "Pipfile"
    parts: list[ProjectRequirements] = []
    if pyproject.is_file():
        parts.append(read_pyproject(pyproject, selection))
    if not _have_roots(parts):
        parts += _requirements_parts(directory)
    elif others := [path.name for path in sorted(directory.glob("requirements*.txt")) if not _is_lock(path)]:
        parts[-1] = _with_message(
            parts[-1], others, "another file lists the requirements; use it with `--requirements`"
        )
    if pipfile.is_file() and not _have_roots(parts):
        parts.append(read_pipfile(pipfile, groups=() if pyproject.is_file() else selection.groups))
    elif pipfile.is_file():
        parts[-1] = _with_message(parts[-1], ["Pipfile"], "another file lists the requirements")
    if not _have_roots(parts):
        parts += _other_parts(directory, selection)
    configures_only = pyproject.is_file() and not states_requirements(pyproject)
    if not (parts[1:] if configures_only else parts):
        raise NoRequirementsError(
            f"`{directory}` has no file with requirements: no `pyproject.toml` with a table `project`, "
            "`requirements.txt`, `Pipfile`, `setup.py` or `environment.yml`",
            hint=_describe_other_files(directory),
        )
    files = {Path(file).name for part in parts for file in part.files}
    unread = [name for name in (*ENVIRONMENTS, "pixi.toml") if (directory / name).is_file() and name not in files]
    parts[-1] = _with_message(parts[-1], unread, "another file lists the requirements")
    return parts


def _requirements_parts(directory: Path) -> list[ProjectRequirements]:
    """Read `requirements.in`, else `requirements.txt`; name the other files of the kind."""
    source_file, pinned = directory / "requirements.in", directory / PINNED
    path = next((path for path in (source_file, pinned) if path.is_file()), None)
    if path is None:
        return []
    part = read_requirements(path, directory=directory)
    if part.roots and path == source_file and pinned.is_file() and not is_pinned(pinned):
        part = _with_message(part, [PINNED], "another file lists the requirements; use it with `--requirements`")
    others = [other.name for other in sorted(directory.glob("requirements*.txt")) if other.name != PINNED]
    return [_with_message(part, others, "only `requirements.txt` is read by default; use it with `--requirements`")]


def _other_parts(directory: Path, selection: SelectedParts) -> list[ProjectRequirements]:
    """Read the first of the less common files with requirements."""
    if has_setup_files(directory):
        return [read_setup_files(directory, selection)]
    if environment := next((directory / name for name in ENVIRONMENTS if (directory / name).is_file()), None):
        return [read_environment(environment)]
    if (pixi := directory / "pixi.toml").is_file():
        return [read_pixi(pixi, groups=selection.groups)]
    if choice := _find_requirement_file(directory):
        path, messages = choice
        return [replace(read_requirements(path, directory=directory), skipped=messages)]
    if notebook := _find_notebook(directory):
        part = read_notebook(notebook)
        message = f"`{notebook.name}` was read: no other file has requirements"
        return [replace(part, skipped=(message, *part.skipped))]
    return []


def _read_file(path: Path, directory: Path, selection: SelectedParts) -> ProjectRequirements:
    """Read a file that the user named: a requirements file, or any other file that can list requirements."""
    if not path.is_file():
        reason = "it is not a file" if path.exists() else "there is no such file"
        raise InputError(f"`{path}` cannot be read: {reason}")
    if path.suffix == ".ipynb":
        return read_notebook(path)
    if path.suffix in (".yml", ".yaml"):
        return read_environment(path)
    if path.name == "pyproject.toml":
        return replace(read_pyproject(path, selection), settings={})
    if path.name in ("setup.py", "setup.cfg"):
        return read_setup_files(path.parent, selection)
    if path.name == "Pipfile":
        return read_pipfile(path)
    return read_pixi(path) if path.name == "pixi.toml" else read_requirements(path, directory=directory)


def _have_roots(parts: Sequence[ProjectRequirements]) -> bool:
    return any(part.roots for part in parts)


def _is_lock(path: Path) -> bool:
    """Whether a requirements file is the lock of requirements in another file."""
    return path.name == PINNED and is_pinned(path)


def _with_message(part: ProjectRequirements, names: Sequence[str], reason: str) -> ProjectRequirements:
    """Return what was read, with a message about files that were not."""
    if not names:
        return part
    files = f"{quoted(names, _MOST_NAMES)} {'were' if len(names) > 1 else 'was'} not read"
    return replace(part, skipped=(*part.skipped, f"{files}: {reason}"))


def _find_requirement_file(directory: Path) -> tuple[Path, tuple[str, ...]] | None:
    """Return the requirements file of a project that has none with a usual name, and messages about the others."""
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


def _find_notebook(directory: Path) -> Path | None:
    """Return the only notebook of a directory that installs packages; `None` if there is none."""
    notebooks = [path for path in sorted(directory.glob("*.ipynb")) if installs_packages(path)]
    if len(notebooks) > 1:
        raise InputError(
            f"`{directory}` has several notebooks that install packages: {quoted([path.name for path in notebooks])}",
            hint=f"name one or more: `--requirements {notebooks[0].name}`",
        )
    return notebooks[0] if notebooks else None


def _describe_other_files(directory: Path) -> str:
    """Return a hint about what a project without a usual file has: files in other folders, lines of a `Dockerfile`."""
    names = _files_elsewhere(directory)
    hints = ["pass a file with `--requirements FILE`"]
    if names:
        hints.append(f"there {'are' if len(names) > 1 else 'is'} {quoted(names, _MOST_NAMES)}")
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
