"""The newest results of the series that were measured here or delivered, for monitoring.

A series is an indicator with a framework, its version and settings on a machine. Runs of one series in one block are
one measurement. What was read of a block is cached in the knowledge base: only blocks that changed are read again.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from knowledge.domain.hardware import DETECTED, HardwareProfile
from knowledge.domain.identity import content_hash, hash_of_text
from knowledge.domain.metrics import MOST_LABEL_CHARACTERS, MOST_SERIES, SERIES_LABELS, WINDOW_DAYS
from knowledge.domain.observation import BENCHMARK, DAWNBENCH, PUBLISHED, Observation
from knowledge.evidence.contrasts import machine_of
from knowledge.evidence.history import machine_name, settings_text
from knowledge.evidence.history_changes import SeriesStatus, newest_states
from knowledge.exchange.admission import MLPERF
from knowledge.records import value_from
from knowledge.store.base import KnowledgeBase, StoredBlock

_KIND = "newest-results"
_FORMAT = 2
"""Changes when results that are cached are no longer right."""
_SKEW = timedelta(minutes=5)
"""How far a clock may be ahead; admission allows as much."""
_LEAST_DAYS = 3
"""Minimum number of days on which a series was measured if its interval is known."""
_INDICATOR = SERIES_LABELS.index("indicator")
_SOURCE = SERIES_LABELS.index("source")
_VERSION = SERIES_LABELS.index("version")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesResult:
    """Runs of one series in one block.

    Attributes:
        labels: Values of :data:`knowledge.domain.metrics.SERIES_LABELS`, by which series are distinguished.
        history: Source, machine, framework, label and settings of its
            :class:`knowledge.evidence.history.SeriesKey`.
        run_time: When the last run began, seconds since 1970.
        runs: Number of runs by status.
        time: When the last successful run began; ``None`` if no run succeeded, as for the following.
        seconds: Median seconds per call over the successful runs.
        flops_per_second: Floating-point operations a second at this speed.
        throttled: Whether a GPU lowered its clocks in a successful run, by reason; empty if this is unknown.
    """

    labels: tuple[str, ...]
    history: tuple[str, ...]
    run_time: float
    runs: Mapping[str, int]
    time: float | None = None
    seconds: float | None = None
    flops_per_second: float | None = None
    throttled: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestChange:
    """The newest change of the speed of a series.

    Attributes:
        labels: Values of :data:`knowledge.domain.metrics.LASTING_LABELS`.
        cause: What it is attributed to (:data:`knowledge.evidence.attribution.CauseKind`).
        time: When the measurement with which it became certain was made, seconds since 1970.
        ratio: Seconds after it divided by those before it.
    """

    labels: tuple[str, ...]
    cause: str
    time: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestResults:
    """The newest results of all series.

    Attributes:
        successful: The newest result of each series with a successful run, in order of their labels.
        latest: The newest result of each series, successful or not, in order of their labels.
        intervals: Median seconds between the days on which a series was measured, by the values of
            :data:`knowledge.domain.metrics.LASTING_LABELS`.
        changes: The newest change of each of these series whose speed changed.
        omitted: Number of series that were left out, by reason.
    """

    successful: tuple[SeriesResult, ...]
    latest: tuple[SeriesResult, ...]
    intervals: Mapping[tuple[str, ...], float]
    changes: tuple[NewestChange, ...]
    omitted: Mapping[str, int]


def newest_results(store: KnowledgeBase, *, now: datetime, host: str | None = None) -> NewestResults:
    """Return the newest results of the last days, without those that only shipped files brought.

    Published results that were imported are left out, because nobody repeats them.

    Args:
        store: The knowledge base.
        now: The current time.
        host: Name of this machine, which becomes the source of the user's own results; those of others are left out.
            ``None`` returns the results of all sources, without the user's own benchmarks: they are about one project,
            and leave a knowledge base only if the user names their block.
    """
    since = now - timedelta(days=WINDOW_DAYS)
    names = store.recent_blocks(since.strftime("%Y-%m-%dT%H:%M:%S"))
    blocks = [block for block in store.blocks(names) if block.trust > 0 and (host is None or not block.source)]
    results = []
    for block, parts in _results_by_block(store, blocks):
        source = _label_text(host or block.source)
        for result in parts:
            is_private = not source and result.labels[_INDICATOR] == BENCHMARK
            if result.run_time >= since.timestamp() and not is_private:
                labels = (*result.labels[:_SOURCE], source, *result.labels[_SOURCE + 1 :])
                results.append(replace(result, labels=labels, history=(block.source, *result.history[1:])))
    return _newest(results, newest_states(store, now=now), now)


def _newest(results: Iterable[SeriesResult], states: Iterable[SeriesStatus], now: datetime) -> NewestResults:
    by_series: dict[tuple[str, ...], list[SeriesResult]] = defaultdict(list)
    future = set()
    for result in sorted(results, key=lambda result: result.run_time):
        # A clock that was ahead would make the series look fresh until the time is reached.
        if result.run_time > (now + _SKEW).timestamp():
            future.add(result.labels)
        else:
            by_series[result.labels].append(result)
    ordered = sorted(by_series, key=lambda labels: (-by_series[labels][-1].run_time, labels))
    newest = sorted(ordered[:MOST_SERIES])
    successes = {labels: [r for r in by_series[labels] if r.time is not None] for labels in newest}
    return NewestResults(
        successful=tuple(members[-1] for members in successes.values() if members),
        latest=tuple(by_series[labels][-1] for labels in newest),
        intervals=_intervals(r for members in successes.values() for r in members),
        changes=_changes((by_series[labels][-1] for labels in newest), states),
        omitted={"clock": len(future), "limit": len(ordered) - len(newest)},
    )


def _changes(results: Iterable[SeriesResult], states: Iterable[SeriesStatus]) -> tuple[NewestChange, ...]:
    """Return the newest changes of the series of results, in order of their labels."""
    newest: dict[tuple[str, ...], SeriesStatus] = {}
    # Another resolution of the clock makes another history, but not another series here: the newest one counts.
    for state in sorted(states, key=lambda state: state.point.time):
        key = state.key
        newest[key.source, key.machine, key.framework, key.label, key.settings] = state
    changes = {}
    for result in results:
        latest = newest.get(result.history)
        change = latest.change if latest is not None else None
        if change is not None and change.attribution.is_of_speed:
            labels = _lasting(result.labels)
            changes[labels] = NewestChange(
                labels=labels,
                cause=change.attribution.kind,
                time=change.certain_at.timestamp(),
                ratio=change.place.ratio.inverse().speedup,
            )
    return tuple(change for _, change in sorted(changes.items()))


def _lasting(labels: tuple[str, ...]) -> tuple[str, ...]:
    return labels[:_VERSION] + labels[_VERSION + 1 :]


def _intervals(results: Iterable[SeriesResult]) -> dict[tuple[str, ...], float]:
    """Return the median seconds between days with a result: series of all versions of a framework are one."""
    days: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for result in results:
        assert result.time is not None
        key = _lasting(result.labels)
        day = int(result.time // 86400)
        days[key][day] = max(result.time, days[key].get(day, 0.0))
    return {
        key: statistics.median(later - earlier for earlier, later in pairwise(sorted(times.values())))
        for key, times in sorted(days.items())
        if len(times) >= _LEAST_DAYS
    }


def _results_by_block(
    store: KnowledgeBase, blocks: Iterable[StoredBlock]
) -> Iterator[tuple[StoredBlock, tuple[SeriesResult, ...]]]:
    """Yield blocks with their results, cached or computed."""
    keys = {block.name: content_hash([_FORMAT, block.digest]) for block in blocks}
    cached = store.load_derived(_KIND, keys.items()) if keys else {}
    new = []
    for block in blocks:
        if block.name in cached:
            yield block, tuple(value_from(SeriesResult, record) for record in cached[block.name])
        else:
            results = results_of(store.observations(block=block.name))
            new.append((block.name, keys[block.name], [asdict(result) for result in results]))
            yield block, results
    store.store_derived(_KIND, new)


def results_of(observations: Iterable[Observation]) -> tuple[SeriesResult, ...]:
    """Return the results of the observations of one block, in order of their labels; the source is left empty."""
    by_series: dict[tuple[str, ...], list[tuple[float, Observation]]] = defaultdict(list)
    for o in observations:
        if o.indicator.name not in (PUBLISHED, DAWNBENCH, *MLPERF):
            by_series[_labels(o)].append((_seconds_of(o.started_at), o))
    return tuple(_result(labels, members) for labels, members in sorted(by_series.items()))


def _result(labels: tuple[str, ...], members: Sequence[tuple[float, Observation]]) -> SeriesResult:
    successes = [(time, o, statistics.median(o.samples)) for time, o in members if o.samples]
    seconds = statistics.median(median for *_, median in successes) if successes else None
    flops = statistics.median(o.flops for _, o, _ in successes) if successes else 0.0
    return SeriesResult(
        labels=labels,
        history=_history_key(members[0][1]),
        run_time=max(time for time, _ in members),
        runs=dict(sorted(Counter(str(o.status) for _, o in members).items())),
        time=max((time for time, *_ in successes), default=None),
        seconds=seconds,
        flops_per_second=flops / seconds if seconds and flops else None,
        throttled=_throttled([o.telemetry for _, o, _ in successes]),
    )


def _throttled(telemetries: Sequence[Mapping[str, float]]) -> dict[str, bool]:
    recorded = [telemetry for telemetry in telemetries if "throttled" in telemetry]
    if not recorded:
        return {}
    reasons = ("heat", "power")
    flags = [[bool(telemetry.get(f"throttled_by_{reason}")) for reason in reasons] for telemetry in recorded]
    return {
        **{reason: any(of_run[number] for of_run in flags) for number, reason in enumerate(reasons)},
        "other": any(bool(t["throttled"]) and not any(of_run) for t, of_run in zip(recorded, flags, strict=True)),
    }


def _labels(o: Observation) -> tuple[str, ...]:
    values = {
        "machine": _machine_label(o.hardware, o.indicator.device),
        "source": "",
        "indicator": o.indicator.name,
        "indicator_version": str(o.indicator.version),
        "parameters": ",".join(f"{k}={v}" for k, v in sorted(o.indicator.parameters.items())),
        "backend": o.indicator.backend,
        "device": o.indicator.device,
        "dtype": o.indicator.dtype,
        "framework": o.framework,
        "version": o.stack.version_of(o.framework) or "",
        "settings": settings_text(o.settings),
    }
    return tuple(_label_text(values[label]) for label in SERIES_LABELS)


def _history_key(o: Observation) -> tuple[str, ...]:
    return "", machine_name(o.hardware), o.framework, o.indicator.label, settings_text(o.settings)


def _machine_label(hardware: HardwareProfile, device: str) -> str:
    """Return the name of a machine; with the model of the processor or accelerator, if the name is only a hash."""
    name = machine_name(hardware)
    return f"{machine_of(hardware, device).name} {name}" if hardware.name == DETECTED else name


def _label_text(text: str) -> str:
    """Return a text that can be the value of a label; a long one ends with its hash, so that it stays unique."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= MOST_LABEL_CHARACTERS:
        return text
    return f"{text[: MOST_LABEL_CHARACTERS - 10]}… {hash_of_text(text)[:8]}"


def _seconds_of(started_at: str) -> float:
    started = datetime.fromisoformat(started_at)
    return (started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp()
