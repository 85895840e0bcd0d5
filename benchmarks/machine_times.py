"""Holds out published times, and numbers and ratios of accelerators, and prints how well they are predicted.

    python -m benchmarks.machine_times

The tables are, with errors as root mean squares of logarithms:

- efficiencies of several accelerators: each group is predicted from all others;
- efficiencies by the connection of accelerators, which are predictions and published medians;
- times to train to a quality: each round of MLPerf Training is predicted from the other rounds and sources. The spreads
  of levels are fitted without it, too;
- ratios of two machines that differ in the accelerator, in the number of accelerators or in both, in one published
  configuration: each accelerator, publisher, round of MLPerf and task is held out. They are compared with the ratios of
  peak rates, of memory bandwidths, both without a loss, and, for machines with a score in another benchmark of MLPerf
  Training, with the median ratio of these scores.

The lines below say by how much the logarithms of times differ between publishers, and between the configurations of a
publisher. It takes about half an hour.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

import pi_runners as pi_runners  # It adds the frameworks.
from benchmarks.held_out import accelerator_of
from knowledge.estimate.accelerator_ratio import evenly, rates_of
from knowledge.estimate.machine_times import MachineSize, PublishedTimes
from knowledge.estimate.model_cache import (
    shipped_level_variances,
    shipped_ratio_variances,
    shipped_scaling_variances,
)
from knowledge.estimate.scaling_model import MACHINE, Enlargement, ScalingModel, configuration_of, link_of
from knowledge.estimate.time_levels import ROW, fit_levels, spreads_of, years_of
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, SHORT, TO_QUALITY, AcceleratorRow, load_rows
from knowledge.evidence.scaling_pairs import ScalingPair, scaling_pairs
from knowledge.store.engine import open_knowledge_base

NORMAL_90, NORMAL_95 = 1.6448536269514722, 1.959963984540054
"""Standard deviations on both sides that contain 90 % and 95 % of a normal distribution."""
GROUPS: dict[str, Callable[[ScalingPair], object]] = {
    "task": lambda pair: (pair.task, pair.mode),
    "source": lambda pair: pair.source,
    "accelerator": lambda pair: pair.accelerator,
}
SELECTIONS: dict[str, Callable[[ScalingPair], bool]] = {
    "all": lambda _: True,
    "to quality": lambda pair: pair.is_to_quality,
}
LINKS = {"nvlink": "b200", "pcie": "l40s"}
"""Connections of the accelerators of a machine, and an accelerator with it that has few pairs."""
LARGE = math.log(1.1)
"""Least log ratio whose sign counts."""
MOST_TOGETHER = 100
"""Most ratios of a group that are predicted, evenly selected: some sources have a thousand."""
REGIMES = (DEFAULT, SHORT, MLPERF)
"""Where more accelerators compute more items; a request is not answered in less time."""


class Time(NamedTuple):
    """A published time to train that was held out, and its predictions, as logarithms.

    Attributes:
        row: The published time.
        is_seen: Whether its accelerator is known from other rounds of the benchmark.
        mean: Prediction.
        deviation: Its standard deviation.
        peak: Prediction from the peak rate alone, without a loss.
    """

    row: AcceleratorRow
    is_seen: bool
    mean: float
    deviation: float
    peak: float

    @property
    def truth(self) -> float:
        """Logarithm of the published time."""
        return math.log(self.row.seconds)


class MachineRatio(NamedTuple):
    """Two published rows of one configuration, and the predicted log ratio of their speeds.

    Attributes:
        one: The first row.
        other: The second one.
        mean: Prediction.
        deviation: Its standard deviation, with the noise of both rows.
    """

    one: AcceleratorRow
    other: AcceleratorRow
    mean: float = 0.0
    deviation: float = 0.0

    @property
    def truth(self) -> float:
        """The published log ratio."""
        return math.log(self.other.seconds / self.one.seconds)


RATIO_GROUPS: dict[str, Callable[[AcceleratorRow], str]] = {
    "accelerator": lambda row: row.accelerator,
    "source": lambda row: row.source.partition(" v")[0],
    "round": lambda row: row.source if row.source.startswith("MLPerf") else "",
    "task": lambda row: f"{row.task} {row.mode}",
}
"""What is held out, by its name; rows without a name are not."""


def published_times(rows: Sequence[AcceleratorRow]) -> PublishedTimes:
    """Return what some rows say, with the shipped variances."""
    return PublishedTimes(
        rows=rows,
        pairs=accelerator_pairs(rows),
        scaling=ScalingModel(scaling_pairs(rows), shipped_scaling_variances()),
        variances=shipped_ratio_variances(),
        levels=shipped_level_variances(),
    )


def machine_of(row: AcceleratorRow) -> MachineSize:
    """Return the accelerators of a row, in machines of the usual size."""
    machines = row.count // MACHINE
    if machines * MACHINE == row.count:
        return MachineSize(accelerator=row.accelerator, count=MACHINE, nodes=machines)
    return MachineSize(accelerator=row.accelerator, count=row.count)


def peak_rate(row: AcceleratorRow) -> float:
    """Return the logarithm of the peak rate of all accelerators of a row, at the precision that programs use there."""
    _, _, tf32, short, _ = rates_of(accelerator_of(row.accelerator))
    return math.log(2) * (tf32 if row.regime == DEFAULT else short) + math.log(row.count)


def bandwidth(row: AcceleratorRow) -> float:
    """Return the logarithm of the memory bandwidth of all accelerators of a row."""
    return math.log(2) * rates_of(accelerator_of(row.accelerator))[0] + math.log(row.count)


def scaling_lines(model: ScalingModel) -> None:
    """Print the error and the coverage of held-out efficiencies."""
    print("| held out | pairs | n | error | of no loss | inside 90 % | width |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, key in GROUPS.items():
        groups: dict[object, list[int]] = defaultdict(list)
        for number, pair in enumerate(model.pairs):
            groups[key(pair)].append(number)
        rows = [
            (model.pairs[number], float(mean), float(deviation))
            for group, means, deviations in model.held_out(groups.values())
            for number, mean, deviation in zip(group, means, deviations, strict=True)
        ]
        for kind, is_selected in SELECTIONS.items():
            listed = [row for row in rows if is_selected(row[0])]
            errors = np.array([pair.mean - mean for pair, mean, _ in listed])
            widths = 2 * NORMAL_90 * np.array([deviation for *_, deviation in listed])
            none = math.sqrt(statistics.fmean(pair.mean**2 for pair, *_ in listed))
            cells = (
                *(name, kind, str(len(listed)), f"{math.sqrt(float(np.mean(errors**2))):.3f}", f"{none:.3f}"),
                *(f"{np.mean(np.abs(errors) < widths / 2):.0%}", f"{np.median(widths):.2f}"),
            )
            print(f"| {' | '.join(cells)} |")


def link_lines(model: ScalingModel) -> None:
    """Print the efficiencies by the connection of accelerators, inside of a machine and beyond it."""
    print("\nEfficiency of eight accelerators of a machine, by their connection, of a new task\n")
    print("| connection | accelerator | pairs | published | predicted | inside 90 % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for link, accelerator in LINKS.items():
        losses = [
            pair.mean / math.log2(pair.many / pair.few)
            for pair in model.pairs
            if link_of(pair.accelerator) == link and pair.many <= MACHINE and not pair.is_to_quality
        ]
        published = math.exp(math.log2(MACHINE) * statistics.median(losses))
        print(f"| {link} | {accelerator} | {len(losses)} | {published:.2f} | {_efficiency(model, accelerator, 1, 8)} |")
    print("\nEfficiency of 64 accelerators in 8 machines, relative to one machine\n")
    print("| work | predicted | inside 90 % |\n| --- | --- | --- |")
    accelerator = LINKS["nvlink"]
    print(f"| items | {_efficiency(model, accelerator, 8, 64)} |")
    for minutes in (10, 60, 600):
        text = _efficiency(model, accelerator, 8, 64, seconds=60.0 * minutes)
        print(f"| training of {minutes} minutes on 8 | {text} |")
    print(
        "\n| effect of the connection | error of held-out accelerators | of held-out connections |\n| --- | --- | --- |"
    )
    variances = shipped_scaling_variances()
    for name, own in (("yes", variances), ("no", {**variances, "inside link": 1e-9})):
        other = ScalingModel(model.pairs, own)
        errors = (
            _held_out_error(other, lambda p: p.accelerator),
            _held_out_error(other, lambda p: link_of(p.accelerator)),
        )
        print(f"| {name} | {' | '.join(f'{error:.3f}' for error in errors)} |")


def _efficiency(model: ScalingModel, accelerator: str, few: int, many: int, *, seconds: float | None = None) -> str:
    """Return the efficiency of a task that nobody published, with its interval, as cells of a table."""
    target = Enlargement(
        task="",
        mode="training",
        is_to_quality=seconds is not None,
        accelerator=accelerator,
        few=few,
        many=many,
        seconds=seconds,
    )
    (mean,), ((variance,),) = model.predict([target])
    low, high = (math.exp(mean + sign * NORMAL_90 * math.sqrt(variance)) for sign in (-1, 1))
    return f"{math.exp(mean):.2f} | {low:.2f} to {high:.2f}"


def _held_out_error(model: ScalingModel, key: Callable[[ScalingPair], object]) -> float:
    groups: dict[object, list[int]] = defaultdict(list)
    for number, pair in enumerate(model.pairs):
        groups[key(pair)].append(number)
    squares = [
        (model.pairs[number].mean - float(mean)) ** 2
        for group, means, _ in model.held_out(groups.values())
        for number, mean in zip(group, means, strict=True)
    ]
    return math.sqrt(statistics.fmean(squares))


def held_out_times(rows: Sequence[AcceleratorRow]) -> tuple[list[Time], int]:
    """Return the predicted times to train of each round, and the number of those whose benchmark no other round has."""
    trained = [row for row in rows if row.unit == TO_QUALITY]
    times, alone = [], 0
    for source in sorted({row.source for row in trained}):
        remaining = [row for row in rows if row.source != source]
        published = published_times(remaining)
        published = replace(published, levels=fit_levels(published.quality_priors()))
        for task in sorted({(row.task, row.mode) for row in trained if row.source == source}):
            listed = [row for row in trained if row.source == source and (row.task, row.mode) == task]
            others = [row for row in trained if row.source != source and (row.task, row.mode) == task]
            if not others:
                alone += len(listed)
                continue
            year = years_of(listed)[0]
            result = published.times([machine_of(row) for row in listed], tasks=[task], regime=MLPERF, year=year)
            work = statistics.median(math.log(row.seconds) + peak_rate(row) for row in others)
            models = {row.accelerator for row in others}
            for place, row in enumerate(listed):
                item = result.item(place)
                times.append(Time(row, row.accelerator in models, item.mean, item.deviation, work - peak_rate(row)))
    return times, alone


def time_lines(times: Sequence[Time], alone: int) -> None:
    """Print the errors and the coverage of held-out times to train."""
    print(f"\nTimes to train, each round held out; {alone} more are of benchmarks that no other round has.\n")
    print("| times | n | error | of peak rates | inside 90 % | width |")
    print("| --- | --- | --- | --- | --- | --- |")
    selections: dict[str, Callable[[Time], bool]] = {
        "all": lambda _: True,
        "accelerator of other rounds": lambda time: time.is_seen,
        "new accelerator": lambda time: not time.is_seen,
        **{
            source: lambda time, source=source: time.row.source == source  # type: ignore[misc]
            for source in sorted({time.row.source for time in times})
        },
    }
    for name, is_selected in selections.items():
        listed = [time for time in times if is_selected(time)]
        errors = np.array([(time.truth - time.mean, time.truth - time.peak) for time in listed])
        deviations = np.array([time.deviation for time in listed])
        own, of_peak = np.sqrt(np.mean(errors**2, axis=0))
        inside = np.mean(np.abs(errors[:, 0]) <= NORMAL_90 * deviations)
        width = 2 * NORMAL_90 * np.median(deviations)
        print(f"| {name} | {len(listed)} | {own:.3f} | {of_peak:.3f} | {inside:.0%} | {width:.2f} |")


def machine_ratios(rows: Iterable[AcceleratorRow]) -> list[MachineRatio]:
    """Return pairs of rows of one configuration: each with the next of the others, in a fixed random order."""
    groups: dict[Hashable, dict[tuple[str, int], AcceleratorRow]] = defaultdict(dict)
    for row in rows:
        if row.regime_of_batch in REGIMES:
            group = groups[configuration_of(row)]
            machine = row.accelerator, row.count
            group[machine] = min(row, group.get(machine, row), key=lambda row: row.seconds)
    generator, ratios = random.Random(20261129), []
    for _, group in sorted(groups.items(), key=lambda item: str(item[0])):
        listed = list(group.values())
        generator.shuffle(listed)
        ratios += [MachineRatio(one, other) for one, other in pairwise(listed)]
    return ratios


def held_out_ratios(
    rows: Sequence[AcceleratorRow], ratios: Sequence[MachineRatio], key: Callable[[AcceleratorRow], str]
) -> Iterator[MachineRatio]:
    """Yield ratios with their predictions, each without the rows of one group."""
    for name in sorted({key(row) for row in rows} - {""}):
        hidden = evenly([ratio for ratio in ratios if name in (key(ratio.one), key(ratio.other))], MOST_TOGETHER)
        if hidden:
            published = published_times([row for row in rows if key(row) != name])
            by_task: dict[tuple[str, str, str], list[MachineRatio]] = defaultdict(list)
            for ratio in hidden:
                by_task[ratio.one.task, ratio.one.mode, ratio.one.regime_of_batch].append(ratio)
            for task, listed in by_task.items():
                yield from _predicted(published, task, listed)


def _predicted(
    published: PublishedTimes, task: tuple[str, str, str], ratios: Sequence[MachineRatio]
) -> Iterator[MachineRatio]:
    machines = [machine_of(row) for ratio in ratios for row in (ratio.one, ratio.other)]
    times = published.times(machines, tasks=[task[:2]], regime=task[2])
    row = (published.levels if ratios[0].one.unit == TO_QUALITY else published.variances)[ROW]
    for place, ratio in enumerate(ratios):
        speedup = times.speedup(2 * place, 2 * place + 1)
        yield ratio._replace(mean=speedup.mean, deviation=math.sqrt(speedup.variance + 2 * row))


class Scores:
    """The best scores of machines in MLPerf Training."""

    def __init__(self, rows: Iterable[AcceleratorRow]) -> None:
        self._by_machine: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
        for row in rows:
            if row.unit == TO_QUALITY:
                scores = self._by_machine[row.accelerator, row.count]
                scores[row.task] = min(row.seconds, scores.get(row.task, row.seconds))

    def ratio(self, ratio: MachineRatio) -> float | None:
        """Return the median log ratio of the machines' scores at other tasks; ``None`` if they have none in common."""
        one, other = (self._by_machine.get((row.accelerator, row.count), {}) for row in (ratio.one, ratio.other))
        common = sorted((one.keys() & other.keys()) - {ratio.one.task})
        return statistics.median(math.log(other[task] / one[task]) for task in common) if common else None


