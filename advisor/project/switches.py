"""Run-time settings of a project: in `[tool.advisor.settings]`, and environment variables set in its source files."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.project.interface import line_of
from advisor.project.source_files import source_files
from knowledge.domain.errors import InputError
from knowledge.domain.suggestions import suggest

_VARIABLES: Mapping[str, tuple[str, Mapping[str, str] | None, str]] = {
    # Documented in a message of TensorFlow: https://discuss.ai.google.dev/t/tf-enable-onednn-opts-0-issue/22171
    "TF_ENABLE_ONEDNN_OPTS": ("onednn", {"0": "off", "1": "on"}, "tensorflow"),
    # https://docs.pytorch.org/docs/stable/threading_environment_variables.html; TensorFlow's own builds ignore it:
    # https://intel.com/content/www/us/en/developer/articles/guide/guide-to-tensorflow-runtime-optimizations-for-cpu.html
    "OMP_NUM_THREADS": ("threads", None, "torch"),
    # https://github.com/fujitsu/OpenBLAS/blob/fj_develop/USAGE.md: a copy of OpenBLAS's documentation
    "OPENBLAS_NUM_THREADS": ("threads", None, "numpy"),
}
"""By variable: the setting, its values by the variable's values (none: equal), and the backend that reads it."""

_NAMES = tuple(variable.encode() for variable in _VARIABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A run-time setting of a project.

    Attributes:
        name: Name of the setting, such as ``onednn``.
        value: Value of the setting.
        backend: The backend that it applies to; empty for all that have the setting.
        path: File that sets it.
        line: Line in the file, from 1; 0 if unknown.
    """

    name: str
    value: str
    backend: str
    path: Path
    line: int


def read_switches(directory: Path, settings: Mapping[str, Any]) -> tuple[Switch, ...]:
    """Return the run-time settings of a project; none of its code is executed.

    Args:
        directory: The directory of the project.
        settings: The table ``[tool.advisor.settings]``.

    Raises:
        InputError: If the table has a setting that does not exist, or an invalid value.
    """
    return (*_from_table(directory / "pyproject.toml", settings), *_in_sources(directory))


def _from_table(path: Path, settings: Mapping[str, Any]) -> Iterator[Switch]:
    from knowledge.settings.catalogue import setting_error, shipped_settings

    for name, value in settings.items():
        if (problem := setting_error(name, value)) is not None:
            hint = "" if name in shipped_settings() else suggest(name, shipped_settings())
            raise InputError(f"`{path}`: `tool.advisor.settings.{name}`: {problem}", hint=hint)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        place = line_of(path, text, f"{name} =") or line_of(path, text, name)
        line = int(place.rpartition(":")[2]) if place else 0
        yield Switch(name=name, value=str(value), backend="", path=path, line=line)


def _in_sources(directory: Path) -> Iterator[Switch]:
    for file in source_files(directory):
        if file.is_notebook:
            continue
        try:
            content = file.read()
            if any(variable in content for variable in _NAMES):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield from _of_tree(ast.parse(content.decode("utf-8", "replace")), Path(file.path))
        except (SyntaxError, ValueError, RecursionError, OSError, MemoryError):
            continue  # A file that is not Python sets nothing.


def _of_tree(tree: ast.AST, path: Path) -> Iterator[Switch]:
    """Yield the settings made by `os.environ["NAME"] = "value"` and `os.environ.setdefault("NAME", "value")`."""
    for node in ast.walk(tree):
        pair: tuple[ast.expr, ast.expr] | None = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if ast.unparse(target.value).endswith("environ"):
                pair = (target.slice, node.value)
        elif (
            isinstance(node, ast.Call)
            and len(node.args) == 2
            and ast.unparse(node.func).endswith(("environ.setdefault", "os.putenv"))
        ):
            pair = (node.args[0], node.args[1])
        if pair is None or not all(isinstance(part, ast.Constant) for part in pair):
            continue
        variable, value = (str(part.value) for part in pair if isinstance(part, ast.Constant))
        name, words, backend = _VARIABLES.get(variable, ("", None, ""))
        word = value if words is None else words.get(value)
        if name and word is not None:
            yield Switch(name=name, value=word, backend=backend, path=path, line=pair[0].lineno)
