"""Reads what a notebook installs: lines such as ``%pip install torch`` in its code cells."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.project.formats.requirements import read_requirement_lines
from advisor.project.interface import ProjectRequirements, merge_requirements
from advisor.project.text_file import UnreadableFileError, check_size

_INSTALL = re.compile(
    r"\s*[%!]{1,2}\s*(?:(?:python[\d.]*|\{sys\.executable\})\s+-m\s+)?(?:uv\s+)?pip3?\s+install\s+(.*)"
)
_SHELL_END = re.compile(r"\s(?:&&|\|\||[|;>]|2>|&>).*")
"""Start of what is no argument of pip any more."""
_SHARED = (
    *("-r", "-c", "-e", "-i", "-f", "--requirement", "--constraint", "--editable", "--index-url", "--extra-index-url"),
    "--find-links",
)
"""Options with a value that requirements files have, too."""
_FLAGS = (
    *("-q", "-qq", "-qqq", "-U", "-v", "-y", "-I", "--quiet", "--upgrade", "--user", "--no-cache-dir", "--no-deps"),
    *("--force-reinstall", "--ignore-installed", "--no-build-isolation", "--system", "--break-system-packages"),
)
"""Options without a value that do not change what is required."""


def read_notebook(path: Path) -> ProjectRequirements:
    """Read the requirements that a notebook installs; of several on one package, the last one counts.

    Raises:
        UnreadableFileError: If it is no notebook, or a requirement is malformed.
    """
    check_size(path)
    try:
        text = path.read_text(encoding="utf-8")
        cells = json.loads(text)["cells"]
        lines = list(_lines(cells))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableFileError(f"`{path}` is not a notebook: {type(error).__name__} {error}", path=path) from None
    parts: list[ProjectRequirements] = []
    skipped: list[str] = []
    start = 0
    for line in lines:
        # The lines of a cell are texts in JSON, usually each on a line of its own.
        start = max(start, text.find(json.dumps(line, ensure_ascii=False)[1:-1], start))
        number = text.count("\n", 0, start) + 1
        arguments = _arguments(line)
        if arguments is None:
            skipped.append(f"`{path.name}`, line {number}, was not read: it has options or variables of another kind")
        else:
            parts += [read_requirement_lines(path, [(number, argument)]) for argument in arguments]
    last = {root.name: part for part in parts for root in part.roots if root.path == str(path)}
    current = [p for p in parts if not p.roots or any(last.get(root.name, p) is p for root in p.roots)]
    if not current:
        return ProjectRequirements(roots=(), files=(str(path),), skipped=tuple(skipped))
    return replace(merge_requirements(current), files=(str(path),), skipped=tuple(skipped))


def installs_packages(path: Path) -> bool:
    """Whether a notebook contains a line that installs packages; false if it cannot be read."""
    try:
        return b"pip install" in path.read_bytes() and bool(read_notebook(path).roots)
    except (OSError, UnreadableFileError):
        return False


def _lines(cells: Any) -> Iterator[str]:
    """Yield the lines of code cells that install packages."""
    for cell in cells:
        if cell["cell_type"] == "code":
            source = cell["source"]
            for line in (source if isinstance(source, str) else "".join(source)).splitlines():
                if _INSTALL.match(line):
                    yield line


def _arguments(line: str) -> list[str] | None:
    """Return the lines of a requirements file for a line of a notebook; `None` if it cannot be said."""
    match = _INSTALL.match(line)
    assert match is not None
    try:
        words = shlex.split(_SHELL_END.sub("", match[1]), comments=True)
    except ValueError:
        return None
    lines: list[str] = []
    pending = iter(words)
    for word in pending:
        if word in _SHARED:
            lines.append(f"{word} {next(pending, '')}")
        elif word == "--pre" or word.partition("=")[0] in _SHARED:
            lines.append(word)
        elif word in _FLAGS:
            continue
        elif word.startswith("-") or "$" in word or "{" in word:
            return None
        else:
            lines.append(word)
    return lines
