"""Results of reading a tree, and which of several results are one and the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from knowledge.domain.identity import content_hash
from knowledge.domain.observation import Observation
from knowledge.exchange.mlperf.facts import round_order

TRAINING = "mlperf_training"
"""Name of the indicator: time to train a published model to its target quality."""
INFERENCE = "mlperf_inference"
"""Name of the indicator: seconds per sample of a published model under LoadGen, in one of its scenarios."""
POWER = "mlperf_power"
"""Name of the indicator: time and power, or energy, of a published result with a power meter."""
INDICATORS = (TRAINING, INFERENCE)
FIGURES = ("run_seconds", "quality", "value", "mean_seconds")
"""Metrics that identify a log."""
READER = 2
"""Version of the importer; results of version 1 have no such entry in their environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file of a tree without an observation, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """Result of reading a tree.

    Attributes:
        observations: One observation per training run, per valid inference result or per entry, in order of path,
            without equal ones.
        skipped: Files without an observation, in order of path.
        repeated: Number of files whose observation is equal to another one of the tree: MLPerf Inference derives
            results of one scenario from the log of another, and DAWNBench renamed entries.
        warnings: What the descriptions of systems say and the program does not understand, each once.
    """

    observations: tuple[Observation, ...]
    skipped: tuple[SkippedFile, ...]
    repeated: int = 0
    warnings: tuple[str, ...] = ()


def content_key(o: Observation) -> str:
    """Return a key of what a log contains, equal for all copies of it in any round, of any submitter and system.

    A training run is known by its start, its duration to the millisecond and its quality; an inference result by its
    scenario, its figure and its mean latency to the nanosecond. Records of all versions of the program contain these.
    Benchmarks that differ only in the required accuracy may share one log.
    """
    scenario = o.indicator.parameters.get("scenario", "")
    started = "" if o.indicator.name == INFERENCE else o.started_at
    figures = [o.metrics.get(name) for name in FIGURES]
    return content_hash([o.indicator.name, scenario, started, o.status, figures])


def distinct_results(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return MLPerf results with one observation for each log, sorted, in whatever order they come.

    Of several copies, the one of the earliest round remains. Within a round, the newest importer decides, then the
    strictest benchmark, then the order of submitter, system and number.
    """
    first: dict[str, Observation] = {}
    for o in sorted((o for o in observations if o.indicator.name in INDICATORS), key=_rank):
        first.setdefault(content_key(o), o)
    return tuple(first.values())


class ContentCounter:
    """Counts results that are copies of others, as they are added.

    Args:
        observations: Results that are there already; those of other indicators are ignored.
    """

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._identities: dict[str, set[str]] = {}
        self.add(observations)

    def add(self, observations: Iterable[Observation]) -> int:
        """Add results; return how many have the content of another one, but are not equal to it."""
        copies = 0
        for o in observations:
            if o.indicator.name in INDICATORS:
                identities = self._identities.setdefault(content_key(o), set())
                copies += bool(identities) and o.identity not in identities
                identities.add(o.identity)
        return copies


def _rank(o: Observation) -> tuple[object, ...]:
    environment = o.environment
    reader = environment.get("mlperf_reader")
    benchmark = str(o.indicator.parameters.get("benchmark", ""))
    model, _, accuracy = benchmark.rpartition("-")
    strictness = -float(accuracy) if re.fullmatch(r"\d\d(\.\d+)?", accuracy) else 0.0
    return (
        round_order(str(environment.get("mlperf_round", ""))),
        -reader if isinstance(reader, int) else -1,
        model if strictness else benchmark,
        strictness,
        str(environment.get("division", "")),
        str(environment.get("submitter", "")),
        str(environment.get("system", "")),
        o.round,
        o.identity,
    )
