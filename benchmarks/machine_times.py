"""Holds out published times and pairs of numbers of accelerators, and prints how well they are predicted.

    python -m benchmarks.machine_times

The first table is of efficiencies of several accelerators: each group is predicted from all others. The second line is
the median, over tasks with at least three published configurations, of the standard deviation between these.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from knowledge.estimate.machine_times import MachineSize, PublishedTimes
from knowledge.estimate.model_cache import shipped_ratio_variances, shipped_scaling_variances
from knowledge.estimate.scaling_model import ScalingModel
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, load_rows
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
FEWEST = 3


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


def spread_line(published: PublishedTimes) -> None:
    """Print the median standard deviation of the level between configurations."""
    spreads = []
    tasks = sorted({(row.task, row.mode) for row in published.rows if row.count == 1})
    for task in tasks:
        times = published.predict([MachineSize(accelerator="a100-sxm4-40gb")], tasks=[task], regime=DEFAULT)
        level = times.level if times is not None else None
        if level is not None and level.configurations >= FEWEST:
            spreads.append(level.spread)
    print(f"\nbetween configurations: median {statistics.median(spreads):.2f} of {len(spreads)} tasks")


def main() -> None:
    """Hold out and print."""
    with open_knowledge_base("sqlite://") as store:
        rows = load_rows(store)
    model = ScalingModel(scaling_pairs(rows), shipped_scaling_variances())
    scaling_lines(model)
    pairs, variances = accelerator_pairs(rows), shipped_ratio_variances()
    spread_line(PublishedTimes(rows=rows, pairs=pairs, scaling=model, variances=variances))


if __name__ == "__main__":
    main()
