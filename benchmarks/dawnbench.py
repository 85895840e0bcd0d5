"""Compares the costs of DAWNBench's ImageNet trainings with those that the model of `hardware choose` predicts.

    python -m benchmarks.dawnbench

The first table lists the shipped entries with a published cost, on accelerators with known rates. The second one has
their pairs: for each selection, how often the cheaper one is right, by the model's times with the entries' own prices
and numbers of machines, and by three simple rules. Pairs on equal machines at equal prices are left out: the model
predicts equal costs. An error counts only if the costs, published and predicted, differ by more than 10 %.

The stacks and the trainings are not the same: entries have other frameworks, other models, other batch sizes, and
tricks such as growing images, which need fewer epochs. No rule knows of these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from knowledge.domain.hardware import Accelerator
from knowledge.domain.observation import DAWNBENCH, Observation
from knowledge.domain.ratio import Ratio
from knowledge.estimate.machine_times import MachineSize, MachineTimes, PublishedTimes
from knowledge.estimate.model_cache import shipped_level_variances, shipped_ratio_variances, shipped_scaling_variances
from knowledge.estimate.scaling_model import ScalingModel
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import DEFAULT, SHORT, load_rows
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.scaling_pairs import scaling_pairs
from knowledge.hardware.accelerators import model_of
from knowledge.hardware.peaks import peak_operations
from knowledge.store.base import KnowledgeBase
from knowledge.store.engine import open_knowledge_base

TASKS = [("resnet50", "training")]
"""Published tasks of the workload ``resnet50-training``."""
CERTAIN = math.log(1.1)
"""Least difference of two costs, as a logarithm, for an order that counts as an error."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedTraining:
    """An entry with a published cost.

    Attributes:
        entry: The entry.
        size: Its accelerators.
        accelerator: Those of one machine.
        hourly: USD an hour for all machines.
        cost: USD to the required quality.
    """

    entry: Observation
    size: MachineSize
    accelerator: Accelerator
    hourly: float
    cost: float

    @property
    def name(self) -> str:
        """Name of the entry's file."""
        return self.entry.block.rpartition("/")[2]

    @property
    def model(self) -> str:
        """The trained model."""
        return str(self.entry.indicator.parameters["model"])

    @property
    def peak(self) -> float:
        """Peak rate of all accelerators in FLOP/s, in 16 bits where they are faster."""
        return (peak_operations(self.accelerator, "float16") or math.nan) * self.size.total


def priced_trainings(store: KnowledgeBase) -> list[PricedTraining]:
    """Return the entries of ImageNet with a published cost, on accelerators with known rates, the cheapest first."""
    listed = []
    for o in store.observations(indicator=DAWNBENCH):
        model = model_of(o.hardware.accelerators[0]) if o.hardware.accelerators else None
        if o.indicator.parameters["task"] == "imagenet" and "usd" in o.metrics and model and features_of(model):
            accelerator, nodes = o.hardware.accelerators[0], o.hardware.nodes or 1
            size = MachineSize(accelerator=model.name, count=accelerator.count, nodes=nodes)
            prices = {"hourly": o.metrics["usd_per_hour"], "cost": o.metrics["usd"]}
            listed.append(PricedTraining(entry=o, size=size, accelerator=accelerator, **prices))
    return sorted(listed, key=lambda training: training.cost)


def predicted_ratio(times: MachineTimes, trainings: Sequence[PricedTraining], one: int, other: int) -> Ratio:
    """Return how many times less one training costs than another one, by the model's times."""
    prices = math.log(trainings[other].hourly / trainings[one].hourly)
    return times.speedup(one, other).times(Ratio(mean=prices, variance=0.0))


RULES: dict[str, Callable[[PricedTraining], float]] = {
    "lowest hourly price": lambda training: training.hourly,
    "lowest price of the peak rate": lambda training: training.hourly / training.peak,
    "highest peak rate": lambda training: 1 / training.peak,
}
"""Simple rules: the cost of a training up to a factor."""
SELECTIONS: dict[str, Callable[[PricedTraining, PricedTraining], bool]] = {
    "all": lambda one, other: True,
    "ResNet-50": lambda one, other: one.model == other.model == "resnet50",
    "ResNet-50, one framework": lambda one, other: (
        one.model == other.model == "resnet50" and one.entry.framework == other.entry.framework
    ),
    "ResNet-50, other accelerators": lambda one, other: (
        one.model == other.model == "resnet50" and one.size.accelerator[:4] != other.size.accelerator[:4]
    ),
}