def ratio_lines(results: Iterable[tuple[str, Sequence[MachineRatio]]], scores: Scores) -> None:
    """Print the errors, the wrong signs and the coverage of held-out ratios of machines."""
    print("\nRatios of two machines. Wrong signs are those of published ratios of more than 1.1.\n")
    columns = ("error", "of peak rates", "of bandwidths", "wrong signs", "inside 90 %", "inside 95 %", "width of 95 %")
    print(f"| held out | ratios | n | {' | '.join(columns)} | n with scores | error | of scores | wrong signs |")
    print(f"| --- | --- |{' --- |' * (len(columns) + 5)}")
    kinds: dict[str, Callable[[MachineRatio], bool]] = {
        "all": lambda _: True,
        "other accelerator": lambda ratio: ratio.one.accelerator != ratio.other.accelerator,
        "other number": lambda ratio: ratio.one.count != ratio.other.count,
        "to quality": lambda ratio: ratio.one.unit == TO_QUALITY,
    }
    for name, every in results:
        for kind, is_selected in kinds.items():
            listed = [ratio for ratio in every if is_selected(ratio)]
            if listed:
                print(f"| {name} | {kind} | {' | '.join(_cells(listed, scores))} |", flush=True)


def _cells(ratios: Sequence[MachineRatio], scores: Scores) -> list[str]:
    truth, means, deviations = (np.array(column) for column in zip(*map(_numbers, ratios), strict=True))
    peaks = np.array([peak_rate(ratio.one) - peak_rate(ratio.other) for ratio in ratios])
    bandwidths = np.array([bandwidth(ratio.one) - bandwidth(ratio.other) for ratio in ratios])
    scored = [(ratio, score) for ratio in ratios if (score := scores.ratio(ratio)) is not None]
    errors = np.abs(truth - means)
    cells = [
        str(len(ratios)),
        *(_error(truth, values) for values in (means, peaks, bandwidths)),
        _signs(truth, (means, peaks, bandwidths)),
        *(f"{np.mean(errors <= normal * deviations):.0%}" for normal in (NORMAL_90, NORMAL_95)),
        f"{2 * NORMAL_95 * np.median(deviations):.2f}",
        str(len(scored)),
    ]
    if not scored:
        return [*cells, "", "", ""]
    truth, means, _ = (np.array(column) for column in zip(*(_numbers(ratio) for ratio, _ in scored), strict=True))
    others = np.array([score for _, score in scored])
    return [*cells, _error(truth, means), _error(truth, others), _signs(truth, (means, others))]


