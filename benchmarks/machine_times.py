"""Holds out published times and pairs of numbers of accelerators, and prints how well they are predicted.

    python -m benchmarks.machine_times

The table is of efficiencies of several accelerators: each group is predicted from all others. The lines below it say by
how much the logarithms of times differ between publishers, and between the configurations of a publisher.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from knowledge.estimate.accelerator_ratio import ROW, RatioModel, relative_speeds, selected
from knowledge.estimate.machine_times import PublishedTimes, levels_by_publisher, spreads_of
from knowledge.estimate.model_cache import shipped_ratio_variances, shipped_scaling_variances
from knowledge.estimate.scaling_model import ScalingModel
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, SHORT, load_rows
from knowledge.evidence.scaling_pairs import ScalingPair, scaling_pairs
from knowledge.store.engine import open_knowledge_base

NORMAL_90 = 1.6448536269514722
"""Standard deviations on both sides that contain 90 % of a normal distribution."""
GROUPS: dict[str, Callable[[ScalingPair], object]] = {
    "task": lambda pair: (pair.task, pair.mode),
    "source": lambda pair: pair.source,
    "accelerator": lambda pair: pair.accelerator,
}
SELECTIONS: dict[str, Callable[[ScalingPair], bool]] = {
    "all": lambda _: True,
    "to quality": lambda pair: pair.is_to_quality,
}


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


def spread_lines(published: PublishedTimes) -> None:
    """Print by how much times differ between publishers, and between the configurations of one."""
    model = RatioModel(selected(published.pairs, ()), published.variances)
    between, within = [], []
    compared = sorted({(pair.task, pair.mode, pair.regime) for pair in published.pairs})
    for task, mode, regime in compared:
        _, rows = published.typical([(task, mode)], regime)
        if rows and regime in (DEFAULT, SHORT):
            names = sorted({row.accelerator for row in rows})
            means, errors = relative_speeds(
                model, published.variances, names, reference=names[0], tasks=[(task, mode)], regime=regime
            )
            speeds = {name: (float(means[n]), float(errors[n, n])) for n, name in enumerate(names)}
            spreads = spreads_of(levels_by_publisher(rows, speeds, error=published.variances[ROW]))
            between += [spreads[0]] if spreads[0] else []
            within += [spreads[1]] if spreads[1] else []
    square = math.sqrt(statistics.fmean(spread**2 for spread in between))
    print(f"\nbetween publishers: root mean square {square:.2f} of {len(between)} tasks in a precision")
    print(f"between configurations of one: median {statistics.median(within):.2f} of {len(within)}")


def main() -> None:
    """Hold out and print."""
    with open_knowledge_base("sqlite://") as store:
        rows = load_rows(store)
    model = ScalingModel(scaling_pairs(rows), shipped_scaling_variances())
    scaling_lines(model)
    pairs, variances = accelerator_pairs(rows), shipped_ratio_variances()
    spread_lines(PublishedTimes(rows=rows, pairs=pairs, scaling=model, variances=variances))


if __name__ == "__main__":
    main()
