"""Writes the table `[tool.advisor.benchmark]` into the text of a `pyproject.toml`, and changes nothing else in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.project.text_file import toml_text
from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

_NAME = "[tool.advisor.benchmark]"
_OWN = re.compile(
    r"^[ \t]*\[\s*tool\s*\.\s*advisor\s*\.\s*benchmark\s*[.\]].*?(?=^[ \t]*\[|\Z)", re.DOTALL | re.MULTILINE
)


def with_benchmark(text: str, table: Mapping[str, Any]) -> str:
    """Return the text of a file with a benchmark, which replaces the one that it has.

    The table is added at the end. The result is parsed, and must be the document with this table.

    Raises:
        InputError: If the table cannot be written without changing something else.
    """
    document = parse_toml(text)
    tool = document.get("tool", {})
    advisor = tool.get("advisor", {}) if isinstance(tool, dict) else {}
    rest = (_OWN.sub("", text) if isinstance(advisor, dict) and "benchmark" in advisor else text).rstrip()
    end = "\r\n" if "\r\n" in text else "\n"
    result = (f"{rest}{end}{end}" if rest else "") + benchmark_text(table).replace("\n", end)
    try:
        is_exact = parse_toml(result) == {**document, "tool": {**tool, "advisor": {**advisor, "benchmark": table}}}
    except (ValueError, TypeError):
        # `tool` or `advisor` is not a table that can be extended.
        is_exact = False
    if not is_exact:
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
            lines.append(f"{key} = {{ {', '.join(_entry(*item) for item in value.items())} }}")
        else:
            lines.append(_entry(key, value))
    return "\n".join([*lines, ""])


def _entry(key: str, value: Any) -> str:
    return " ".join(toml_text({key: value}).replace("[\n", "[").replace(",\n]", "]").split("\n")).strip()
