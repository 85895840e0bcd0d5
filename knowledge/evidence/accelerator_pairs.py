"""Pairs of published measurements that differ in the accelerator only."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import PUBLISHED, PUBLISHED_BLOCKS, Observation
from knowledge.evidence.contrasts import features_of
from knowledge.evidence.mlperf import INFERENCE_BLOCK, TRAINING_BLOCK, inference_rows, training_rows
from knowledge.evidence.published_rows import first_publications, published_side
from knowledge.hardware.accelerators import AcceleratorModel, model_of
from knowledge.hardware.peaks import largest_ratio
from knowledge.store.base import KnowledgeBase

MARGIN = 2.0
"""By how much the ratio of a pair may exceed the ratio of the bandwidths and peak rates: software does not use every
accelerator in the same degree. The factor is a judgement."""
WIDEST_RATIO = math.log(20)
"""Largest log ratio of a pair whose peak rates are not stated. The bound is a judgement."""
DEFAULT, SHORT, MLPERF, REQUESTS = REGIMES = ("default", "short", "mlperf", "requests")
"""What decides how much faster a newer accelerator is: the default precision (none stated, float32, TF32), a shorter
one (mixed, 16 bits or fewer), that which a submitter to MLPerf chose, or the latency of few requests at a time."""
_MLPERF_BLOCKS = (TRAINING_BLOCK, INFERENCE_BLOCK)
_DEFAULT_PRECISIONS = ("", "fp32", "tf32")
_FEW_REQUESTS = 4
"""Largest batch size of inference whose time is a latency: such a batch does not fill an accelerator. A judgement."""
_LATENCIES = ("SingleStream", "MultiStream")
"""Scenarios of MLPerf Inference that measure latencies."""
_KIND = "accelerator pairs"
_FORMAT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPair:
    """Two published rows of one configuration on the same number of accelerators of two models.

    Attributes:
        source: Who published them.
        configuration: What is the same in both, for people: settings and software.
        task: The whole model.
        mode: ``training`` or ``inference``.
        regime: One of :data:`REGIMES`.
        accelerator: Name of the model in the catalogue.
        reference: Name of the model that it is compared with.
        mean: Log speed-up over the reference.
        count: Number of accelerators.
        year: Year of the newer row.
        batch: Batch size of the accelerator's row; empty if it is not stated.
        reference_batch: Batch size of the reference's row. It differs from ``batch`` only in training, and only if the
            source has no rows of these accelerators with one batch size.
    """

    source: str
    configuration: str
    task: str
    mode: str
    regime: str
    accelerator: str
    reference: str
    mean: float
    count: int
    year: int
    batch: str = ""
    reference_batch: str = ""

    @property
    def has_one_batch(self) -> bool:
        """Whether both rows have the same batch size, or neither states one."""
        return self.batch == self.reference_batch

    @property
    def log_batch(self) -> float:
        """Logarithm of the ratio of the batch sizes; 0 if one is not a number."""
        if not (self.batch.isdecimal() and self.reference_batch.isdecimal()):
            return 0.0
        return math.log(int(self.batch) / int(self.reference_batch))

    @property
    def publisher(self) -> str:
        """The source without the round of MLPerf."""
        return self.source.partition(" v")[0]


@dataclass(frozen=True, slots=True)
class _Row:
    """The rows of one configuration, accelerator and batch size."""

    model: AcceleratorModel
    batch: str
    seconds: float
    year: int


@dataclass(frozen=True, slots=True)
class _Configuration:
    """What must be the same in two rows, apart from the batch size."""

    source: str
    task: str
    mode: str
    regime: str
    words: str
    count: int


def accelerator_pairs(observations: Iterable[Observation]) -> tuple[AcceleratorPair, ...]:
    """Return pairs of published measurements that differ in the accelerator only, in order of source and configuration.

    In each configuration, the accelerators with rows of one batch size are compared with one of them, the first by name
    that most others can be compared with: n rows give at most n - 1 pairs. In training, the size of a batch follows
    from the memory of the accelerator, so accelerators that no common batch size connects are compared with the batch
    size at which each is the fastest.

    A ratio of :data:`MARGIN` times that of the bandwidths and peak rates is a mistake of a table: of two such rows, the
    one that fewer others can be compared with is left out. Observations that are neither published rows nor results of
    MLPerf are ignored.
    """
    groups: dict[_Configuration, dict[tuple[str, str], list[tuple[Observation, AcceleratorModel]]]]
    groups = defaultdict(lambda: defaultdict(list))
    every = tuple(observations)
    rows = first_publications(o for o in every if o.indicator.name == PUBLISHED and o.status == "ok")
    for o in (*rows, *training_rows(every), *inference_rows(every)):
        gpus = o.hardware.accelerators
        # A part of a GPU (MIG) has only a part of its speed.
        model = model_of(gpus[0]) if len(gpus) == 1 and not gpus[0].partition else None
        if model is not None and features_of(model):
            batch = str(o.indicator.parameters.get("batch", ""))
            key = _configuration(o, gpus[0].count * (o.hardware.nodes or 1))
            groups[key][model.name, batch].append((o, model))
    ordered = sorted(groups.items(), key=lambda group: astuple(group[0]))
    pairs = (_pairs(key, [_row(batch, rows) for (_, batch), rows in sorted(g.items())]) for key, g in ordered)
    return tuple(pair for listed in pairs for pair in listed)


def _row(batch: str, rows: Sequence[tuple[Observation, AcceleratorModel]]) -> _Row:
    seconds = statistics.median(o.samples[0] for o, _ in rows)
    return _Row(rows[0][1], batch, seconds, max(int(o.started_at[:4]) for o, _ in rows))


def load_pairs(store: KnowledgeBase) -> tuple[AcceleratorPair, ...]:
    """Return the pairs of a knowledge base, cached in it until its published measurements change."""
    blocks = [block for block in store.blocks() if block.trust > 0 and block.name.startswith(PUBLISHED_BLOCKS)]
    key = content_hash([_FORMAT, *(block.state for block in blocks)])
    cached = store.load_derived(_KIND, [(_KIND, key)])
    if _KIND not in cached:
        pairs = accelerator_pairs(o for block in blocks for o in store.observations(block=block.name))
        cached[_KIND] = {"pairs": [asdict(pair) for pair in pairs]}
        store.store_derived(_KIND, [(_KIND, key, cached[_KIND])])
    return tuple(AcceleratorPair(**record) for record in cached[_KIND]["pairs"])


def _pairs(key: _Configuration, rows: Sequence[_Row]) -> Iterator[AcceleratorPair]:
    """Yield the pairs of a configuration: of equal batch sizes first, and of others where those connect nothing."""
    by_batch: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_batch[row.batch].append(row)
    connected = {row.model.name: row.model.name for row in rows}

    def connect(one: _Row, other: _Row) -> None:
        joined, remaining = connected[other.model.name], connected[one.model.name]
        connected.update({name: remaining for name, group in connected.items() if group == joined})

    for listed in sorted(by_batch.values(), key=lambda listed: (-len(listed), listed[0].batch)):
        for reference, row in _with_first(_consistent(listed)):
            yield _pair(key, row, reference)
            connect(reference, row)
    if key.mode != "training":
        return
    fastest = [min((r for r in rows if r.model.name == name), key=lambda r: r.seconds) for name in sorted(connected)]
    for reference, row in _with_first(_consistent(fastest)):
        if connected[row.model.name] != connected[reference.model.name]:
            yield _pair(key, row, reference)
            connect(reference, row)


def _with_first(rows: Sequence[_Row]) -> list[tuple[_Row, _Row]]:
    """Return the first row with each of the others."""
    return [(rows[0], row) for row in rows[1:]]


def _consistent(rows: Sequence[_Row]) -> list[_Row]:
    """Return rows of which all can be compared with each other, first those that most others can be compared with.

    A row that is a mistake can be compared with few of the others; a row between two that exclude each other does not
    make both possible. Of rows that exclude each other and can be compared with equally many others, none stays:
    nothing says which is wrong.
    """
    by_number: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        by_number[sum(_is_possible(row, other) for other in rows)].append(row)
    consistent: list[_Row] = []
    for _, equals in sorted(by_number.items(), reverse=True):
        candidates = [row for row in equals if all(_is_possible(row, other) for other in consistent)]
        consistent += [row for row in candidates if all(_is_possible(row, other) for other in candidates)]
    return consistent


def _is_possible(row: _Row, reference: _Row) -> bool:
    """Whether the accelerators' bandwidths and peak rates allow the ratio of two rows."""
    mean = _log_ratio(row, reference)
    fast, slow = (row, reference) if mean > 0 else (reference, row)
    largest = largest_ratio(fast.model, slow.model)
    return abs(mean) <= (WIDEST_RATIO if largest is None else math.log(MARGIN * largest))


def _log_ratio(row: _Row, reference: _Row) -> float:
    return math.log(reference.seconds / row.seconds)


def _pair(key: _Configuration, row: _Row, reference: _Row) -> AcceleratorPair:
    is_small = row.batch.isdecimal() and int(row.batch) <= _FEW_REQUESTS
    return AcceleratorPair(
        source=key.source,
        configuration=key.words,
        task=key.task,
        mode=key.mode,
        regime=REQUESTS if key.mode == "inference" and is_small else key.regime,
        accelerator=row.model.name,
        reference=reference.model.name,
        mean=_log_ratio(row, reference),
        count=key.count,
        year=max(row.year, reference.year),
        batch=row.batch,
        reference_batch=reference.batch,
    )


def _configuration(o: Observation, count: int) -> _Configuration:
    """Return everything that must be the same, apart from the batch size."""
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
    return _Configuration(source, task, mode, _regime(o, side.settings), text, count)


def _regime(o: Observation, settings: Mapping[str, str]) -> str:
    if o.indicator.parameters.get("scenario") in _LATENCIES:
        return REQUESTS
    if o.block in _MLPERF_BLOCKS:
        return MLPERF
    return DEFAULT if settings.get("precision", "") in _DEFAULT_PRECISIONS else SHORT
