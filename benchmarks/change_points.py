"""Simulated histories of daily runs: how soon a change of speed is noticed, and how many false alarms a year has.

    python -m benchmarks.change_points [--histories N] [--otava PYTHON] [--record]

Each history is looked at after every run, as `advisor pi history` would be. A year has 365 runs, after 60 that only say
what is usual. A change is one of 5 % after 120 runs; it counts as noticed with the first alarm at a look from then on.
Later runs can contradict an alarm: the changes that `advisor pi history` prints after the last run are counted, too.

With `--otava`, an interpreter that has Apache Otava (https://github.com/apache/otava), the same histories are looked at
by its `compute_change_points` with its defaults. An alarm of it is a change point that is not within five runs of one
that it reported before. It takes 30 ms for a look, so it sees fewer histories. `--record` writes its results for the
series of `tests/fixtures/otava/results.json`.

The noise is of four kinds: independent, autoregressive of the first order (the state of a machine lasts for days), with
one run in 50 that is 20 % slower, and Student's t with three degrees of freedom (many small outliers).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.api.stores import open_readable_store
from knowledge.evidence.change_points import ChangePoint, change_points, scan
from knowledge.evidence.history import SeriesFilter, load_series

RESULTS = Path(__file__).parents[1] / "tests" / "fixtures" / "otava" / "results.json"
Values = NDArray[np.float64]
_SEED = 20201
_YEAR, _USUAL, _BASE, _SOON, _AFTER = 365, 60, 120, 7, 30
_CHANGE = np.log(1.05)
_LEVELS = (0.005, 0.01, 0.02, 0.025, 0.03, 0.05)
_SAME_ALARM = 5
_LENGTHS = (200, 400, 800)
_OTAVA_HISTORIES = 10
_OTAVA = """
import importlib.metadata, json, sys
from otava.analysis import compute_change_points
request = json.load(sys.stdin)
places = [
    [[int(c.index) for c in compute_change_points(list(values[:look]))[0]] for look in looks]
    for values, looks in request
]
print(json.dumps({"version": importlib.metadata.version("apache-otava"), "places": places}))
"""


def independent(random: np.random.Generator, size: int) -> Values:
    """Return independent noise of unit variance; shape (size,)."""
    return random.normal(size=size)


def autoregressive(correlation: float) -> Callable[[np.random.Generator, int], Values]:
    """Return a function that makes autoregressive noise of unit variance."""

    def make(random: np.random.Generator, size: int) -> Values:
        values = random.normal(size=size)
        for number in range(1, size):
            values[number] = correlation * values[number - 1] + np.sqrt(1 - correlation**2) * values[number]
        return values

    return make


def heavy(random: np.random.Generator, size: int) -> Values:
    """Return Student's t with three degrees of freedom, of unit variance."""
    return np.asarray(random.standard_t(3, size=size) / np.sqrt(3))


NOISES: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "independent": independent,
    "autoregressive, 0.3": autoregressive(0.3),
    "autoregressive, 0.6": autoregressive(0.6),
    "2 % slow runs": independent,
    "Student's t": heavy,
}


def make_history(random: np.random.Generator, noise: str, level: float, size: int) -> Values:
    """Return the seconds of daily runs without a change; shape (size,)."""
    logs = level * NOISES[noise](random, size)
    if noise == "2 % slow runs":
        logs += np.log(1.2) * (random.random(size) < 0.02)
    return np.exp(logs)


def own_alarms(values: Values) -> list[int]:
    """Return the numbers of the values with which this program reports a change."""
    return [certain for _, certain in scan(values.tolist()).alarms]


def own_changes(values: Values) -> tuple[ChangePoint, ...]:
    """Return the changes that this program prints after the last value."""
    seconds = values.tolist()
    return change_points(seconds, scan(seconds))


class OtavaLooks:
    """Change points of Apache Otava after each look, in an interpreter that has it."""

    def __init__(self, python: str) -> None:
        self._python = python
        self.version = ""

    def change_points(self, request: Sequence[tuple[Sequence[float], Sequence[int]]]) -> list[list[list[int]]]:
        """Return the change points of each history at each of its looks, which are numbers of values."""
        text = json.dumps([[list(values), list(looks)] for values, looks in request])
        run = subprocess.run([self._python, "-c", _OTAVA], input=text, capture_output=True, text=True, check=True)
        answer = json.loads(run.stdout)
        self.version = answer["version"]
        return list(answer["places"])

    def alarms(self, histories: Iterable[Values], first: int) -> list[list[int]]:
        """Return the numbers of the values with which it reports a new change, for each history."""
        histories = list(histories)
        request = [(values.tolist(), range(first, len(values) + 1)) for values in histories]
        return [
            list(_new_alarms(looks, first)) for looks in self.change_points([(v, list(looks)) for v, looks in request])
        ]


