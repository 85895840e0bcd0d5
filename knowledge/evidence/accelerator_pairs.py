"""Pairs of published measurements that differ in the accelerator only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from knowledge.evidence.accelerator_rows import AcceleratorRow, load_rows
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator
from knowledge.hardware.peaks import largest_ratio
from knowledge.store.base import KnowledgeBase

MARGIN = 2.0
"""By how much the ratio of a pair may exceed the ratio of the bandwidths and peak rates: software does not use every
accelerator in the same degree. The factor is a judgement."""
WIDEST_RATIO = math.log(20)
"""Largest log ratio of a pair whose peak rates are not stated. The bound is a judgement."""
_Configuration = tuple[str, str, str, str, str, int]
"""What must be the same in two rows, apart from the batch size: source, task, mode, regime, configuration, number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPair:
    """Two published rows of one configuration on the same number of accelerators of two models.

    Attributes:
        source: Who published them.
        configuration: What is the same in both, for people: settings and software.
        task: The whole model.
        mode: ``training`` or ``inference``.
        regime: One of :data:`REGIMES`.
        accelerator: Name of the model in the catalogue.
        reference: Name of the model that it is compared with.
        mean: Log speed-up over the reference.
        count: Number of accelerators.
        year: Year of the newer row.
        batch: Batch size of the accelerator's row; empty if it is not stated.
        reference_batch: Batch size of the reference's row. It differs from ``batch`` only in training, and only if the
            source has no rows of these accelerators with one batch size.
    """

    source: str
    configuration: str
    task: str
    mode: str
    regime: str
    accelerator: str
    reference: str
    mean: float
    count: int
    year: int
    batch: str = ""
    reference_batch: str = ""

    @property
    def has_one_batch(self) -> bool:
        """Whether both rows have the same batch size, or neither states one."""
        return self.batch == self.reference_batch

    @property
    def log_batch(self) -> float:
        """Logarithm of the ratio of the batch sizes; 0 if one is not a number."""
        if not (self.batch.isdecimal() and self.reference_batch.isdecimal()):
            return 0.0
        return math.log(int(self.batch) / int(self.reference_batch))

    @property
    def publisher(self) -> str:
        """The source without the round of MLPerf."""
        return self.source.partition(" v")[0]


def accelerator_pairs(rows: Iterable[AcceleratorRow]) -> tuple[AcceleratorPair, ...]:
    """Return pairs of published measurements that differ in the accelerator only, in order of source and configuration.

    In each configuration, the accelerators with rows of one batch size are compared with one of them, the first by name
    that most others can be compared with: n rows give at most n - 1 pairs. In training, the size of a batch follows
    from the memory of the accelerator, so accelerators that no common batch size connects are compared with the batch
    size at which each is the fastest.

    A ratio of :data:`MARGIN` times that of the bandwidths and peak rates is a mistake of a table: of two such rows, the
    one that fewer others can be compared with is left out.
    """
    groups: dict[_Configuration, list[_Row]] = defaultdict(list)
    for row in rows:
        model = find_accelerator(row.accelerator)
        if model is not None:
            key = (row.source, row.task, row.mode, row.regime, row.configuration, row.count)
            groups[key].append(_Row(row, model))
    # The first of equal batch sizes by name of the accelerator is the reference.
    ordered = sorted(groups.items())
    pairs = (_pairs(sorted(group, key=lambda r: (r.model.name, r.row.batch))) for _, group in ordered)
    return tuple(pair for listed in pairs for pair in listed)


def load_pairs(store: KnowledgeBase) -> tuple[AcceleratorPair, ...]:
    """Return the pairs of a knowledge base."""
    return accelerator_pairs(load_rows(store))


class _Row(NamedTuple):
    """A row, and the catalogue's entry of its accelerator."""

    row: AcceleratorRow
    model: AcceleratorModel


def _pairs(rows: Sequence[_Row]) -> Iterator[AcceleratorPair]:
    """Yield the pairs of a configuration: of equal batch sizes first, and of others where those connect nothing."""
    by_batch: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_batch[row.row.batch].append(row)
    connected = {row.model.name: row.model.name for row in rows}

    def connect(one: _Row, other: _Row) -> None:
        joined, remaining = connected[other.model.name], connected[one.model.name]
        connected.update({name: remaining for name, group in connected.items() if group == joined})

    for listed in sorted(by_batch.values(), key=lambda listed: (-len(listed), listed[0].row.batch)):
        for reference, row in _with_first(_consistent(listed)):
            yield _pair(row, reference)
            connect(reference, row)
    if rows[0].row.mode != "training":
        return
    fastest = [
        min((r for r in rows if r.model.name == name), key=lambda r: r.row.seconds) for name in sorted(connected)
    ]
    for reference, row in _with_first(_consistent(fastest)):
        if connected[row.model.name] != connected[reference.model.name]:
            yield _pair(row, reference)
            connect(reference, row)


def _with_first(rows: Sequence[_Row]) -> list[tuple[_Row, _Row]]:
    """Return the first row with each of the others."""
    return [(rows[0], row) for row in rows[1:]]


def _consistent(rows: Sequence[_Row]) -> list[_Row]:
    """Return rows of which all can be compared with each other, first those that most others can be compared with.

    A row that is a mistake can be compared with few of the others; a row between two that exclude each other does not
    make both possible. Of rows that exclude each other and can be compared with equally many others, none stays:
    nothing says which is wrong.
    """
    by_number: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        by_number[sum(_is_possible(row, other) for other in rows)].append(row)
    consistent: list[_Row] = []
    for _, equals in sorted(by_number.items(), reverse=True):
        candidates = [row for row in equals if all(_is_possible(row, other) for other in consistent)]
        consistent += [row for row in candidates if all(_is_possible(row, other) for other in candidates)]
    return consistent


def _is_possible(row: _Row, reference: _Row) -> bool:
    """Whether the accelerators' bandwidths and peak rates allow the ratio of two rows."""
    mean = _log_ratio(row, reference)
    fast, slow = (row, reference) if mean > 0 else (reference, row)
    largest = largest_ratio(fast.model, slow.model)
    return abs(mean) <= (WIDEST_RATIO if largest is None else math.log(MARGIN * largest))


def _log_ratio(row: _Row, reference: _Row) -> float:
    return math.log(reference.row.seconds / row.row.seconds)


def _pair(row: _Row, reference: _Row) -> AcceleratorPair:
    own, other = row.row, reference.row
    return AcceleratorPair(
        source=own.source,
        configuration=own.configuration,
        task=own.task,
        mode=own.mode,
        regime=own.regime_of_batch,
        accelerator=own.accelerator,
        reference=other.accelerator,
        mean=_log_ratio(row, reference),
        count=own.count,
        year=max(own.year, other.year),
        batch=own.batch,
        reference_batch=other.batch,
    )
