"""Scores of MLPerf Training submissions, computed by the rules of their round."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import PUBLISHED, IndicatorRun, Observation
from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.evidence.paired_ratio import student_quantile
from knowledge.exchange.mlperf.facts import find_machine, round_order, round_rules
from knowledge.exchange.mlperf.results import INFERENCE, TRAINING, distinct_results

BENCHMARKS = (
    "resnet", "ssd", "retinanet", "maskrcnn", "gnmt", "transformer", "ncf", "minigo", "bert", "dlrm", "dlrm_dcnv2",
    "rnnt", "unet3d", "stable_diffusion", "rgat", "gpt3", "llama2_70b_lora", "llama31_405b",
)  # fmt: skip
"""Benchmarks in the order of the columns of the published tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score of a submission at one benchmark.

    Attributes:
        round_: MLPerf round, such as ``v0.6``.
        submitter: Name of the submitter.
        system: Name of the system in the results.
        division: ``closed`` or ``open``.
        benchmark: Usual name of the benchmark.
        observation: One of the runs, for software, hardware and indicator.
        seconds: Times of the runs that count, ascending.
        all_seconds: Times of all runs that converged, ascending.
        runs: Number of runs.
        failed: Number of runs that did not converge.
        target: Quality that the round requires, or ``None``.
        rules: Round by whose rules the score is computed; an earlier one if the round's rules are not known.
    """

    round_: str
    submitter: str
    system: str
    division: str
    benchmark: str
    observation: Observation
    seconds: tuple[float, ...]
    all_seconds: tuple[float, ...]
    runs: int
    failed: int
    target: float | None
    rules: str

    @property
    def minutes(self) -> float | None:
        """Mean minutes of the runs that count, or ``None`` if too many runs did not converge."""
        return statistics.fmean(self.seconds) / 60 if self.seconds else None

    @property
    def hardware(self) -> HardwareProfile:
        """The machine, or the cluster of them."""
        return self.observation.hardware

    @property
    def accelerators(self) -> int | None:
        """Number of accelerators of all machines; ``None`` if unknown."""
        nodes = self.hardware.nodes
        return None if nodes is None else nodes * sum(a.count for a in self.hardware.accelerators)


def score_submissions(observations: Iterable[Observation]) -> tuple[Score, ...]:
    """Return the scores of all submissions, in order of round, submitter, system and benchmark.

    The fastest and the slowest run are dropped and the others averaged. A run that did not converge counts as slowest;
    if there are more of these than are dropped, there is no score ("Benchmark Results",
    https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc).

    A log that several rounds or systems contain counts once, for the earliest round
    (:func:`~knowledge.exchange.mlperf.results.distinct_results`). Observations of other indicators are ignored.
    """
    groups: dict[tuple[str, str, str, str], list[Observation]] = defaultdict(list)
    for o in distinct_results(observations):
        if o.indicator.name == TRAINING:
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
        all_seconds=tuple(sorted(o.samples[0] for o in runs if o.status == "ok")),
        runs=len(runs),
        failed=failed,
        target=rules.target,
        rules=rules.round_,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain(WithRatio):
    """Speed-up of one score over another: of software on identical hardware, or of hardware with the same software.

    Attributes:
        earlier: Score that is compared with.
        later: Compared score.
        ratio: Minutes of ``earlier`` divided by minutes of ``later``.
        note: Why the speed-up is not due to software alone, or empty.
    """

    earlier: Score
    later: Score
    ratio: Ratio
    note: str = ""


def software_gains(scores: Iterable[Score]) -> tuple[Gain, ...]:
    """Return the gain of each round over the previous one, on identical hardware, in the closed division.

    Each round is represented by its best submission. Machines of two submitters count as identical only if they are
    known by their name, such as a DGX-1, or are slices of a TPU: equal descriptions may have other networks and limits
    of power. Order: hardware, benchmark, round.
    """
    best: dict[tuple[str, str, int, str], dict[str, Score]] = defaultdict(dict)
    for s in scores:
        if s.minutes is None or s.division != "closed" or not s.accelerators:
            continue
        is_known = find_machine(s.hardware.name) is not None or s.hardware.accelerators[0].vendor == "google"
        owner = "" if is_known else s.submitter
        group = best[owner, s.hardware.identity, s.accelerators, s.benchmark]
        if s.round_ not in group or s.minutes < (group[s.round_].minutes or 0.0):
            group[s.round_] = s
    gains = []
    for group in best.values():
        rounds = sorted(group, key=round_order)
        gains += [_gain(group[a], group[b]) for a, b in pairwise(rounds)]
    return tuple(sorted(gains, key=lambda g: (g.later.hardware.name, g.later.accelerators or 0, _order(g))))


def scaling(scores: Iterable[Score]) -> tuple[Gain, ...]:
    """Return the gains of more accelerators over the fewest, with one submitter's software of one round."""
    groups: dict[tuple[str, ...], list[Score]] = defaultdict(list)
    for s in scores:
        if s.minutes is not None and s.accelerators and s.division == "closed":
            kinds = "+".join(a.model for a in s.hardware.accelerators)
            framework = s.observation.framework
            groups[s.round_, s.submitter, s.benchmark, framework, kinds].append(s)
    gains = []
    for _, members in sorted(groups.items()):
        ordered = sorted(members, key=lambda s: (s.accelerators or 0, s.minutes or 0.0))
        gains += [_gain(ordered[0], later) for later in ordered[1:] if later.accelerators != ordered[0].accelerators]
    return tuple(gains)


