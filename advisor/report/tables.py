"""Parts of reports and reference pages in Markdown: tables, sections, folded sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_LINE_BREAK = re.compile(r"\s*[\r\n]\s*")


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; line breaks in cells become spaces, and separators in cells are escaped."""
    yield _line(heads)
    yield _line(["---"] * len(heads))
    for row in rows:
        yield _line([_LINE_BREAK.sub(" ", cell).strip().replace("|", "\\|") for cell in row])


def section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a heading with a table; nothing without rows."""
    if rows:
        yield from (f"### {title}", "", *table_lines(heads, rows), "")


def folded(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table below a line that unfolds it; nothing without rows."""
    if rows:
        yield from (f"<details><summary>{title}</summary>", "", *table_lines(heads, rows), "", "</details>", "")


def aligned_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with aligned columns, which is also readable as plain text."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(heads))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        _line([cell.ljust(width) for cell, width in zip(row, widths, strict=True)])
        for row in (cells[0], rule, *cells[1:])
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
