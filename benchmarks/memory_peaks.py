"""Compares counted memory with published peaks, and prints the constants of `knowledge.estimate.memory_use`.

    python -m benchmarks.memory_peaks

The peaks are in `memory_peaks.json`. What the allocator reserves, and the spread, come from those of transformers; each
publisher is predicted with constants from all others. How much image models keep comes from the tables of timm: its
`benchmark.py` reduces the batch until a step fits into the memory, so a smaller batch than the first one says that this
batch fitted, and that the next larger one did not. Peaks of image models are then predicted, and change no constant.
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

from benchmarks.machine_times import NORMAL_90
from knowledge.estimate.memory_use import CONTEXT_BYTES, MIXED, MemoryModel, MemoryUse, ModelRun
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
    power = 2 ** int(math.log2(batch))
    return power * 3 // 2 if batch == power else power * 2


def fitted(peaks: Iterable[Peak], family: str = "") -> MemoryModel:
    """Return the constants from some peaks of transformers, and from all models of timm but those of a family."""
    transformers = [peak for peak in peaks if isinstance(peak.shape, TransformerShape)]
    start = MemoryModel(context=CONTEXT_BYTES)
    reserve = min(_RESERVES, key=lambda value: _square(transformers, replace(start, reserve=value)))
    model = replace(start, reserve=reserve)
    spread = math.sqrt(_square(transformers, model))
    factors = []
    for is_training in (True, False):
        limits = [limit for limit in read_limits(is_training=is_training) if limit.next_batch]
        values = [math.log(f) for x in limits if family_of(x.shape.name) != family and (f := x.factor(model)) > 0]
        factors.append((round(math.exp(statistics.fmean(values)), 2), round(statistics.stdev(values), 2)))
    return replace(model, spread=round(spread, 2), image_training=factors[0], image_inference=factors[1])


def _square(peaks: Iterable[Peak], model: MemoryModel) -> float:
    """Return the mean square error of publishers, all of which count the same."""
    errors: dict[str, list[float]] = defaultdict(list)
    for peak in peaks:
        errors[peak.publisher].append(peak.error(model) ** 2)
    return statistics.fmean(map(statistics.fmean, errors.values()))


@cache
def held_out() -> tuple[tuple[Peak, float, float], ...]:
    """Return each peak with its error and its standard deviation, by the constants from other publishers."""
    peaks = read_peaks()
    models = {p: fitted([peak for peak in peaks if peak.publisher != p]) for p in {peak.publisher for peak in peaks}}
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
    models: dict[str, MemoryModel] = {}
    for limit in read_limits(is_training=is_training):
        family = family_of(limit.shape.name)
        model = models.setdefault(family, fitted(read_peaks(), family))
        fits = model.use(limit.shape, limit.run).fits(MEMORY)
        excluded.append(fits is False)
        undecided.append(fits is None)
        if limit.next_batch:
            run = replace(limit.run, batch=limit.next_batch)
            promised.append(model.use(limit.shape, run).fits(MEMORY) is True)
    named = {"excluded, but it ran": excluded, "promised, but it failed": promised, "not decided": undecided}
    return {name: (sum(cases), len(cases)) for name, cases in named.items()}


def main() -> None:
    """Hold out and print."""
    model = fitted(read_peaks())
    print(f"reserve {model.reserve:.2f}, spread {model.spread:.2f}")
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
