"""The table `coverage`: how many observations each block has of each kind, corrected by every change.

A kind is a machine, a framework, the label of an indicator run and a status. The time of a query depends on the number
of kinds, not on the number of observations. Connections of the functions that write hold the write lock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, case, delete, func, select

from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import NO_FAILURE, IndicatorRun
from knowledge.store import tables
from knowledge.store.base import DIMENSIONS, Coverage

_COLUMNS = {
    **{name: tables.coverage.c[name] for name in ("framework", "indicator", "label", "device", "block")},
    "hardware": tables.coverage.c.hardware_id,
    "source": tables.block.c.source,
}
"""Column of each dimension."""
# Both marks occur once in canonical JSON: in strings, quotes are escaped, and no other field but `indicator` has an
# object for this key, or contains an object that `loops` follows.
_RUN = '"indicator":{'
_AFTER_RUN = '},"loops":'
_BLOCK, _HARDWARE, _FRAMEWORK, _STATUS, _STARTED, _DOCUMENT = map(
    tables.observation.columns.keys().index,
    ("block", "hardware_id", "framework", "status", "started_at", "document"),
)
_NAMES = tables.coverage.columns.keys()
_SUM = """
    INSERT INTO coverage ({names}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET
        observations = coverage.observations + excluded.observations,
        first = CASE WHEN excluded.first < coverage.first THEN excluded.first ELSE coverage.first END,
        newest = CASE WHEN excluded.newest > coverage.newest THEN excluded.newest ELSE coverage.newest END
"""


class KindCounts:
    """Start times of observations by block and kind."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Count observations, by their whole rows, except those with a damaged document."""
        times = self._times
        # One loop without calls: it must not slow down the insertion of the rows.
        for row in rows:
            document = row[_DOCUMENT]
            start = document.find(_RUN)
            run = document[start : document.find(_AFTER_RUN, start)]
            times[row[_BLOCK], row[_HARDWARE], row[_FRAMEWORK], row[_STATUS], run].append(row[_STARTED])

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table that these observations alone would have, ordered by their key."""
        times_of = defaultdict[tuple[str, ...], list[str]](list)
        for (*others, run), times in self._times.items():
            with suppress(ValueError):
                # Two runs can have one label, such as with the sizes 8 and "8".
                times_of[*others, *_names_of(run)] += times
        # The key is a hash: a label has any length, and PostgreSQL limits that of an index entry.
        return sorted((content_hash(kind), *kind, len(some), min(some), max(some)) for kind, some in times_of.items())


def label_of(document: str) -> str:
    """Return the label of the indicator run in the document of an observation, as it is stored.

    Raises:
        ValueError: If the document is damaged.
    """
    start = document.find(_RUN)
    return _names_of(document[start : document.find(_AFTER_RUN, start)])[-1]


@lru_cache(maxsize=4096)
def _names_of(run: str) -> tuple[str, str, str, str]:
    """Return name, backend, device and stored label of an indicator run; few runs have thousands of observations.

    Args:
        run: The run in the document of an observation, from ``_RUN`` to ``_AFTER_RUN``.
    """
    try:
        read = IndicatorRun(**json.loads(f"{{{run.removeprefix(_RUN)}}}"))
        return read.name, read.backend, read.device, stored_label(read.label)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not an indicator run: {error}") from None


def stored_label(label: str) -> str:
    """Return a label as it is stored: PostgreSQL has no text with the character NUL."""
    return label.replace("\0", "\ufffd")


def add_to_coverage(connection: Connection, counts: KindCounts) -> None:
    """Add numbers of new observations to the summary."""
    if rows := counts.rows():
        # As the driver needs it: SQLAlchemy's own statement takes three times as long.
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        marks = ", ".join(mark for _ in _NAMES)
        connection.exec_driver_sql(_SUM.format(names=", ".join(_NAMES), marks=marks), rows)


def recount(connection: Connection, blocks: Iterable[str]) -> None:
    """Count the observations of blocks again: after a deletion, another one may be the first or the newest."""
    stored, summary = tables.observation, tables.coverage
    for name in sorted(blocks):
        counts = KindCounts()
        counts.add(connection.execute(select(stored).where(stored.c.block == name)))
        connection.execute(delete(summary).where(summary.c.block == name))
        add_to_coverage(connection, counts)


def blocks_with_other_counts(connection: Connection, counts: KindCounts) -> list[str]:
    """Return the names of the blocks whose summary does not match the counts of all observations."""
    stored = set(map(tuple, connection.execute(select(tables.coverage))))
    return sorted({str(row[1]) for row in stored ^ set(counts.rows())})


def read_coverage(connection: Connection, by: Sequence[str], where: Mapping[str, str]) -> Iterator[Coverage]:
    """Yield the numbers of observations by some dimensions, in no order.

    Raises:
        InputError: If a dimension is unknown.
    """
    if unknown := sorted({*by, *where} - set(DIMENSIONS)):
        names = ", ".join(f"`{name}`" for name in DIMENSIONS)
        raise InputError(f"`{unknown[0]}` is not a dimension of the coverage", hint=f"the dimensions are {names}")
    table = tables.coverage
    columns = [_COLUMNS[name] for name in by]
    numbers = (
        func.sum(table.c.observations),
        func.sum(case((table.c.status == "ok", table.c.observations), else_=0)),
        func.sum(case((table.c.status.in_(NO_FAILURE), 0), else_=table.c.observations)),
        func.min(table.c.first),
        func.max(table.c.newest),
    )
    query = select(*columns, *numbers).group_by(*columns)
    if "source" in {*by, *where}:
        query = query.select_from(table.join(tables.block, tables.block.c.name == table.c.block))
    for name, value in where.items():
        query = query.where(_COLUMNS[name] == (stored_label(value) if name == "label" else value))
    for *key, observations, succeeded, failed, first, newest in connection.execute(query):
        # Without dimensions, there is one row, even without observations.
        if first is not None:
            yield Coverage(
                key=tuple(key),
                observations=int(observations),
                succeeded=int(succeeded),
                failed=int(failed),
                first=first,
                newest=newest,
            )
