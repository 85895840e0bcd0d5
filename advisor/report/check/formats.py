"""Which format a name, or the name of a file, stands for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from advisor.gate.check import GateResult

FORMATS = ("text", "json", "markdown", "github", "gitlab", "sarif", "junit", "html")
_SUFFIXES = {".json": "json", ".md": "markdown", ".sarif": "sarif", ".xml": "junit", ".html": "html", ".txt": "text"}


def parse_report_option(word: str) -> tuple[str, Path] | None:
    """Return the format and the file of ``FORMAT=FILE`` or ``FILE``; none where neither tells a format."""
    format, separator, path = word.partition("=")
    if separator and format in FORMATS:
        return format, Path(path)
    found = _SUFFIXES.get(Path(word).suffix)
    return None if found is None else (found, Path(word))


def format_report(result: GateResult, format: str) -> str:
    """Return the report in a format of :data:`FORMATS`."""
    # Only the module that is asked for is loaded: each takes its time.
    module = importlib.import_module(f"advisor.report.check.{format}")
    make: Callable[[GateResult], str] = getattr(module, f"check_{format}")
    return make(result)
