"""Run-time switches that a project sets: in `[tool.advisor.settings]`, and through the environment in its sources."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.project.interface import line_of
from advisor.project.sources import code_of, source_files
from knowledge.domain.errors import InputError
from knowledge.domain.suggestions import suggest

_VARIABLES: Mapping[str, tuple[str, Mapping[str, str] | None, str]] = {
    # TensorFlow's own message says so: https://discuss.ai.google.dev/t/tf-enable-onednn-opts-0-issue/22171
    "TF_ENABLE_ONEDNN_OPTS": ("onednn", {"0": "off", "1": "on"}, "tensorflow"),
    # https://docs.pytorch.org/docs/stable/threading_environment_variables.html; TensorFlow's own builds do not obey it:
    # https://intel.com/content/www/us/en/developer/articles/guide/guide-to-tensorflow-runtime-optimizations-for-cpu.html
    "OMP_NUM_THREADS": ("threads", None, "torch"),
    # https://github.com/fujitsu/OpenBLAS/blob/fj_develop/USAGE.md (a copy of OpenBLAS's own; NumPy's wheels carry it)
    "OPENBLAS_NUM_THREADS": ("threads", None, "numpy"),
}
"""Variable, the setting that it is, its values in the setting's words (none: as they are), who obeys it."""

_SETS = re.compile(r"\b(" + "|".join(_VARIABLES) + r")\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A setting that a project makes.

    Attributes:
        name: Name of the setting, such as ``onednn``.
        value: Its value, in the setting's words.
        backend: The backend that obeys it; empty for all that know it.
        path: File that makes it.
        line: Line, from 1; 0 where that is not known.
    """

    name: str
    value: str
    backend: str
    path: Path
    line: int


def read_switches(directory: Path, settings: Mapping[str, Any]) -> tuple[Switch, ...]:
    """Return the switches of a project; nothing of it is executed.

    Args:
        directory: The project's directory.
        settings: Its ``[tool.advisor.settings]``.

    Raises:
        InputError: If the table names a setting that does not exist, or gives it a value that it cannot have.
    """
    return (*_stated(directory / "pyproject.toml", settings), *_in_sources(directory))


def _stated(path: Path, settings: Mapping[str, Any]) -> Iterator[Switch]:
    from pi_runners.vocabulary import SETTINGS, setting_error

    for name, value in settings.items():
        if (wrong := setting_error(name, value)) is not None:
            hint = "" if name in SETTINGS else suggest(name, SETTINGS)
            raise InputError(f"`{path}`: `tool.advisor.settings.{name}`: {wrong}", hint=hint)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        place = line_of(path, text, f"{name} =") or line_of(path, text, name)
        line = int(place.rpartition(":")[2]) if place else 0
        yield Switch(name=name, value=str(value), backend="", path=path, line=line)


def _in_sources(directory: Path) -> Iterator[Switch]:
    for path in source_files(directory):
        try:
            text = code_of(path)
            if path.suffix == ".py" and _SETS.search(text):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield from _of_tree(ast.parse(text), path)
        except (SyntaxError, ValueError, RecursionError, OSError, MemoryError):
            continue  # What speaks for the workload told of it.


def _of_tree(tree: ast.AST, path: Path) -> Iterator[Switch]:
    """Yield `os.environ["NAME"] = "value"` and `os.environ.setdefault("NAME", "value")`."""
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
