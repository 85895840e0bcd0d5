"""Reads a project: the files that the user chose, or the files of its directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor.domain.words import quoted
from advisor.project.formats.conda import ENVIRONMENTS, read_environment, read_pixi
from advisor.project.formats.notebook import read_notebook
from advisor.project.formats.pipfile import read_pipfile
from advisor.project.formats.pyproject import read_pyproject, read_settings, states_requirements
from advisor.project.formats.requirements import PINNED, is_pinned, read_requirements
from advisor.project.formats.setup_files import has_setup_files, read_setup_files
from advisor.project.interface import NOTHING, ProjectRequirements, SelectedParts, merge_requirements
from advisor.project.requirement_files import describe_other_files, find_notebook, find_requirement_file
from knowledge.domain.errors import InputError

_MOST_NAMES = 3
"""Maximum number of files that a message names."""


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
    """Read the files in the directory of a project: the first with requirements, and all settings.

    Raises:
        InputError: If there is no such file, or one cannot be read.
    """
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
        raise InputError(
            f"`{directory}` has no file with requirements: no `pyproject.toml` with a table `project`, "
            "`requirements.txt`, `Pipfile`, `setup.py` or `environment.yml`",
            hint=describe_other_files(directory),
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
    if choice := find_requirement_file(directory):
        path, messages = choice
        return [replace(read_requirements(path, directory=directory), skipped=messages)]
    if notebook := find_notebook(directory):
        part = read_notebook(notebook)
        message = f"`{notebook.name}` was read: no other file has requirements"
        return [replace(part, skipped=(message, *part.skipped))]
    return []


def _read_file(path: Path, directory: Path, selection: SelectedParts) -> ProjectRequirements:
    """Read a file that the user named: a requirements file, or any other file that can list requirements.

    Raises:
        InputError: If it cannot be read.
    """
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
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    files = f"{quoted(names[:_MOST_NAMES])}{more} {'were' if len(names) > 1 else 'was'} not read"
    return replace(part, skipped=(*part.skipped, f"{files}: {reason}"))
