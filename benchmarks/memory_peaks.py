"""Compares counted memory with published peaks, and prints the constants of `knowledge.estimate.memory_use`.

    python -m benchmarks.memory_peaks

The peaks are in `memory_peaks.json`. What the allocator reserves, and the spread, come from those of transformers; each
publisher is predicted with constants from all others. How much image models keep comes from the tables of timm: its
`benchmark.py` reduces the batch until a step fits into the memory, so a smaller batch than the first one says that this
batch fitted, and that the next larger one did not. Peaks of image models, and those of training that is divided over
accelerators, are then predicted. They change no constant, except that the latter have a spread of their own.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from benchmarks.machine_times import NORMAL_90
from knowledge.domain.ratio import CONFIDENCE, NORMAL_QUANTILE
from knowledge.estimate.memory_use import MIXED, MemoryModel, MemoryUse, ModelRun
from knowledge.estimate.model_shape import ImageModelShape, ModelShape, TransformerShape, find_shape, shape_of
from knowledge.evidence.timm import family_of, timm_tables

PEAKS = Path(__file__).with_suffix(".json")
MEMORY = 24 * 2**30
"""Bytes of the memory of an RTX 3090, of which timm's tables of training and older ones of inference are."""
_DEVICE = "NVIDIA GeForce RTX 3090"
_FIRST = {True: 512, False: 1024}
"""First batch of timm's tables of training and of inference."""
_RESERVES = [1 + step / 100 for step in range(61)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A published peak.

    Attributes:
        name: Its name.
        kind: Kind of program, such as ``transformer training``.
        publisher: Who published it.
        shape: The model.
        run: What was computed.
        measured: ``allocated``, ``reserved`` or ``device``.
        context: Bytes that the device needs without a program; 0 if the figure does not contain it.
        bytes: The figure.
    """

    name: str
    kind: str
    publisher: str
    shape: ModelShape
    run: ModelRun
    measured: str
    context: int
    bytes: int

    def use(self, model: MemoryModel) -> MemoryUse:
        """Return what the model predicts for what was measured."""
        reserve = 1.0 if self.measured == "allocated" else model.reserve
        return replace(model, reserve=reserve, context=self.context).use(self.shape, self.run)

    def error(self, model: MemoryModel) -> float:
        """Return the logarithm of the figure, relative to the prediction."""
        return math.log(self.bytes) - self.use(model).ratio.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The largest batch of a model of timm that fits.

    Attributes:
        shape: The model.
        run: A step with this batch.
        next_batch: The next larger batch, which does not fit; 0 if it was not tried.
    """

    shape: ImageModelShape
    run: ModelRun
    next_batch: int

    def factor(self, model: MemoryModel) -> float:
        """Return the values in memory for each counted activation: halfway between the two batches."""
        batch = math.sqrt(self.run.batch * self.next_batch)
        runs = replace(model, image_training=(1.0, 0.0), image_inference=(1.0, 0.0))
        fixed, one = (sum(runs.use(self.shape, replace(self.run, batch=n)).parts.values()) for n in (0, 1))
        return (MEMORY - fixed) / (one - fixed) / batch


@cache
def read_peaks() -> tuple[Peak, ...]:
    """Return the published peaks."""
    return tuple(_peak(row) for row in json.loads(PEAKS.read_text(encoding="utf-8"))["rows"])


def _peak(row: Mapping[str, Any]) -> Peak:
    shape: ModelShape
    shape = find_shape(row["model"]) if isinstance(row["model"], str) else shape_of(row["model"], name=row["id"])
    if isinstance(shape, TransformerShape) and not row.get("has_token_outputs", True):
        shape = replace(shape, outputs=0)
    return Peak(
        name=row["id"],
        kind=row["kind"],
        publisher=row["publisher"],
        shape=shape,
        run=ModelRun(**row["run"]),
        measured=row["measured"],
        context=row.get("context", 0),
        bytes=row["bytes"],
    )


@cache
def read_limits(*, is_training: bool) -> tuple[Limit, ...]:
    """Return the largest batches of the models of timm on one device, of training or of inference."""
    return tuple(_limits(is_training))


def _limits(is_training: bool) -> Iterator[Limit]:
    tables = timm_tables()
    mode = "training" if is_training else "inference"
    numbers = [n for n, table in enumerate(tables.tables) if table.mode == mode and table.machine.name == _DEVICE]
    run = ModelRun(is_training=is_training, batch=1, precision=MIXED, optimizer="momentum", keeps_gradients=True)
    for name, model in tables.models.items():
        batches: dict[int, int] = {}
        for ratio in model.ratios:
            arms = zip(tables.comparisons[ratio.comparison], (ratio.batch, ratio.reference_batch), strict=True)
            for number, batch in arms:
                # The usual memory format is the first table.
                if number == numbers[0] and model.sizes.get(ratio.size, (0.0, 0.0))[1] > 0:
                    batches[ratio.size] = batch
        for size, batch in batches.items():
            shape = ImageModelShape(
                name=name,
                parameters=round(model.parameters * 1e6),
                activations=model.sizes[size][1] * 1e6,
                size=size,
                source=tables.origin["address"],
            )
            following = 0 if batch >= _FIRST[is_training] or batch < 2 else next_batch(batch)
            if batch <= _FIRST[is_training]:
                yield Limit(shape=shape, run=replace(run, batch=batch), next_batch=following)


def next_batch(batch: int) -> int:
    """Return the batch before this one in timm's order, such as 64, 48, 32, 24, 16."""
    power: int = 1 << batch.bit_length() - 1
    return power * 3 // 2 if batch == power else power * 2


def fitted(peaks: Sequence[Peak]) -> MemoryModel:
    """Return the constants from some peaks of transformers on one accelerator, and from all models of timm."""
    transformers = [peak for peak in peaks if isinstance(peak.shape, TransformerShape) and peak.run.shares == 1]
    errors = []
    for publisher, own in _by_publisher(transformers).items():
        model = _with_reserve([peak for peak in transformers if peak.publisher != publisher])
        errors.append(statistics.fmean(peak.error(model) ** 2 for peak in own))
    model = replace(_with_reserve(transformers), spread=_spread(errors))
    divided = _by_publisher(peak for peak in peaks if peak.run.shares > 1).values()
    model = replace(
        model, divided_spread=_spread([statistics.fmean(peak.error(model) ** 2 for peak in own) for own in divided])
    )
    training, inference = (_factors(model, is_training=is_training) for is_training in (True, False))
    return replace(model, image_training=_center(training), image_inference=_center(inference))


def _spread(squares: Sequence[float]) -> float:
    """Return the standard deviation from the mean squares of the errors of each publisher.

    Few publishers: their spread is uncertain, too.
    """
    wider = float(student.ppf((1 + CONFIDENCE) / 2, len(squares) - 1)) / NORMAL_QUANTILE
    return round(math.sqrt(statistics.fmean(squares)) * wider, 3)


def _with_reserve(peaks: Iterable[Peak]) -> MemoryModel:
    """Return a model with the reserve that predicts peaks best; all publishers count the same."""
    listed = _by_publisher(peaks).values()

    def square(model: MemoryModel) -> float:
        return statistics.fmean(statistics.fmean(peak.error(model) ** 2 for peak in own) for own in listed)

    return min((MemoryModel(reserve=value) for value in _RESERVES), key=square)


def _by_publisher(peaks: Iterable[Peak]) -> dict[str, list[Peak]]:
    groups: dict[str, list[Peak]] = defaultdict(list)
    for peak in peaks:
        groups[peak.publisher].append(peak)
    return groups


def _factors(model: MemoryModel, *, is_training: bool) -> list[tuple[str, float]]:
    """Return the family of each model of timm whose largest batch is known, and the logarithm of its factor."""
    limits = [limit for limit in read_limits(is_training=is_training) if limit.next_batch]
    factors = [(family_of(limit.shape.name), limit.factor(model)) for limit in limits]
    return [(family, math.log(factor)) for family, factor in factors if factor > 0]


def _center(factors: Iterable[tuple[str, float]], family: str = "") -> tuple[float, float]:
    """Return the middle of factors and their standard deviation, without a family."""
    values = [value for own, value in factors if own != family]
    return round(math.exp(statistics.fmean(values)), 2), round(statistics.stdev(values), 2)


@cache
def held_out() -> tuple[tuple[Peak, float, float], ...]:
    """Return each peak with its error and its standard deviation, by the constants from other publishers."""
    peaks = read_peaks()
    models = {name: fitted([p for p in peaks if p.publisher != name]) for name in _by_publisher(peaks)}
    return tuple(
        (peak, peak.error(model := models[peak.publisher]), math.sqrt(peak.use(model).variance)) for peak in peaks
    )


def coverage(rows: Sequence[tuple[Peak, float, float]]) -> float:
    """Return the share of peaks inside an interval of 90 %."""
    return statistics.fmean(abs(error) <= NORMAL_90 * deviation for _, error, deviation in rows)


@cache
def decisions(*, is_training: bool) -> Mapping[str, tuple[int, int]]:
    """Return how often the models of timm are judged wrongly, and the number of cases, each family held out."""
    excluded, promised, undecided = [], [], []
    common = fitted(read_peaks())
    factors = _factors(common, is_training=is_training)
    centers: dict[str, tuple[float, float]] = {}
    for limit in read_limits(is_training=is_training):
        family = family_of(limit.shape.name)
        center = centers[family] = centers.get(family) or _center(factors, family)
        model = replace(common, image_training=center, image_inference=center)
        fits = model.use(limit.shape, limit.run).fits(MEMORY)
        excluded.append(fits is False)
        undecided.append(fits is None)
        if limit.next_batch:
            run = replace(limit.run, batch=limit.next_batch)
            promised.append(model.use(limit.shape, run).fits(MEMORY) is True)
    groups = {"excluded, but it ran": excluded, "promised, but it failed": promised, "not decided": undecided}
    return {name: (sum(cases), len(cases)) for name, cases in groups.items()}


def main() -> None:
    """Hold out and print."""
    model = fitted(read_peaks())
    print(f"reserve {model.reserve:.2f}, spread {model.spread:.3f}, divided {model.divided_spread:.3f}")
    print(f"image models: training {model.image_training}, inference {model.image_inference}\n")
    print("| held out | peaks | publishers | bias | error | inside 90 % |")
    print("| --- | --- | --- | --- | --- | --- |")
    keys: list[Callable[[Peak], str]] = [lambda _: "all", lambda peak: peak.kind, lambda peak: peak.publisher]
    for key in keys:
        groups: dict[str, list[tuple[Peak, float, float]]] = defaultdict(list)
        for row in held_out():
            groups[key(row[0])].append(row)
        for name, rows in groups.items():
            errors = [error for _, error, _ in rows]
            square = math.sqrt(statistics.fmean(error**2 for error in errors))
            publishers = len({peak.publisher for peak, *_ in rows})
            cells = (name, str(len(rows)), str(publishers), f"{statistics.fmean(errors):+.3f}", f"{square:.3f}")
            print(f"| {' | '.join((*cells, f'{coverage(rows):.0%}'))} |")
    for is_training in (True, False):
        shares = [f"{name} {n} of {total}" for name, (n, total) in decisions(is_training=is_training).items()]
        print(f"\ntimm, {'training' if is_training else 'inference'} in 24 GiB: {'; '.join(shares)}")


if __name__ == "__main__":
    main()
