"""Writes the table `[tool.advisor.benchmark]` into the text of a `pyproject.toml`, and changes nothing else in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.project.text_file import toml_text
from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

_NAME = "[tool.advisor.benchmark]"
_OWN_HEADER = re.compile(r"\s*\[\s*tool\s*\.\s*advisor\s*\.\s*benchmark\s*[.\]]")
_HEADER = re.compile(r"\s*\[")


def with_benchmark(text: str, table: Mapping[str, Any]) -> str:
    """Return the text of a file with a benchmark, which replaces the one that it has.

    The table is added at the end. The result is parsed, and must be the document with this table.

    Raises:
        InputError: If the table cannot be written without changing something else.
    """
    document = parse_toml(text)
    end = "\r\n" if "\r\n" in text else "\n"
    rest = _without_benchmark(text) if "benchmark" in _advisor(document) else text
    written = benchmark_text(table).replace("\n", end)
    separator = end if rest.strip() else ""
    result = f"{rest.rstrip()}{end if rest.strip() else ''}{separator}{written}"
    try:
        parsed = parse_toml(result)
    except ValueError:
        parsed = {}
    expected = {**document, "tool": {**document.get("tool", {}), "advisor": {**_advisor(document), "benchmark": table}}}
    if parsed != expected:
        raise InputError(
            f"`{_NAME}` cannot be written into `pyproject.toml` without changing other lines of it",
            hint="write the printed table yourself",
        )
    return result


def benchmark_text(table: Mapping[str, Any]) -> str:
    """Return the table as text; the metric is an inline table."""
    lines = [_NAME]
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = ", ".join(_entry(name, inner_value) for name, inner_value in value.items())
            lines.append(f"{key} = {{ {inner} }}")
        else:
            lines.append(_entry(key, value))
    return "\n".join([*lines, ""])


def _entry(key: str, value: Any) -> str:
    return " ".join(toml_text({key: value}).replace("[\n", "[").replace(",\n]", "]").split("\n")).strip()


def _advisor(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool = document.get("tool", {})
    advisor = tool.get("advisor", {}) if isinstance(tool, dict) else {}
    return advisor if isinstance(advisor, dict) else {}


def _without_benchmark(text: str) -> str:
    """Return a text without the lines of the table and of its own tables."""
    kept, is_own = [], False
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            is_own = _OWN_HEADER.match(line) is not None
        if not is_own:
            kept.append(line)
    return "".join(kept)
