"""Layout of text reports: labelled rows with aligned columns, wrapped to the width of the terminal.

This needs no library: importing rich takes longer than a repeated advice.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from advisor.domain.words import visible

Style = Literal["", "strong", "good", "warning", "bad", "quiet"]

WIDTH_OF_FILES = 100
"""Columns of a report that is not printed on a terminal."""
_LABEL = 10
_LITERAL = re.compile(r"`[^`]+`")
_NO_BREAK = "\x00"
"""Stands for a space in a literal while lines are broken; no visible text contains it."""
_GAP = 2
_LEAST_TEXT = 30
"""If fewer columns are left for the last cell of a row, it starts on a line of its own."""
_CODES: Mapping[Style, str] = {"strong": "1", "good": "32", "warning": "33", "bad": "31", "quiet": "2"}
"""ANSI codes (ECMA-48) of the styles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a text is laid out: the columns of a line, and whether styles are visible."""

    width: int = WIDTH_OF_FILES
    colour: bool = False

    def styled(self, text: str, style: Style) -> str:
        """Return a text in a style."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colour and style and text.strip() else text


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """A row of a report. A last cell that needs more than two lines starts below the second one.

    Attributes:
        cells: Its cells. The last one is wrapped; the others are aligned with those of other rows of the block that
            have as many cells.
        label: What the row is about; rows that belong to the row above have none.
        notes: Further lines, each wrapped, below the second cell, or below the only one.
        style: Style of the label.
    """

    cells: Sequence[str]
    label: str = ""
    notes: Sequence[str] = ()
    style: Style = "strong"


Block = Iterable[TextRow]


def labelled(label: str, rows: Iterable[str | tuple[str, ...] | TextRow], style: Style = "strong") -> list[TextRow]:
    """Return rows, the first of them with a label; a row may be the text of its only cell, or its cells."""
    texts_as_cells = ((row,) if isinstance(row, str) else row for row in rows)
    plain = (row if isinstance(row, TextRow) else TextRow(cells=row) for row in texts_as_cells)
    return [replace(row, label="" if number else label, style=style) for number, row in enumerate(plain)]


def rendered(blocks: Iterable[Block], layout: Layout) -> str:
    """Return blocks of rows as a text, with an empty line between two blocks; empty blocks are left out."""
    texts = ("\n".join(_block_lines(list(block), layout)) for block in blocks)
    return "\n\n".join(filter(None, texts))


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the lines of a text.

    A literal in backticks stays on one line if it fits. A word, such as an address, may be longer than a line, but not
    longer than a line of a file.
    """
    columns = max(width - indent, 1)
    unbroken = _LITERAL.sub(lambda m: m[0].replace(" ", _NO_BREAK) if len(m[0]) <= columns else m[0], visible(text))
    lines = []
    for line in textwrap.wrap(unbroken, columns, break_long_words=False, break_on_hyphens=False):
        lines += textwrap.wrap(line, max(columns, WIDTH_OF_FILES - indent), break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _block_lines(block: Sequence[TextRow], layout: Layout) -> Iterable[str]:
    widths: dict[int, list[int]] = {}
    for row in block:
        columns = widths.setdefault(len(row.cells), [0] * (len(row.cells) - 1))
        for place, cell in enumerate(row.cells[:-1]):
            columns[place] = max(columns[place], len(cell))
    for row in block:
        yield from _row_lines(row, widths[len(row.cells)], layout)


def _row_lines(row: TextRow, widths: Sequence[int], layout: Layout) -> Iterable[str]:
    *columns, last = map(visible, row.cells)
    gap = " " * _GAP
    padded = [f"{cell.ljust(width)}{gap}" for cell, width in zip(columns, widths, strict=True)]
    head = layout.styled(row.label.ljust(_LABEL - 1), row.style) + " "
    head += "".join([*(layout.styled(cell, "strong") for cell in padded[:1]), *padded[1:]])
    indent = _LABEL + sum(map(len, padded))
    below = min(_LABEL + sum(map(len, padded[:1])), max(_LABEL, layout.width - _LEAST_TEXT))
    lines = wrapped(last, layout.width, indent)
    if columns and (len(lines) > 2 or layout.width - indent < _LEAST_TEXT):
        lines, indent = ["", *wrapped(last, layout.width, below)], below
    yield (head + "".join(lines[:1])).rstrip()
    yield from (f"{'':{indent}}{line}" for line in lines[1:])
    yield from (f"{'':{below}}{line}" for note in row.notes for line in wrapped(note, layout.width, below))
