"""Run-time settings of a project: in `[tool.advisor.settings]`, its code, and environment variables of its files."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.project.code.files import (
    DOCKERFILES,
    DOTENV_FILES,
    FILE_PATTERNS,
    SHELL_SCRIPTS,
    YAML_FILES,
    SourceFile,
    code_of,
    project_files,
)
from advisor.project.settings.code_settings import UnreadCodeError, may_import, may_set, settings_in_code
from advisor.project.settings.interface import ProjectSetting, Variable
from advisor.project.settings.shell_variables import variables_of_dockerfile, variables_of_dotenv, variables_of_shell
from advisor.project.settings.variable_settings import setting_variables, settings_of_variable
from advisor.project.settings.yaml_variables import variables_of_yaml
from advisor.project.text_file import decode, line_of, read_text
from knowledge.catalogue.settings import setting_error, shipped_settings
from knowledge.domain.errors import InputError, suggest

Reader = Callable[[str, Collection[str]], Iterator[Variable]]

_READERS: tuple[tuple[tuple[str, ...], Reader], ...] = (
    (DOCKERFILES, variables_of_dockerfile),
    (DOTENV_FILES, variables_of_dotenv),
    (YAML_FILES, variables_of_yaml),
    (SHELL_SCRIPTS, variables_of_shell),
)
"""Patterns of file names, each with the reader of such files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadFile:
    """A Python file with words of settings that cannot be parsed.

    Attributes:
        file: The file, relative to the project, with forward slashes.
        path: The same file, as it was opened.
        line: The line of the problem, from 1; 0 if unknown.
        reason: Why it cannot be parsed.
    """

    file: str
    path: Path
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The run-time settings of a project.

    Attributes:
        settings: The settings.
        unread: Files that may contain more of them.
    """

    settings: tuple[ProjectSetting, ...] = ()
    unread: tuple[UnreadFile, ...] = ()

    def __iter__(self) -> Iterator[ProjectSetting]:
        return iter(self.settings)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that set something, or may do so."""
        return (*(setting.path for setting in self.settings), *(file.path for file in self.unread))

    def on(self, device: str) -> tuple[ProjectSetting, ...]:
        """Return the settings, except settings of operations on other devices."""
        return tuple(setting for setting in self.settings if setting.device in ("", device))


def read_project_settings(directory: Path, settings: Mapping[str, Any]) -> ProjectSettings:
    """Return the run-time settings of a project and its table; none of its code is executed.

    Raises:
        InputError: If the table has a setting that does not exist, or an invalid value.
    """
    parts = [part for file in project_files(directory, FILE_PATTERNS) for part in _of_file(file)]
    return ProjectSettings(
        settings=(
            *_from_table(directory / "pyproject.toml", settings),
            *(part for part in parts if isinstance(part, ProjectSetting)),
        ),
        unread=tuple(part for part in parts if isinstance(part, UnreadFile)),
    )


def settings_in_file(path: Path) -> tuple[ProjectSetting, ...]:
    """Return the run-time settings of one file; nothing if it is not what its name says, or cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return ()
    file = SourceFile(name=str(path), path=str(path), size=status.st_size, modified=status.st_mtime_ns)
    return tuple(part for part in _of_file(file) if isinstance(part, ProjectSetting))


def _from_table(path: Path, settings: Mapping[str, Any]) -> Iterator[ProjectSetting]:
    for name, value in settings.items():
        if (problem := setting_error(name, value)) is not None:
            hint = "" if name in shipped_settings() else suggest(name, shipped_settings())
            raise InputError(f"`{path}`: `tool.advisor.settings.{name}`: {problem}", hint=hint)
        text = read_text(path) if path.is_file() else ""
        line = line_of(text, f"{name} =") or line_of(text, name)
        yield ProjectSetting(
            name=name, value=str(value), backends=(), file=path.name, path=path, line=line, origin="table"
        )


def _of_file(file: SourceFile) -> Iterator[ProjectSetting | UnreadFile]:
    """Yield the settings of a file, each value once; nothing if it is not what its name says."""
    try:
        content = file.read()
        listed = _of_code(content, file) if file.is_code else _of_variables(content, file)
    except (ValueError, TypeError, AttributeError, RecursionError, OSError, MemoryError):
        return
    except UnreadCodeError as error:
        line = 0 if file.is_notebook else error.line
        yield UnreadFile(file=Path(file.name).as_posix(), path=Path(file.path), line=line, reason=str(error))
        return
    first = {replace(setting, line=0): setting for setting in reversed(listed)}
    for setting in sorted(first.values(), key=lambda s: (s.line, s.name, s.value, s.backends)):
        yield replace(setting, file=Path(file.name).as_posix(), path=Path(file.path))


def _of_code(content: bytes, file: SourceFile) -> list[ProjectSetting]:
    if file.is_notebook:
        content = code_of(content, is_notebook=True).encode() if may_import(content) else b""
    settings = settings_in_code(content.decode("utf-8", "replace")) if may_set(content) else ()
    # A line of a cell is not a line of the notebook file.
    return [replace(setting, line=0 if file.is_notebook else setting.line) for setting in settings]


def _of_variables(content: bytes, file: SourceFile) -> list[ProjectSetting]:
    names = [name for name in setting_variables() if name.encode() in content]
    name = Path(file.path).name
    reader = next(reader for patterns, reader in _READERS if any(fnmatch.fnmatchcase(name, p) for p in patterns))
    variables = reader(decode(content).replace("\r\n", "\n"), names) if names else ()
    return [
        replace(setting, line=variable.line, is_conditional=variable.is_conditional, is_default=variable.is_default)
        for variable in variables
        if variable.text is not None
        for setting in settings_of_variable(variable.name, variable.text)
    ]
