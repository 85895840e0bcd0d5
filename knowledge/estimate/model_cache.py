"""Models of frameworks by device: variances that ship with the program, conditioned on a knowledge base.

Variances describe how much versions, settings, programs and machines differ in general. They are fitted to the shipped
observations (`python docs/fits.py`), and not to other observations of a knowledge base: a block of a busy machine would
change the weight of all others. So a new block moves predictions towards it according to its errors only.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, cached_property
from typing import Any

from knowledge.domain.frameworks import frameworks
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import PUBLISHED, words_of
from knowledge.estimate.cases import own_ratios
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.gain_terms import LEAST_OWN, MEASURED_HERE, OWN_TERMS, OWN_VARIANCE, Term, Variances, terms_of
from knowledge.estimate.programs import Program, median_size, program_of_run
from knowledge.evidence.block_evidence import BlockEvidence, RunOutcome, load_evidence, shipped_blocks
from knowledge.evidence.contrasts import FORMAT as EVIDENCE_FORMAT
from knowledge.evidence.contrasts import Contrast, Machine, machine_from, pack_contrasts, unpack_contrasts
from knowledge.evidence.stacks import benchmark_contrasts
from knowledge.evidence.timm import timm_digest
from knowledge.exchange.published.timm import TIMM
from knowledge.store.base import KnowledgeBase

_KIND = "fit"
_FORMAT = 5
_SHIPPED = "fits.json"
USUAL = "usual"
"""Key of the variances of frameworks with too few measurements, followed by the kind of device."""
OPERATIONS = "operations"
"""What follows the key of the variances of single operations."""
ACCELERATORS = "accelerators"
"""Key of the variances of the model of accelerators."""
SCALING = "scaling"
"""Key of the variances of the model of numbers of accelerators."""
LEVELS = "levels"
"""Key of the variances of the levels of trainings to a quality."""
MOST_RATIOS = 1500
"""Maximum number of ratios that a model is conditioned on, to bound time and memory."""
MOST_OWN = 500
"""How many of them may be the user's own where not all fit."""
_FEWEST_FOR_SPREAD = 3


class ModelCache:
    """Models of a knowledge base, by framework and device; contrasts are cached in the knowledge base."""

    def __init__(self, store: KnowledgeBase) -> None:
        """Create the cache; the knowledge base is read on first use."""
        self._store = store
        self._read: dict[str, dict[str, Any]] = {}
        self._models: dict[tuple[str, str, str, frozenset[str], frozenset[str]], GainModel] = {}

    def contrasts(self, framework: str, device: str) -> tuple[Contrast, ...]:
        """Return the measured ratios of a framework on a device: ``cpu`` or ``cuda``."""
        return unpack_contrasts(self._record(framework, device)["contrasts"])

    def model(
        self,
        contrasts: Sequence[Contrast],
        machine: Machine,
        *,
        families: frozenset[str] = frozenset(),
        own: Mapping[str, Program] | None = None,
    ) -> GainModel:
        """Return the model of a framework.

        Args:
            contrasts: Measured ratios of the framework on one device, with those of a project's own benchmark.
            machine: The machine that predictions are for.
            families: Indicators of these ratios, if they are single operations; empty for whole programs.
            own: Programs of the project's own benchmark, by label.
        """
        framework, device = contrasts[0].framework, "cpu" if machine.is_processor else "cuda"
        of_timm = frozenset(c.label for c in contrasts if f"task={TIMM}" in c.label)
        key = framework, device, machine.identity, families, of_timm
        if own or key not in self._models:
            listed = selected(merged(contrasts), machine, self.own_blocks)
            here = {c.label for c in own_ratios(listed, machine, self.own_blocks)}
            variances = shipped_variances(framework, device, bool(families))
            model = GainModel(listed, _programs_of(own or {}, here), variances, self.own_blocks)
            if own:
                return model
            self._models[key] = model
        return self._models[key]

    @cached_property
    def own_blocks(self) -> frozenset[str]:
        """Names of the blocks of the knowledge base that do not ship with the program."""
        return frozenset(block.name for block in self._store.blocks()) - shipped_blocks()

    def benchmark(self, identity: str) -> tuple[Contrast, ...]:
        """Return the measured ratios of a project's own benchmark, which are not cached."""
        return benchmark_contrasts(self._store, identity)

    def runs(self, framework: str, device: str) -> tuple[RunOutcome, ...]:
        """Return which versions ran, and which failed."""
        rows = self._record(framework, device)["runs"]
        return tuple(RunOutcome(**{**row, "machine": machine_from(row["machine"])}) for row in rows)

    @cached_property
    def _state(self) -> str:
        """Hash of the content of the knowledge base."""
        blocks = (block.state for block in self._store.blocks())
        return content_hash([_FORMAT, EVIDENCE_FORMAT, timm_digest(), *blocks])

    @cached_property
    def _evidence(self) -> BlockEvidence:
        return load_evidence(self._store)

    def _record(self, framework: str, device: str) -> dict[str, Any]:
        key = f"{framework}/{device}"
        if key not in self._read:
            cached = self._store.load_derived(_KIND, [(key, self._state)])
            self._read[key] = cached.get(key) or self._pack(key, framework, device)
        return self._read[key]

    def _pack(self, key: str, framework: str, device: str) -> dict[str, Any]:
        """Pack contrasts and runs, and cache them."""
        contrasts = framework_contrasts(self._evidence, framework, device)
        runs = [asdict(r) for r in self._evidence.runs if (r.framework, r.device) == (framework, device)]
        record = {"contrasts": pack_contrasts(contrasts), "runs": runs}
        self._store.store_derived(_KIND, [(key, self._state, record)])
        return record


