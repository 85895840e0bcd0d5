"""Scores of MLPerf Training submissions, by the rules of their round."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.exchange.mlperf.catalogue import round_rules
from knowledge.exchange.mlperf.tree import INDICATOR

BENCHMARKS = (
    "resnet", "ssd", "maskrcnn", "gnmt", "transformer", "ncf", "minigo", "bert", "dlrm", "rnnt", "unet3d"
)  # fmt: skip
"""Order of the columns of the published tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a submission's runs of one benchmark come to.

    Attributes:
        round_: MLPerf round, such as ``v0.6``.
        submitter: Who submitted it.
        system: Name of the system in the results.
        division: ``closed`` or ``open``.
        benchmark: Usual name of the benchmark.
        observation: One of the runs, for software, hardware and indicator.
        seconds: Times of the runs that count, ascending.
        runs: How many runs there were.
        failed: How many of them did not converge.
        target: Quality that the round asks for, or none.
    """

    round_: str
    submitter: str
    system: str
    division: str
    benchmark: str
    observation: Observation
    seconds: tuple[float, ...]
    runs: int
    failed: int
    target: float | None

    @property
    def minutes(self) -> float | None:
        """Mean minutes of the runs that count, or none where too many runs did not converge."""
        return statistics.fmean(self.seconds) / 60 if self.seconds else None

    @property
    def hardware(self) -> HardwareProfile:
        """The machine, or the cluster of them."""
        return self.observation.hardware

    @property
    def accelerators(self) -> int | None:
        """How many accelerators there are, over all machines; none where that is not told, 0 where there are none."""
        nodes = self.hardware.nodes
        return None if nodes is None else nodes * sum(a.count for a in self.hardware.accelerators)


def score_submissions(observations: Iterable[Observation]) -> tuple[Score, ...]:
    """Return the scores of all submissions, in order of round, submitter, system and benchmark.

    The fastest and the slowest run are dropped and the rest averaged; a run that did not converge counts as slowest;
    with more of them than are dropped there is no score ("Benchmark Results",
    https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc).

    Args:
        observations: Of any kind; those of other indicators are passed over.
    """
    groups: dict[tuple[str, str, str, str], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.indicator.name == INDICATOR:
            key = (str(o.environment[name]) for name in ("mlperf_round", "submitter", "system"))
            groups[(*key, str(o.indicator.parameters["benchmark"]))].append(o)  # type: ignore[index]
    return tuple(_score(key, runs) for key, runs in sorted(groups.items()))


def _score(key: tuple[str, str, str, str], runs: Sequence[Observation]) -> Score:
    round_, submitter, system, benchmark = key
    rules = round_rules(round_, benchmark)
    failed = sum(o.status != "ok" for o in runs)
    seconds = sorted(o.metrics["run_seconds"] for o in runs if o.status == "ok" or rules.timed)
    counting: Sequence[float] = ()
    if len(runs) - len(seconds) <= rules.dropped and len(runs) > 2 * rules.dropped:
        counting = seconds[rules.dropped : len(runs) - rules.dropped]
    return Score(
        round_=round_,
        submitter=submitter,
        system=system,
        division=str(runs[0].environment["division"]),
        benchmark=benchmark,
        observation=next((o for o in runs if o.status == "ok"), runs[0]),
        seconds=tuple(counting),
        runs=len(runs),
        failed=failed,
        target=rules.target,
    )
