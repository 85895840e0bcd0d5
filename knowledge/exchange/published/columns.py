"""The columns of a table of published measurements, and its rows: CSV or JSON Lines, plain or compressed with gzip.

Tables of timm have other columns and become rows of the same kind (:mod:`knowledge.exchange.published.timm`).
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from knowledge.domain.errors import InputError, suggest
from knowledge.exchange.files import SkippedLine, read_lines
from knowledge.exchange.published.timm import rate_column, read_name, row_cells
from knowledge.records import shipped_yaml

REQUIRED = ("repository", "date", "task", "phase", "framework", "gpu", "precision", "value", "unit")
"""Columns that every table has; a cell of ``gpu`` may be empty if the repository's paths name the GPU."""
OPTIONAL = (
    "commit", "path", "framework_version", "container", "cuda", "cudnn", "driver", "gpus", "cpu", "settings", "batch",
    "runs", "better", "licence", "flops", "bytes",
)  # fmt: skip
"""Columns that a table may lack; an empty cell means that the source does not say it."""
_COLUMNS = frozenset((*REQUIRED, *OPTIONAL))
_LONGEST_CELL = 2_000
_LONGEST_ROW = 64 * 1024
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table.

    Attributes:
        number: Line number in the file, from 1.
        cells: Text of each column, without surrounding spaces; columns that the table lacks are absent.
    """

    number: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the text of a column; empty if the table lacks the column."""
        return self.cells.get(column, "")


class RowError(ValueError):
    """Raised when a row is not a measurement; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of a file.

    Attributes:
        rows: Readable rows, in order.
        skipped: Unreadable rows, in order.
        unknown: Columns that are not read, in order.
    """

    rows: tuple[TableRow, ...]
    skipped: tuple[SkippedLine, ...]
    unknown: tuple[str, ...]


def read_table(content: bytes, *, where: str) -> Table:
    """Read a table.

    Raises:
        InputError: If the file is not a table: it is empty, not UTF-8, not what its name says, lacks columns, or its
            columns are not separated by commas.
    """
    if where.endswith(".gz") and content[:2] != b"\x1f\x8b":
        raise InputError(f"`{where}` is not compressed with gzip", hint="rename it if it is plain text")
    hint = "nothing was stored; copy or download it again"
    lines = (line.removeprefix("\ufeff") for line in read_lines(content, where=where, hint=hint))
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        raise InputError(
            f"`{where}` is empty", hint="the first line names the columns: see `docs/reference/published-files.md`"
        )
    is_json = numbered[0][1].lstrip().startswith("{")
    return _json_table(numbered, where) if is_json else _csv_table(numbered, where)


def _csv_table(numbered: Sequence[tuple[int, str]], where: str) -> Table:
    first = numbered[0][1]
    if len(first) > _LONGEST_ROW:
        raise InputError(f"the first line of `{where}` is longer than {_LONGEST_ROW} characters")
    try:
        header = [name.strip() for name in next(csv.reader([first]))]
    except csv.Error as error:
        raise InputError(f"the first line of `{where}` does not name columns: {error}") from None
    rate = rate_column(header)
    common = read_name(where) if rate else {}
    if not rate:
        _check_header(header, first, where)

    def read(line: str) -> Mapping[str, str]:
        cells = _checked(dict(zip(header, _cells(line, header), strict=True)))
        return row_cells(cells, rate, common) if rate else cells

    rows, skipped = _rows(numbered[1:], read)
    return Table(rows=rows, skipped=skipped, unknown=() if rate else _unknown(header))


def _rows(
    numbered: Iterable[tuple[int, str]], read: Callable[[str], Mapping[str, str]]
) -> tuple[tuple[TableRow, ...], tuple[SkippedLine, ...]]:
    """Return the rows that can be read, and the others."""
    rows, skipped = [], []
    for number, line in numbered:
        try:
            if len(line) > _LONGEST_ROW:
                raise RowError(f"the row is longer than {_LONGEST_ROW} characters")
            rows.append(TableRow(number=number, cells=read(line)))
        except RowError as error:
            skipped.append(SkippedLine(number=number, reason=str(error)))
    return tuple(rows), tuple(skipped)


def _check_header(header: Sequence[str], line: str, where: str) -> None:
    missing = [name for name in REQUIRED if name not in header]
    other = next((words for mark, words in _DELIMITERS.items() if line.count(mark) >= len(REQUIRED) - 1), None)
    if missing and other is not None:
        raise InputError(f"the columns of `{where}` are separated by {other}", hint="separate them with commas")
    if missing:
        raise InputError(
            f"`{where}` has no column {_names(missing)}",
            hint=suggest(missing[0], [name for name in header if name not in _COLUMNS], otherwise="")
            or "the first line names the columns; `repository` says whose measurements these are",
        )
    twice = sorted(name for name, number in Counter(header).items() if number > 1)
    if twice:
        raise InputError(f"`{where}` has more than one column {_names(twice)}", hint="remove one of them")


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cells(line: str, header: Sequence[str]) -> list[str]:
    try:
        cells = next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise RowError(f"it is not CSV: {error}") from None
    if len(cells) != len(header):
        raise RowError(f"it has {len(cells)} cells, and the first line {len(header)} columns")
    return cells


def _json_table(numbered: Sequence[tuple[int, str]], where: str) -> Table:
    unknown: dict[str, None] = {}

    def read(line: str) -> Mapping[str, str]:
        cells = _checked(dict(_json_cells(line)))
        unknown.update(dict.fromkeys(_unknown(list(cells))))
        if missing := [name for name in REQUIRED if name not in cells]:
            raise RowError(f"it has no {_names(missing)}")
        return cells

    rows, skipped = _rows(numbered, read)
    if not rows:
        raise InputError(f"`{where}` contains no row that can be read", hint=skipped[0].reason if skipped else "")
    return Table(rows=rows, skipped=skipped, unknown=tuple(unknown))


def _json_cells(line: str) -> Iterator[tuple[str, str]]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RowError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise RowError("it is not a JSON object")
    for name, value in document.items():
        if isinstance(value, dict | list):
            raise RowError(f"`{name}` is not a text or a number")
        yield name, "" if value is None else str(value)


def _checked(cells: Mapping[str, str]) -> Mapping[str, str]:
    checked = {}
    for name, text in cells.items():
        if len(text) > _LONGEST_CELL:
            raise RowError(f"`{name}` is longer than {_LONGEST_CELL} characters")
        plain = " ".join(text.split())
        if not plain.isprintable():
            raise RowError(f"`{name}` contains control characters")
        checked[name] = plain
    return checked


def _unknown(header: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in header if name and name not in _COLUMNS)


def words() -> Mapping[str, Any]:
    """Return the spellings of words in tables (``words.yaml``)."""
    return shipped_yaml("knowledge.exchange.published", "words.yaml")