def pair_lines(trainings: Sequence[PricedTraining], regimes: dict[str, MachineTimes]) -> None:
    """Print how well each rule orders the costs of pairs of trainings."""
    print("\n| pairs | n | rule | right order | Kendall's tau | wrong beyond 10 % | ratio inside 95 % | median error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for selection, is_selected in SELECTIONS.items():
        pairs = [
            (a, b)
            for a, b in combinations(range(len(trainings)), 2)
            if is_selected(trainings[a], trainings[b])
            and (trainings[a].size, trainings[a].hourly) != (trainings[b].size, trainings[b].hourly)
        ]
        published = [math.log(trainings[b].cost / trainings[a].cost) for a, b in pairs]
        for name, times in regimes.items():
            ratios = [predicted_ratio(times, trainings, a, b) for a, b in pairs]
            inside = sum(abs(p - r.mean) <= r.half_width for p, r in zip(published, ratios, strict=True))
            line = order_cells(published, [ratio.mean for ratio in ratios], inside=f"{inside} of {len(pairs)}")
            print(f"| {selection} | {len(pairs)} | times, {name} | {line} |")
        for name, rule in RULES.items():
            logs = [math.log(rule(trainings[b]) / rule(trainings[a])) for a, b in pairs]
            print(f"| {selection} | {len(pairs)} | {name} | {order_cells(published, logs, inside='-')} |")


def order_cells(published: Sequence[float], predicted: Sequence[float], *, inside: str) -> str:
    """Return the cells of a rule: its order, Kendall's tau (tau-a), errors beyond 10 %, coverage, and median error.

    Args:
        published: Logarithms of the ratios of published costs (n).
        predicted: Those of predicted costs (n).
        inside: The coverage.
    """
    # Equal costs differ by rounding.
    signs = [0.0 if abs(q) < _EQUAL else p * q for p, q in zip(published, predicted, strict=True)]
    right, wrong = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    beyond = sum(p * q < 0 and min(abs(p), abs(q)) > CERTAIN for p, q in zip(published, predicted, strict=True))
    median = math.exp(statistics.median(abs(p - q) for p, q in zip(published, predicted, strict=True)))
    return f"{right} of {len(signs)} | {(right - wrong) / len(signs):.2f} | {beyond} | {inside} | x{median:.2f}"


def main() -> None:
    """Predict and print."""
    with open_knowledge_base("sqlite://") as store:
        rows, trainings = load_rows(store), priced_trainings(store)
    published = PublishedTimes(
        rows=rows,
        pairs=accelerator_pairs(rows),
        scaling=ScalingModel(scaling_pairs(rows), shipped_scaling_variances()),
        variances=shipped_ratio_variances(),
        levels=shipped_level_variances(),
    )
    sizes = [training.size for training in trainings]
    regimes = {
        name: times
        for name, regime in (("16 bits", SHORT), ("float32", DEFAULT))
        if (times := published.predict(sizes, tasks=TASKS, regime=regime)) is not None
    }
    print("| entry | model | framework | machines | USD an hour | USD | predicted (cheapest = 1) | published |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    short = next(iter(regimes.values()))
    ratios = [predicted_ratio(short, trainings, 0, number).speedup for number in range(len(trainings))]
    for training, ratio in zip(trainings, ratios, strict=True):
        size = training.size
        cells = (
            *(training.name, training.model, training.entry.framework),
            f"{size.nodes} x {size.count} x {size.accelerator}",
            *(f"{training.hourly:g}", f"{training.cost:.2f}", f"{ratio / min(ratios):.2f}"),
            f"{training.cost / trainings[0].cost:.2f}",
        )
        print(f"| {' | '.join(cells)} |")
    pair_lines(trainings, regimes)


if __name__ == "__main__":
    main()
