"""Published times of whole models on accelerators: one row for each configuration, accelerator and batch size."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import PUBLISHED, PUBLISHED_BLOCKS, Observation
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.mlperf import INFERENCE_BLOCK, TRAINING_BLOCK, inference_rows, training_rows
from knowledge.evidence.published_rows import first_publications, published_side
from knowledge.hardware.accelerators import AcceleratorModel, model_of
from knowledge.store.base import KnowledgeBase

DEFAULT, SHORT, MLPERF, REQUESTS = REGIMES = ("default", "short", "mlperf", "requests")
"""What decides how much faster a newer accelerator is: the default precision (none stated, float32, TF32), a shorter
one (mixed, 16 bits or fewer), that which a submitter to MLPerf chose, or the latency of few requests at a time."""
_MLPERF_BLOCKS = (TRAINING_BLOCK, INFERENCE_BLOCK)
_DEFAULT_PRECISIONS = ("", "fp32", "tf32")
_FEW_REQUESTS = 4
"""Largest batch size of inference whose time is a latency: such a batch does not fill an accelerator. A judgement."""
_LATENCIES = ("SingleStream", "MultiStream")
"""Scenarios of MLPerf Inference that measure latencies."""
TO_QUALITY = "trainings"
"""Unit of the times of MLPerf Training: one is a training to the quality that the round requires."""
_KIND = "accelerator rows"
_FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRow:
    """The published time of a whole model in one configuration on one model of accelerators.

    Attributes:
        source: Who published it.
        configuration: What else is the same in comparable rows, for people: settings and software.
        task: The whole model.
        mode: ``training`` or ``inference``.
        regime: One of :data:`REGIMES`, apart from the batch size.
        unit: What takes the time: ``images``, ``tokens``, ``trainings`` and so on, as the source states it.
        accelerator: Name of the model in the catalogue.
        count: Number of accelerators.
        batch: Batch size; empty if it is not stated.
        seconds: Time of an item on all of them together: the median of equal rows.
        year: Year of the newest of these.
        submitter: Who submitted it to MLPerf; empty for others.
    """

    source: str
    configuration: str
    task: str
    mode: str
    regime: str
    unit: str
    accelerator: str
    count: int
    batch: str
    seconds: float
    year: int
    submitter: str = ""

    @property
    def publisher(self) -> str:
        """Who measured it: the submitter to MLPerf, or the source."""
        return self.submitter.lower() or self.source

    @property
    def regime_of_batch(self) -> str:
        """The regime, with regard to the batch size: few requests at a time do not fill an accelerator."""
        is_small = self.batch.isdecimal() and int(self.batch) <= _FEW_REQUESTS
        return REQUESTS if self.mode == "inference" and is_small else self.regime


def accelerator_rows(observations: Iterable[Observation]) -> tuple[AcceleratorRow, ...]:
    """Return the published times of whole accelerators with stated rates, in order of source and configuration.

    Observations that are neither published rows nor results of MLPerf are ignored.
    """
    groups: dict[tuple[str | int, ...], list[tuple[Observation, AcceleratorModel]]] = defaultdict(list)
    every = tuple(observations)
    rows = first_publications(o for o in every if o.indicator.name == PUBLISHED and o.status == "ok")
    for o in (*rows, *training_rows(every), *inference_rows(every)):
        gpus = o.hardware.accelerators
        # A part of a GPU (MIG) has only a part of its speed.
        model = model_of(gpus[0]) if len(gpus) == 1 and not gpus[0].partition else None
        if model is not None and features_of(model):
            batch = str(o.indicator.parameters.get("batch", ""))
            count = gpus[0].count * (o.hardware.nodes or 1)
            groups[(*_configuration(o), count, model.name, batch)].append((o, model))
    return tuple(
        AcceleratorRow(
            source=str(source),
            task=str(task),
            mode=str(mode),
            regime=str(regime),
            configuration=str(words),
            unit=_unit(listed[0][0]),
            accelerator=str(name),
            count=int(count),
            batch=str(batch),
            seconds=statistics.median(o.samples[0] for o, _ in listed),
            year=max(int(o.started_at[:4]) for o, _ in listed),
            submitter=str(listed[0][0].indicator.parameters.get("submitter", "")),
        )
        for (source, task, mode, regime, words, count, name, batch), listed in sorted(groups.items())
    )


def load_rows(store: KnowledgeBase) -> tuple[AcceleratorRow, ...]:
    """Return the rows of a knowledge base, cached in it until its published measurements change."""
    blocks = [block for block in store.blocks() if block.trust > 0 and block.name.startswith(PUBLISHED_BLOCKS)]
    key = content_hash([_FORMAT, *(block.state for block in blocks)])
    cached = store.load_derived(_KIND, [(_KIND, key)])
    if _KIND not in cached:
        rows = accelerator_rows(o for block in blocks for o in store.observations(block=block.name))
        cached[_KIND] = {"rows": [asdict(row) for row in rows]}
        store.store_derived(_KIND, [(_KIND, key, cached[_KIND])])
    return tuple(AcceleratorRow(**record) for record in cached[_KIND]["rows"])


def _unit(o: Observation) -> str:
    if o.block in _MLPERF_BLOCKS:
        return TO_QUALITY if o.block == TRAINING_BLOCK else "queries"
    return str(o.indicator.parameters.get("unit", ""))


def _configuration(o: Observation) -> tuple[str, str, str, str, str]:
    """Return what must be the same in comparable rows: source, task, mode, regime, and settings and software."""
    side = published_side(o)
    # What an accelerator does by default differs between generations: float32 is TF32 on newer ones.
    settings = {name: value for name, value in side.settings.items() if (name, value) != ("precision", "tf32")}
    parameters = {name: str(value) for name, value in o.indicator.parameters.items() if name != "gpus"}
    # Where nothing says what the container of a table contains, it stands for the versions. Submitters to MLPerf state
    # their software for each system, in different words.
    container = "" if o.block in _MLPERF_BLOCKS else str(o.environment.get("container", ""))
    words = {**parameters, **settings, o.framework: side.version or container}
    task, mode = words.pop("task"), words.pop("mode")
    words.pop("batch", None)
    round_ = f" {o.environment['mlperf_round']}" if "mlperf_round" in o.environment else ""
    source = f"{o.block.removeprefix(f'{PUBLISHED}/')}{round_}"
    text = ", ".join(f"{name} {value}".strip() for name, value in sorted(words.items()))
    return source, task, mode, _regime(o, side.settings), text


def _regime(o: Observation, settings: Mapping[str, str]) -> str:
    if o.indicator.parameters.get("scenario") in _LATENCIES:
        return REQUESTS
    if o.block in _MLPERF_BLOCKS:
        return MLPERF
    return DEFAULT if settings.get("precision", "") in _DEFAULT_PRECISIONS else SHORT
