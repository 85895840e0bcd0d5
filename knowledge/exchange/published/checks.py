"""What only the rows of a table together show: duplicates, mixed units, lost columns, rates that cannot be."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from knowledge.exchange.files import SkippedLine
from knowledge.exchange.published.configuration import least_batch
from knowledge.exchange.published.hosts import contradicted_hosts
from knowledge.exchange.published.machine import find_model, largest_flops, slice_share
from knowledge.exchange.published.measurement import Measurement
from knowledge.hardware.partitions import states_part

_PEAK_TOLERANCE = 10.0
"""Rates above this multiple of the peak of the hardware are not believed; numbers of operations are lower bounds."""
_SLICE_TOLERANCE = 1.0
"""The same for a slice of a GPU with a known share: the tolerance for whole GPUs is more than their number of slices.
The fastest row of the shipped tables reaches 0.45 of the peak, and 0.23 on GPUs with tensor cores."""
_SCALES = 50.0
"""Factor between two values of one table and batch size, for each GPU, above which they have different units."""
_LONGEST_STEP = 600.0
"""Seconds of a step of any batch size that are believed."""
_MOST_SCALING = 1.25
"""Largest believed speed-up of several GPUs for each GPU, against one GPU in the same configuration: more memory in all
may help a little, but hosts of a table differ by more."""
_LEAST_SCALING = 0.1
_REPETITIONS = 1.05
"""Largest factor between values of one configuration that are repetitions; other values belong to a lost column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rows with one configuration, of one publication.

    Attributes:
        first: The first row.
        values: Published values, in order of the rows.
    """

    first: Measurement
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def seconds(self) -> float:
        """Seconds for an item, of the median."""
        return self.first.seconds * (self.first.value / self.value) ** (-1 if self.first.unit.lower else 1)


def check_table(
    measurements: Sequence[Measurement],
) -> tuple[tuple[Group, ...], tuple[SkippedLine, ...], tuple[int, ...]]:
    """Check the rows of a table against each other; return groups that remain, skipped rows, numbers of duplicates."""
    comparable, mixed = _with_common_units(measurements)
    skipped = dict(mixed)
    unique, duplicates = _without_duplicates(comparable)
    for check in (_impossible, _other_scale, contradicted_hosts, _impossible_scaling):
        skipped.update(check([m for m in unique if m.row.number not in skipped]))
    groups, lost = _grouped([m for m in unique if m.row.number not in skipped])
    skipped.update(lost)
    rows = tuple(SkippedLine(number=number, reason=reason) for number, reason in sorted(skipped.items()))
    return groups, rows, duplicates


def _with_common_units(measurements: Sequence[Measurement]) -> tuple[list[Measurement], Mapping[int, str]]:
    """Convert rates of each device or user into rates of all of them, where their number is stated.

    Rows that do not state it, although other rows of the same work have the rate of all, are returned with the reason.
    """
    converted = [
        replace(m, unit=m.unit.of_all, value=m.value * m.counts[m.unit.per]) if m.unit.per in m.counts else m
        for m in measurements
    ]
    of_all = {(*m.work, m.unit.item) for m in converted if not m.unit.per}
    reasons = {
        m.row.number: f"its unit is `{m.row.text('unit')}`, other rows have the rate of all {m.unit.per}s together, "
        f"and it does not state the number of {m.unit.per}s"
        for m in converted
        if m.unit.per and (*m.work, m.unit.item) in of_all
    }
    return [m for m in converted if m.row.number not in reasons], reasons


def _without_duplicates(measurements: Sequence[Measurement]) -> tuple[list[Measurement], tuple[int, ...]]:
    """Keep the earliest of rows with one configuration and one value: pages move, and tables are published again."""
    earliest: dict[Hashable, Measurement] = {}
    duplicates = []
    for m in measurements:
        key = (_configuration(m), m.versions.get("version", ""), m.container, m.value)
        first = earliest.setdefault(key, m)
        if first is m:
            continue
        if m.day < first.day:
            earliest[key], m = m, first
        duplicates.append(m.row.number)
    remaining = {m.row.number for m in earliest.values()}
    return [m for m in measurements if m.row.number in remaining], tuple(sorted(duplicates))


def _configuration(m: Measurement) -> Hashable:
    """Return everything that must be equal for two rows to be repetitions of each other, except versions and place."""
    return (
        *m.work, m.precision, m.gpus, m.batch, _model(m), m.unit.name,
        tuple(sorted(m.configuration.speed.items())), tuple(sorted(m.configuration.parameters.items())),
        m.configuration.nodes, str(m.configuration.described.get("host", "")),
    )  # fmt: skip


def _model(m: Measurement) -> str:
    table = str(m.configuration.described.get("table", ""))
    model = find_model(m.gpu, table)
    return f"{model.name if model is not None and not states_part(m.gpu) else m.gpu} {table.rpartition(':')[2].strip()}"


def _impossible(measurements: Iterable[Measurement]) -> Mapping[int, str]:
    """Return rows whose rate the hardware cannot reach, and those that take too long."""
    reasons = {}
    for m in measurements:
        peak = largest_flops(m) if m.task.flops and not m.unit.lower else None
        rate = m.task.flops / m.seconds_of_all if m.task.flops else 0.0
        step = m.seconds * least_batch(m.batch)
        tolerance = _PEAK_TOLERANCE if slice_share(m) is None else _SLICE_TOLERANCE
        if peak is not None and rate > tolerance * peak:
            times = f"{rate / peak:.{0 if rate >= _PEAK_TOLERANCE * peak else 1}f}"
            reasons[m.row.number] = (
                f"`value` is {m.row.text('value')}: {rate:.3g} operations in a second are {times} times the "
                f"peak of {m.gpus} x `{m.gpu}`"
            )
        elif step > _LONGEST_STEP:
            reasons[m.row.number] = (
                f"`value` is {m.row.text('value')}: a step would take {step / 60:.3g} minutes; its unit lacks "
                "thousands or millions"
            )
    return reasons


def _other_scale(measurements: Iterable[Measurement]) -> Mapping[int, str]:
    """Return rows whose value has another unit than the rest of their table."""
    tables: dict[Hashable, list[Measurement]] = {}
    for m in measurements:
        path = m.row.text("path") if not m.configuration.described.get("host") else ""
        key = (*m.work, path, m.batch, m.unit.name, tuple(sorted(m.configuration.parameters.items())))
        tables.setdefault(key, []).append(m)
    reasons = {}
    for members in tables.values():
        if len(members) < 3:
            continue
        usual = statistics.median(m.seconds_of_all * m.gpus for m in members)
        for m in members:
            factor = m.seconds_of_all * m.gpus / usual
            if not 1 / _SCALES < factor < _SCALES:
                words = f"{factor:.3g} times less" if factor > 1 else f"{1 / factor:.3g} times more"
                reasons[m.row.number] = (
                    f"`value` is {m.row.text('value')}, {words} than in other rows with this batch size: another unit"
                )
    return reasons


def _impossible_scaling(measurements: Iterable[Measurement]) -> Mapping[int, str]:
    """Return rows of several GPUs that are not in proportion to those of one GPU with the same batch size."""
    one: dict[Hashable, list[float]] = {}
    several: list[tuple[tuple[Hashable, ...], Measurement]] = []
    for m in measurements:
        # A `config` names a version of the scripts; with the same batch size it does not explain a factor of 2.
        parameters = sorted(p for p in m.configuration.parameters.items() if p[0] != "config")
        settings = sorted(m.configuration.speed.items())
        work = (*m.work, m.precision, m.gpu, m.unit.name)
        key: tuple[Hashable, ...] = (*work, m.batch, *settings, *parameters)
        if m.gpus == 1:
            for version in (m.versions.get("version", ""), None):
                one.setdefault((*key, version), []).append(1 / m.seconds)
        else:
            several.append((key, m))
    reasons = {}
    for key, m in several:
        # Rows of other versions count only if there is none of the same.
        rates = one.get((*key, m.versions.get("version", ""))) or one.get((*key, None))
        if rates is None:
            continue
        rate, usual = 1 / m.seconds_of_all / m.gpus, statistics.median(rates)
        if not _LEAST_SCALING * usual < rate < _MOST_SCALING * usual:
            reasons[m.row.number] = (
                f"`value` is {m.row.text('value')}: {m.gpus} GPUs are {rate * m.gpus / usual:.3g} times as fast as one "
                "with the same batch size"
            )
    return reasons


def _grouped(measurements: Sequence[Measurement]) -> tuple[tuple[Group, ...], Mapping[int, str]]:
    """Join repetitions; rows that differ in their value only, and by more, lack the column that distinguishes them."""
    groups: dict[Hashable, list[Measurement]] = {}
    for m in measurements:
        place = (m.row.text("path"), m.row.text("commit"), m.day)
        groups.setdefault((*place, _configuration(m), m.container, *sorted(m.versions.items())), []).append(m)
    joined, lost = [], {}
    for members in groups.values():
        values = [m.value for m in members]
        if max(values) <= _REPETITIONS * min(values):
            joined.append(Group(first=members[0], values=tuple(values)))
            continue
        for m in members:
            lost[m.row.number] = (
                f"{len(values)} rows with the same configuration have values from {min(values):g} to {max(values):g}: "
                "the column that distinguishes them is missing"
            )
    return tuple(joined), lost