def _programs_of(own: Mapping[str, Program], here: Collection[str]) -> Callable[[Contrast], Program]:
    def program_of(c: Contrast) -> Program:
        program = own.get(c.label) or program_of_run(c.label, c.family, flops=c.flops, bytes=c.bytes)
        return replace(program, own=MEASURED_HERE) if c.label in here and not program.own else program

    return program_of


def merged(contrasts: Iterable[Contrast]) -> list[Contrast]:
    """Return ratios with one for all rows of a source that differ in the batch or the number of accelerators only.

    It is their median: some rows of a table are mistakes. What rows of one source have in common is not less uncertain
    because there are many.
    """
    groups: dict[object, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        words = words_of(c.label)
        key = c.block, words.get("task"), words.get("mode"), c.machine.name, c.side.key, c.reference.key
        groups[key if c.family == PUBLISHED else id(c)].append(c)
    return [_median_of(listed) if listed[0].family == PUBLISHED else listed[0] for listed in groups.values()]


def _median_of(rows: Sequence[Contrast]) -> Contrast:
    words = words_of(rows[0].label)
    label = ",".join(f"{name}={words[name]}" for name in ("mode", "task") if name in words)
    mean = statistics.median(c.mean for c in rows)
    # 1.4826: of a normal distribution, the standard deviation over the median of the absolute deviations.
    spread = 1.4826 * statistics.median(abs(c.mean - mean) for c in rows) if len(rows) >= _FEWEST_FOR_SPREAD else 0.0
    error = math.hypot(statistics.fmean(c.error for c in rows), spread / math.sqrt(len(rows)))
    name, _, rest = rows[0].label.partition("[")
    return replace(
        rows[0],
        label=f"{name}[{label}]{rest.partition(']')[2]}",
        mean=mean,
        error=error,
        rounds=sum(c.rounds for c in rows),
        year=max(c.year for c in rows),
    )


def selected(contrasts: Sequence[Contrast], machine: Machine, own: Collection[str]) -> list[Contrast]:
    """Return at most :data:`MOST_RATIOS`: what ships, and of the user's own ratios first those on this machine.

    Own ratios of one comparison in several blocks count as their mean. Where there are too many, what ships leaves
    places for :data:`MOST_OWN` of the own ones; of those with the same rank, the largest errors are left out.
    """
    groups: dict[object, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        groups[_comparison(c) if c.block in own else id(c)].append(c)
    pooled = [_mean_of(listed) if len(listed) > 1 else listed[0] for listed in groups.values()]
    shipped, mine = ([c for c in pooled if (c.block in own) == is_own] for is_own in (False, True))
    mine.sort(key=lambda c: (c.machine.identity != machine.identity, c.error))
    shipped.sort(key=lambda c: c.error)
    del shipped[MOST_RATIOS - min(len(mine), MOST_OWN) :]
    identities = set(map(id, [*shipped, *mine[: MOST_RATIOS - len(shipped)]]))
    return [c for c in pooled if id(c) in identities]


def number_left_out(contrasts: Iterable[Contrast], kept: Iterable[Contrast]) -> int:
    """Return how many measured comparisons of some ratios are not among the selected ones."""
    every, rest = ({_comparison(c) for c in some if c.family != PUBLISHED} for some in (contrasts, kept))
    return len(every - rest)


def _comparison(c: Contrast) -> tuple[object, ...]:
    return c.label, c.machine, c.side.key, c.reference.key


def _mean_of(rows: Sequence[Contrast]) -> Contrast:
    """Return the mean of repeated ratios, each with equal weight: blocks differ by more than their errors."""
    means, rounds = [c.mean for c in rows], sum(c.rounds for c in rows)
    mean = statistics.fmean(means)
    error = max(math.hypot(*(c.error for c in rows)) / len(rows), statistics.stdev(means) / math.sqrt(len(rows)))
    common = min(error, rows[0].common)
    flops, moved = median_size((c.flops, c.bytes) for c in rows)
    return replace(
        rows[0], mean=mean, error=error, common=common, rounds=rounds, flops=flops, bytes=moved, blocks=len(rows)
    )


def shipped_variances(framework: str, device: str, of_operations: bool = False) -> Variances:
    """Return the variances of a framework on a device, or the usual ones if it has none of its own.

    Args:
        framework: The framework.
        device: ``cpu`` or ``cuda``.
        of_operations: Whether single operations are predicted, and not whole programs.
    """
    records = _shipped()
    suffix = f"/{OPERATIONS}" if of_operations else ""
    keys = (f"{name}/{device}{suffix}" for name in (framework, *same_on(framework, device), USUAL))
    return variances_from(next(records[key] for key in keys if key in records), device)


def variances_record(variances: Variances) -> dict[str, Any]:
    """Return variances as JSON-ready values."""
    return {**asdict(variances), "terms": {", ".join(map(str, term)): v for term, v in variances.terms.items()}}


def variances_from(record: Mapping[str, Any], device: str) -> Variances:
    """Return the variances of JSON-ready values; terms that they do not have are zero."""
    terms = {Term(*name.split(", ")): value for name, value in record["terms"].items()}
    fitted = {term: terms.get(term, 0.0) for term in terms_of(device)}
    return Variances(**{**record, "terms": {**fitted, **dict.fromkeys(OWN_TERMS, LEAST_OWN * OWN_VARIANCE)}})


def shipped_ratio_variances() -> dict[str, float]:
    """Return the variances of the model of accelerators (:mod:`knowledge.estimate.accelerator_ratio`)."""
    return dict(_shipped()[ACCELERATORS])


def shipped_scaling_variances() -> dict[str, float]:
    """Return the variances of the model of numbers of accelerators (:mod:`knowledge.estimate.scaling_model`)."""
    return dict(_shipped()[SCALING])


def shipped_level_variances() -> dict[str, float]:
    """Return the variances of the levels of trainings to a quality (:mod:`knowledge.estimate.time_levels`)."""
    return dict(_shipped()[LEVELS])


@cache
def _shipped() -> dict[str, Any]:
    return dict(json.loads(_shipped_text()))


def _shipped_text() -> str:
    return (importlib.resources.files("knowledge.data") / _SHIPPED).read_text(encoding="utf-8")


def framework_contrasts(evidence: BlockEvidence, framework: str, device: str) -> tuple[Contrast, ...]:
    """Return the contrasts of a framework on a device."""
    names = {framework, *same_on(framework, device)}
    return tuple(c for c in evidence.contrasts if c.framework in names and c.label.endswith(f"/{device}"))


def same_on(framework: str, device: str) -> tuple[str, ...]:
    """Return the other distributions with the same code for a device."""
    same = [f.same_on_processors for f in frameworks().values()] if device == "cpu" else ()
    pairs = [pair for of_framework in same for pair in of_framework.items()]
    return tuple(pair[1 - index] for pair in pairs for index in (0, 1) if pair[index] == framework)


def frameworks_of(evidence: BlockEvidence) -> tuple[tuple[str, str], ...]:
    """Return the frameworks and devices with contrasts, sorted."""
    return tuple(sorted({(c.framework, c.label.rpartition("/")[2]) for c in evidence.contrasts}))
