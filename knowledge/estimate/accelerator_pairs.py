"""Pairs of published measurements that differ in the accelerator only."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.estimate.evidence import features_of
from knowledge.estimate.mlperf_rows import inference_rows, training_rows
from knowledge.estimate.published_rows import published_side
from knowledge.hardware.accelerators import AcceleratorModel, model_of
from knowledge.store.base import KnowledgeBase

WIDEST_RATIO = math.log(100)
"""Largest log ratio of a pair; a larger one is a mistake of a table. The bound is a judgement."""
_KIND = "accelerator pairs"
_FORMAT = 1
_BLOCKS = (f"{PUBLISHED}/", "mlperf-")
"""Beginnings of the names of the blocks that hold published results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPair:
    """Two published rows of one configuration on the same number of accelerators of two models.

    Attributes:
        source: Who published them.
        configuration: What is the same in both, for people: batch, settings, software.
        task: The whole model.
        mode: ``training`` or ``inference``.
        accelerator: Name of the model in the catalogue.
        reference: Name of the model that it is compared with.
        mean: Log speed-up over the reference.
        count: Number of accelerators.
        year: Year of the newer row.
    """

    source: str
    configuration: str
    task: str
    mode: str
    accelerator: str
    reference: str
    mean: float
    count: int
    year: int


@dataclass(frozen=True, slots=True)
class _Row:
    model: AcceleratorModel
    seconds: float
    batch: str
    year: int


def accelerator_pairs(observations: Iterable[Observation]) -> tuple[AcceleratorPair, ...]:
    """Return pairs of published measurements that differ in the accelerator only, in order of source and configuration.

    In each configuration, every accelerator is compared with the first one by name: n rows give n - 1 pairs.

    Args:
        observations: Observations; those that are neither published rows nor results of MLPerf are ignored.
    """
    groups: dict[tuple[str, str, str, str, int], dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
    every = tuple(observations)
    rows = [o for o in every if o.indicator.name == PUBLISHED and o.status == "ok"]
    for o in (*rows, *training_rows(every), *inference_rows(every)):
        gpus = o.hardware.accelerators
        model = model_of(gpus[0]) if len(gpus) == 1 else None
        if model is not None and features_of(model):
            key = _configuration(o)
            row = _Row(model, o.samples[0], str(o.indicator.parameters.get("batch", "")), int(o.started_at[:4]))
            groups[(*key, gpus[0].count * (o.hardware.nodes or 1))][model.name].append(row)
    pairs = (_pairs(key, rows) for key, rows in sorted(groups.items()) if len(rows) > 1)
    return tuple(pair for listed in pairs for pair in listed)


def load_pairs(store: KnowledgeBase) -> tuple[AcceleratorPair, ...]:
    """Return the pairs of a knowledge base, cached in it until its published measurements change."""
    blocks = [block for block in store.blocks() if block.trust > 0 and block.name.startswith(_BLOCKS)]
    key = content_hash([_FORMAT, *(block.state for block in blocks)])
    cached = store.load_derived(_KIND, [(_KIND, key)])
    if _KIND not in cached:
        pairs = accelerator_pairs(o for block in blocks for o in store.observations(block=block.name))
        cached[_KIND] = {"pairs": [asdict(pair) for pair in pairs]}
        store.store_derived(_KIND, [(_KIND, key, cached[_KIND])])
    return tuple(AcceleratorPair(**record) for record in cached[_KIND]["pairs"])


def _pairs(key: tuple[str, str, str, str, int], rows: Mapping[str, list[_Row]]) -> Iterator[AcceleratorPair]:
    source, task, mode, configuration, count = key
    (reference, slow), *others = [(name, rows[name]) for name in sorted(rows)]
    for name, fast in others:
        mean = math.log(_best(slow) / _best(fast))
        if abs(mean) < WIDEST_RATIO:
            yield AcceleratorPair(
                source=source,
                configuration=configuration,
                task=task,
                mode=mode,
                accelerator=name,
                reference=reference,
                mean=mean,
                count=count,
                year=max(row.year for row in (*slow, *fast)),
            )


def _best(rows: Iterable[_Row]) -> float:
    """Return the seconds of the fastest batch; the rows of each batch are represented by their median."""
    by_batch: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_batch[row.batch].append(row.seconds)
    return min(map(statistics.median, by_batch.values()))


def _configuration(o: Observation) -> tuple[str, str, str, str]:
    """Return source, task, mode and everything else that must be the same."""
    side = published_side(o)
    # What an accelerator does by default differs between generations: float32 is TF32 on newer ones.
    settings = {name: value for name, value in side.settings.items() if (name, value) != ("precision", "tf32")}
    parameters = {name: str(value) for name, value in o.indicator.parameters.items() if name != "gpus"}
    words = {**parameters, **settings, o.framework: side.version}
    task, mode = words.pop("task"), words.pop("mode")
    if mode == "training":
        # A batch is as large as the memory of the accelerator allows: its size is one of its properties.
        words.pop("batch", None)
    round_ = f" {o.environment['mlperf_round']}" if "mlperf_round" in o.environment else ""
    return f"{o.block.removeprefix(f'{PUBLISHED}/')}{round_}", task, mode, _text(words)


def _text(words: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}".strip() for name, value in sorted(words.items()))