def efficiency(gain: Gain) -> float:
    """Return the speed-up divided by the ratio of accelerators: 1 if twice as many take half the time."""
    return gain.speedup * (gain.earlier.accelerators or 0) / (gain.later.accelerators or 1)


def _order(gain: Gain) -> tuple[int, str, str]:
    place = BENCHMARKS.index(gain.later.benchmark) if gain.later.benchmark in BENCHMARKS else len(BENCHMARKS)
    return place, gain.later.benchmark, gain.later.round_


def _gain(earlier: Score, later: Score) -> Gain:
    """Compare two scores; the interval is Welch's over the logarithms of all runs that converged."""
    parts, weights = 0.0, 0.0
    for score in (earlier, later):
        logs = [math.log(seconds) for seconds in score.all_seconds]
        variance = statistics.variance(logs) / len(logs)
        parts += variance
        weights += variance**2 / (len(logs) - 1)
    quantile = student_quantile(0.975, parts**2 / weights) if weights else 0.0
    mean = math.log((earlier.minutes or 1.0) / (later.minutes or 1.0))
    note = ""
    if earlier.target != later.target:
        note = f"trains to {later.target} instead of {earlier.target}"
    elif earlier.observation.indicator.version != later.observation.indicator.version:
        note = "the round changed the benchmark"
    return Gain(
        earlier=earlier,
        later=later,
        ratio=Ratio(mean=mean, variance=parts, quantile=quantile),
        note=note,
    )


TRAINING_BLOCK, INFERENCE_BLOCK = f"{PUBLISHED}/MLPerf Training", f"{PUBLISHED}/MLPerf Inference"
USUAL_NAMES: Mapping[str, str] = {"resnet": "resnet50", "bert": "bert_large", "ssd": "ssd_resnet34"}
"""Tasks of benchmarks of MLPerf that have another name there (https://github.com/mlcommons/training and inference)."""


def training_rows(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield a row for each score of the closed division: seconds to train, as the rules of the round compute them."""
    for score in score_submissions(observations):
        if score.minutes is not None and score.division == "closed" and score.accelerators:
            target = {} if score.target is None else {"target": score.target}
            yield _row(
                score.observation,
                block=TRAINING_BLOCK,
                task=USUAL_NAMES.get(score.benchmark, score.benchmark),
                seconds=60 * score.minutes,
                parameters={"submitter": score.submitter, "gpus": score.accelerators, **target},
            )


def inference_rows(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield a row for each result of the closed division."""
    for o in distinct_results(o for o in observations if o.indicator.name == INFERENCE):
        if o.environment.get("division") == "closed" and o.status == "ok":
            parameters = dict(o.indicator.parameters)
            benchmark = str(parameters.pop("benchmark"))
            gpus = sum(a.count for a in o.hardware.accelerators) * (o.hardware.nodes or 1)
            yield _row(
                o,
                block=INFERENCE_BLOCK,
                task=USUAL_NAMES.get(benchmark, benchmark),
                seconds=o.samples[0],
                parameters={**parameters, "submitter": str(o.environment["submitter"]), "gpus": gpus},
            )


def _row(
    o: Observation, *, block: str, task: str, seconds: float, parameters: Mapping[str, int | float | str]
) -> Observation:
    mode = "training" if block == TRAINING_BLOCK else "inference"
    return replace(
        o,
        indicator=IndicatorRun(
            name=PUBLISHED,
            version=o.indicator.version,
            backend=o.indicator.backend,
            device=o.indicator.device,
            dtype="as-published",
            parameters={**parameters, "task": task, "mode": mode},
        ),
        # The name of a system changes with its software.
        hardware=replace(o.hardware, name=""),
        block=block,
        round=0,
        arm=0,
        reference=False,
        samples=(seconds,),
    )
