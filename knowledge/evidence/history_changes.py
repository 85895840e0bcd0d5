"""Changes of speed in the histories of a knowledge base, with what they are attributed to.

Where the scan of a series ended is cached, so that only new points are looked at. If a point is added between others,
such as by an import, its series is scanned again.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256

from knowledge.domain.identity import content_hash
from knowledge.evidence.attribution import Attribution, attribute
from knowledge.evidence.change_points import ChangePoint, ScanState, change_points, scan
from knowledge.evidence.history import HistoryPoint, Series, SeriesFilter, SeriesKey, load_series
from knowledge.store.base import KnowledgeBase

_KIND = "change-points"
_FORMAT = "1"
"""Version of the cached scans; raise it when the same points give other changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChange:
    """A change of speed in a series.

    Attributes:
        place: Its place in the series, and its size.
        time: Time of the first point after it, UTC.
        certain_at: Time of the point with which it became certain, UTC.
        attribution: What it is attributed to.
    """

    place: ChangePoint
    time: datetime
    certain_at: datetime
    attribution: Attribution


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesHistory:
    """A series with its changes of speed, oldest first."""

    series: Series
    changes: tuple[SpeedChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStatus:
    """The newest point and the newest change of a series.

    Attributes:
        key: The series.
        point: Its newest point: when it was measured, seconds per call, and whether the accelerator was throttled.
        change: Its newest change; none if its speed never changed.
    """

    key: SeriesKey
    point: HistoryPoint
    change: SpeedChange | None


def load_histories(
    store: KnowledgeBase, selection: SeriesFilter | None = None, *, now: datetime | None = None
) -> tuple[SeriesHistory, ...]:
    """Return the selected series of a knowledge base with their changes; the arguments are those of `load_series`."""
    series, places = _changes_of(store, selection, now)
    neighbours = _neighbours(store, selection, series, now)
    return tuple(
        SeriesHistory(
            series=own, changes=tuple(_explained(own, changes, number, neighbours) for number in range(len(changes)))
        )
        for own, changes in zip(series, places, strict=True)
    )


def newest_states(
    store: KnowledgeBase, selection: SeriesFilter | None = None, *, now: datetime | None = None
) -> tuple[SeriesStatus, ...]:
    """Return the newest point and the newest change of each series, for monitoring; only these are attributed.

    The arguments are those of :func:`knowledge.evidence.history.load_series`.
    """
    series, places = _changes_of(store, selection, now)
    neighbours = _neighbours(store, selection, series, now)
    return tuple(
        SeriesStatus(
            key=own.key,
            point=own.points[-1],
            change=_explained(own, changes, len(changes) - 1, neighbours) if changes else None,
        )
        for own, changes in zip(series, places, strict=True)
    )


def _changes_of(
    store: KnowledgeBase, selection: SeriesFilter | None, now: datetime | None
) -> tuple[tuple[Series, ...], list[tuple[ChangePoint, ...]]]:
    """Return series, and where the speed of each changed."""
    series = load_series(store, selection, now=now)
    keys = [content_hash(asdict(own.key)) for own in series]
    cached = store.load_derived(_KIND, [(key, _FORMAT) for key in keys]) if keys else {}
    new, places = [], []
    for own, key in zip(series, keys, strict=True):
        seconds = [point.seconds for point in own.points]
        before = _usable_state(cached.get(key), seconds)
        state = scan(seconds, before)
        if state != before:
            record = {"length": state.length, "alarms": state.alarms, "digest": _digest(seconds)}
            new.append((key, _FORMAT, record))
        places.append(change_points(seconds, state))
    store.store_derived(_KIND, new)
    return series, places


def _usable_state(record: Mapping[str, object] | None, seconds: Sequence[float]) -> ScanState | None:
    """Return the state of an earlier scan if it was one of the first of these values."""
    if record is None:
        return None
    length, alarms = record["length"], record["alarms"]
    assert isinstance(length, int)
    assert isinstance(alarms, list)
    if length > len(seconds) or record["digest"] != _digest(seconds[:length]):
        return None
    return ScanState(length=length, alarms=tuple((start, certain) for start, certain in alarms))


def _digest(seconds: Sequence[float]) -> str:
    return sha256(array("d", seconds).tobytes()).hexdigest()


def _neighbours(
    store: KnowledgeBase, selection: SeriesFilter | None, series: Sequence[Series], now: datetime | None
) -> Mapping[tuple[str, str, str], Sequence[Series]]:
    """Return all series of the machines by their source, machine and device, also those that were not selected."""
    everything = SeriesFilter(with_shipped=selection is not None and selection.with_shipped)
    is_partial = bool(series) and selection not in (None, everything)
    groups: dict[tuple[str, str, str], list[Series]] = defaultdict(list)
    for own in load_series(store, everything, now=now) if is_partial else series:
        groups[own.device_key].append(own)
    return groups


def _explained(
    series: Series,
    places: Sequence[ChangePoint],
    number: int,
    neighbours: Mapping[tuple[str, str, str], Sequence[Series]],
) -> SpeedChange:
    """Return one of the changes of a series with its attribution."""
    place = places[number]
    low = places[number - 1].start if number else 0
    high = places[number + 1].start if number + 1 < len(places) else len(series.points)
    others = neighbours[series.device_key]
    return SpeedChange(
        place=place,
        time=series.points[place.start].time,
        certain_at=series.points[place.certain].time,
        attribution=attribute(series, place, others, span=(low, high)),
    )