def _new_alarms(looks: Sequence[Sequence[int]], first: int) -> Iterator[int]:
    reported: list[int] = []
    for number, places in enumerate(looks):
        for place in places:
            if all(abs(place - other) > _SAME_ALARM for other in reported):
                reported.append(place)
                # What it reports at the first look is older.
                if number:
                    yield first + number - 1


def false_alarms(otava: OtavaLooks | None, histories: int) -> Iterator[list[str]]:
    """Yield a row for each noise: false alarms for each history and year at 2 % of noise."""
    for noise in NOISES:
        random = np.random.default_rng(_SEED)
        years = [make_history(random, noise, 0.02, _USUAL + _YEAR) for _ in range(histories)]
        own = statistics.fmean(sum(alarm >= _USUAL for alarm in own_alarms(year)) for year in years)
        first = statistics.fmean(sum(alarm < _USUAL for alarm in own_alarms(year)) for year in years)
        printed = statistics.fmean(len(own_changes(year)) for year in years)
        other = ""
        if otava is not None:
            other = f"{statistics.fmean(map(len, otava.alarms(years[:_OTAVA_HISTORIES], _USUAL))):.2f}"
        yield [noise, f"{own:.2f}", f"{first:.2f}", other, f"{printed:.2f}"]


def long_histories(histories: int) -> Iterator[list[str]]:
    """Yield a row for each noise and length: what is printed of a change of 5 % at 2 % of noise, after the last run."""
    for noise in NOISES:
        for size in _LENGTHS:
            random = np.random.default_rng(_SEED)
            found, inside, other = 0, 0, 0
            for _ in range(histories):
                values = make_history(random, noise, 0.02, size)
                values[_BASE:] *= np.exp(_CHANGE)
                changes = own_changes(values)
                near = [c for c in changes if abs(c.start - _BASE) <= _SAME_ALARM]
                found += bool(near)
                inside += any(c.ratio.low <= np.exp(-_CHANGE) <= c.ratio.high for c in near)
                other += len(changes) - bool(near)
            share = f"{inside / found:.0%}" if found else ""
            yield [noise, str(size), f"{found / histories:.0%}", share, f"{other / histories:.2f}"]


def delays(otava: OtavaLooks | None, histories: int) -> Iterator[list[str]]:
    """Yield a row for each noise and its level: how soon a change of 5 % is noticed."""
    for noise in NOISES:
        for level in _LEVELS:
            random = np.random.default_rng(_SEED)
            values = [make_history(random, noise, level, _BASE + _AFTER) for _ in range(histories)]
            for history in values:
                history[_BASE:] *= np.exp(_CHANGE)
            cells = _delay_cells([own_alarms(history) for history in values])
            if otava is not None:
                cells += _delay_cells(otava.alarms(values[: 2 * _OTAVA_HISTORIES], _BASE))
            yield [noise, f"{level:.1%}", *cells]


def _delay_cells(alarms: Sequence[Sequence[int]]) -> list[str]:
    """Return the share of histories whose change was noticed within a week, and the median number of runs."""
    runs = [next((alarm - _BASE + 1 for alarm in own if alarm >= _BASE), _AFTER + 1) for own in alarms]
    median = statistics.median(runs)
    return [
        f"{statistics.fmean(number <= _SOON for number in runs):.0%}",
        f"{median:g}" if median <= _AFTER else f"more than {_AFTER}",
    ]


def other_shapes(histories: int) -> Iterator[list[str]]:
    """Yield a row for each further shape at 1 % of noise: alarms for each history and year, and what they mean."""
    random = np.random.default_rng(_SEED)

    def alarms(make: Callable[[Values], Values]) -> float:
        years = (make(make_history(random, "independent", 0.01, _USUAL + _YEAR)) for _ in range(histories))
        return statistics.fmean(sum(alarm >= _USUAL for alarm in own_alarms(year)) for year in years)

    days = np.arange(_USUAL + _YEAR)
    for name, make in (
        ("drift of 2 % a year", lambda year: year * np.exp(0.02 * days / _YEAR)),
        ("drift of 10 % a year", lambda year: year * np.exp(0.1 * days / _YEAR)),
        ("weekends 1 % slower", lambda year: year * np.where(days % 7 >= 5, 1.01, 1.0)),
        ("a third of the runs missing", lambda year: year[random.random(len(year)) > 1 / 3]),
    ):
        yield [name, f"{alarms(make):.2f}"]


