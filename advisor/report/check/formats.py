"""The formats of the gate's report, by name or by the suffix of a file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from advisor.gate.check import GateResult

FORMATS = ("text", "json", "markdown", "github", "gitlab", "sarif", "junit", "html")
_SUFFIXES = {".json": "json", ".md": "markdown", ".sarif": "sarif", ".xml": "junit", ".html": "html", ".txt": "text"}


def parse_report_option(word: str) -> tuple[str, Path] | None:
    """Return the format and the file of ``FORMAT=FILE`` or ``FILE``; none if there is no such format."""
    format, separator, path = word.partition("=")
    if separator and format in FORMATS:
        return format, Path(path)
    kind = _SUFFIXES.get(Path(word).suffix)
    return None if kind is None else (kind, Path(word))


def format_report(result: GateResult, format: str) -> str:
    """Return the report in a format of :data:`FORMATS`."""
    # Only the module of the requested format is imported, for a fast start.
    module = importlib.import_module(f"advisor.report.check.{format}")
    make: Callable[[GateResult], str] = getattr(module, f"check_{format}")
    return make(result)