def _numbers(ratio: MachineRatio) -> tuple[float, float, float]:
    return ratio.truth, ratio.mean, ratio.deviation


def _error(truth: np.ndarray, values: np.ndarray) -> str:
    return f"{math.sqrt(float(np.mean((truth - values) ** 2))):.3f}"


def _signs(truth: np.ndarray, columns: Iterable[np.ndarray]) -> str:
    large = np.abs(truth) > LARGE
    wrong = [str(int(np.sum((np.sign(values) != np.sign(truth)) & large))) for values in columns]
    return f"{' / '.join(wrong)} of {int(large.sum())}"


def spread_lines(published: PublishedTimes) -> None:
    """Print by how much times differ between publishers, and between the configurations of one."""
    between, within = [], []
    compared = sorted({(pair.task, pair.mode, pair.regime) for pair in published.pairs})
    for task, mode, regime in compared:
        rows = published.typical([(task, mode)], regime)
        if rows and regime in (DEFAULT, SHORT):
            prior = published.prior([], rows, tasks=[(task, mode)], regime=regime)
            spreads = spreads_of(rows, prior.levels.tolist())
            between += [spreads[0]] if spreads[0] else []
            within += [spreads[1]] if spreads[1] else []
    square = math.sqrt(statistics.fmean(spread**2 for spread in between))
    print(f"\nbetween publishers: root mean square {square:.2f} of {len(between)} tasks in a precision")
    print(f"between configurations of one: median {statistics.median(within):.2f} of {len(within)}")


def main() -> None:
    """Hold out and print."""
    with open_knowledge_base("sqlite://") as store:
        rows = load_rows(store)
    published = published_times(rows)
    scaling_lines(published.scaling)
    link_lines(published.scaling)
    time_lines(*held_out_times(rows))
    ratios = machine_ratios(rows)
    results = ((name, list(held_out_ratios(rows, ratios, key))) for name, key in RATIO_GROUPS.items())
    ratio_lines(results, Scores(rows))
    spread_lines(published)


if __name__ == "__main__":
    main()