def shipped_spread(knowledge: str | None) -> Iterator[list[str]]:
    """Yield quartiles of the standard deviation between blocks of one stack, from the shipped measurements."""
    with open_readable_store(knowledge) as store:
        series = load_series(store, SeriesFilter(with_shipped=True))
    groups: dict[tuple[Any, str], list[float]] = defaultdict(list)
    for own in series:
        if not own.key.label.startswith(("mlperf", "published", "startup")):
            for point in own.points:
                groups[own.key, point.stack].append(float(np.log(point.seconds)))
    for name, prefix in (("all indicators", ""), ("whole models", "model@")):
        spreads = [
            statistics.stdev(logs)
            for (key, _), logs in groups.items()
            if len(logs) > 1 and key.label.startswith(prefix)
        ]
        quartiles = np.quantile(spreads, [0.25, 0.5, 0.75])
        yield [name, str(len(spreads)), *(f"{value:.1%}" for value in quartiles)]


def recorded_series() -> Iterator[list[str]]:
    """Yield a row for each series of the fixtures: the changes of this program, and those of Otava."""
    for name, record in json.loads(RESULTS.read_text(encoding="utf-8"))["series"].items():
        seconds = seconds_of(record)
        places = [change.start for change in change_points(seconds, scan(seconds))]
        yield [name, str(len(seconds)), _listed(places), _listed(record["otava"])]


def seconds_of(record: dict[str, Any]) -> list[float]:
    """Return the values of a recorded series as seconds."""
    return [1 / value if record["kind"] == "throughput" else value for value in record["values"]]


def _listed(places: Sequence[int]) -> str:
    return ", ".join(map(str, places)) or "none"


def scan_seconds() -> Iterator[list[str]]:
    """Yield the processor time of scans of 100,000 values in all."""
    random = np.random.default_rng(_SEED)
    for number, size in ((10_000, 10), (1_000, 100), (100, 1_000), (1, 100_000)):
        histories = [make_history(random, "independent", 0.02, size).tolist() for _ in range(number)]
        started = time.process_time()
        states = [scan(history) for history in histories]
        scanned = time.process_time()
        for history, state in zip(histories, states, strict=True):
            scan([*history, 1.0], state)
        yield [f"{number} x {size}", f"{scanned - started:.1f}", f"{time.process_time() - scanned:.1f}"]


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as a table of Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def record_results(otava: OtavaLooks) -> None:
    """Write the change points of Otava for each series of the fixtures."""
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    request = [(own["values"], [len(own["values"])]) for own in record["series"].values()]
    for own, (places,) in zip(record["series"].values(), otava.change_points(request), strict=True):
        own["otava"] = places
    record["version"] = f"apache-otava {otava.version}, compute_change_points with its defaults"
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Print the tables, or record the results of Otava."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--otava", metavar="PYTHON", help="interpreter that has apache-otava")
    parser.add_argument("--record", action="store_true", help="write the results of Otava to the fixtures")
    parser.add_argument("--knowledge", help="knowledge base with the shipped measurements")
    arguments = parser.parse_args()
    otava = OtavaLooks(arguments.otava) if arguments.otava else None
    if arguments.record:
        if otava is None:
            parser.error("--record needs --otava")
        record_results(otava)
        return
    print_table(
        "Spread between blocks",
        ["measurements", "groups", "lower quartile", "median", "upper quartile"],
        shipped_spread(arguments.knowledge),
    )
    print_table("Recorded series", ["series", "values", "changes", "Otava"], recorded_series())
    print_table("Processor time", ["series x values", "seconds", "one more value each"], scan_seconds())
    print_table(
        "False alarms",
        ["noise", "for each series and year", "in the first 60 runs", "Otava, series and year", "printed at the end"],
        false_alarms(otava, arguments.histories),
    )
    print_table(
        "Long histories",
        ["noise", "runs", "printed at the end", "interval contains it", "other changes"],
        long_histories(arguments.histories),
    )
    print_table("Other shapes", ["shape", "alarms for each series and year"], other_shapes(arguments.histories))
    print_table(
        "Delay",
        ["noise", "level", "within 7 runs", "median runs", *(("Otava within 7", "Otava median") if otava else ())],
        delays(otava, arguments.histories),
    )


if __name__ == "__main__":
    main()
