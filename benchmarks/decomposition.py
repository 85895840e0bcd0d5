"""Compare predicted with measured ratios of whole models between releases and settings.

    python benchmarks/decomposition.py [--file OBSERVATIONS] [--framework NAME] [--pairs]

The truth is the measured log ratio of a whole model (indicator `model`) between an arm and the reference of its block.
It is predicted

- `operations`: by the sum of the times of its single operations in the same block: sum of calls x seconds;
- `log mean`: by the mean of their log ratios, weighted by their FLOP (the method before times were added up);
- `models`: by the Gaussian process, without any measurement of this model;
- `sizes`: by the Gaussian process, without this size and mode of the model, but with its others;
- `none`: no difference.

The standard deviation of `operations` contains a discrepancy between the sum and the whole, which is estimated from the
other models of the framework. Sign errors count among the ratios that differ by more than 5 %.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import norm, spearmanr

from knowledge.domain.observation import IndicatorRun, Observation
from knowledge.domain.observation_file import read_observations
from knowledge.estimate.evidence import Contrast, evidence_of
from knowledge.estimate.gaussian_process import predict_held_out
from knowledge.store.engine import open_knowledge_base
from pi_runners.indicators import INDICATORS
from pi_runners.model_parts import operation_calls

LEAST_COVERED = 0.5
"""Smallest share of a model's FLOP of which single operations must be measured."""
DIFFERENT = math.log(1.05)
HALF = float(norm.ppf(0.95))
METHODS = ("none", "log mean", "operations", "models", "sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A whole model on two stacks.

    Attributes:
        contrast: The measured ratio.
        predicted: Predicted log speed-up by method.
        deviation: Standard deviation of the residual, with the noise of the measurement, by method.
    """

    contrast: Contrast
    predicted: dict[str, float] = field(default_factory=dict)
    deviation: dict[str, float] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Name of the model."""
        return model_of(self.contrast)

    def residual(self, method: str) -> float:
        """Return the predicted less the measured log speed-up."""
        return self.predicted[method] - self.contrast.mean


def model_of(contrast: Contrast) -> str:
    """Return the model of a contrast of the indicator `model`."""
    words = contrast.label.partition("[")[2].partition("]")[0].split(",")
    return dict(word.partition("=")[::2] for word in words)["model"]


def reference_seconds(observations: Sequence[Observation]) -> dict[tuple[str, str], float]:
    """Return the median seconds per call at the reference of each block, by block and label."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for o in observations:
        if o.reference and o.status == "ok":
            samples[o.block, o.indicator.label].append(statistics.median(o.samples))
    return {key: statistics.median(seconds) for key, seconds in samples.items()}


def add_sums(pairs: Sequence[Pair], every: Sequence[Contrast], runs: Mapping[str, IndicatorRun],
             seconds: Mapping[tuple[str, str], float]) -> None:
    """Predict pairs by the single operations of the same block and arm."""
    measured = {(c.block, c.arm, c.label): c for c in every if c.family != "model"}
    for pair in pairs:
        c = pair.contrast
        calls = operation_calls(runs[c.label])
        flops = {run.label: n * flops_of(run) for run, n in calls}
        parts = [
            (part, n * seconds[c.block, run.label], flops[run.label])
            for run, n in calls
            if (part := measured.get((c.block, c.arm, run.label))) and (c.block, run.label) in seconds
        ]
        if sum(amount for _, _, amount in parts) < LEAST_COVERED * sum(flops.values()):
            continue
        total = sum(time for _, time, _ in parts)
        times = [time * math.exp(-part.mean) for part, time, _ in parts]
        pair.predicted["operations"] = -math.log(sum(times) / total)
        pair.deviation["operations"] = math.sqrt(
            sum((time / sum(times) * part.error) ** 2 for time, (part, _, _) in zip(times, parts, strict=True))
        )
        amounts = sum(amount for _, _, amount in parts)
        pair.predicted["log mean"] = sum(part.mean * amount for part, _, amount in parts) / amounts


def flops_of(run: IndicatorRun) -> float:
    """Return the floating-point operations of one call."""
    indicator = INDICATORS[run.name]
    return indicator.flops(indicator.complete({k: v for k, v in run.parameters.items() if k != "algorithm"}))


def add_discrepancy(pairs: Sequence[Pair]) -> None:
    """Add the discrepancy of the other models, and the noise of the measurement, to the deviations of sums."""
    summed = [pair for pair in pairs if "operations" in pair.predicted]
    widths = {}
    for model in {pair.model for pair in summed}:
        others = [pair for pair in summed if pair.model != model] or summed
        excess = [p.residual("operations") ** 2 - p.contrast.error**2 - p.deviation["operations"] ** 2 for p in others]
        widths[model] = max(0.0, statistics.fmean(excess))
    for pair in summed:
        variance = widths[pair.model] + pair.contrast.error**2 + pair.deviation["operations"] ** 2
        pair.deviation["operations"] = math.sqrt(variance)


def add_held_out(pairs: Sequence[Pair], every: Sequence[Contrast]) -> None:
    """Predict pairs by the Gaussian process, with the model held out, and with its size and mode held out."""
    folds: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        folds["models", pair.model].append(pair)
        folds["sizes", pair.contrast.label].append(pair)
    for (method, key), members in folds.items():
        training = [
            c for c in every if c.family != "model" or (model_of(c) if method == "models" else c.label) != key
        ]
        if method == "sizes" and not any(c.family == "model" and model_of(c) == members[0].model for c in training):
            continue
        means, deviations = predict_held_out(training, [pair.contrast for pair in members])
        for pair, mean, deviation in zip(members, means, deviations, strict=True):
            pair.predicted[method], pair.deviation[method] = float(mean), float(deviation)


def table_rows(title: str, pairs: Sequence[Pair]) -> list[str]:
    """Return a row for each method: errors over the pairs that the method predicts, and those of no difference."""
    rows = []
    for method in METHODS:
        known = [pair for pair in pairs if method in pair.predicted]
        if not known:
            continue
        truth = np.array([pair.contrast.mean for pair in known])
        values = np.array([pair.predicted[method] for pair in known])
        errors = values - truth
        different = np.abs(truth) > DIFFERENT
        wrong = different & (values * truth < 0)
        rank = spearmanr(values, truth).statistic if np.ptp(values) > 0 and len(known) > 2 else math.nan
        widths = np.array([pair.deviation.get(method, math.nan) for pair in known])
        inside = np.nanmean(np.where(np.isnan(widths), math.nan, np.abs(errors) <= HALF * widths)) if any(
            method in pair.deviation for pair in known
        ) else math.nan
        rows.append(
            f"| {title} | {method} | {len(known)} | {rms(errors):.3f} | {rms(truth):.3f} | {rank:.2f} "
            f"| {wrong.sum()} of {different.sum()} | {inside:.0%} |"
        )
    return rows


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square."""
    return math.sqrt(float(np.mean(values**2)))


def main() -> None:
    """Print the table for the shipped observations, or those of files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", action="append", default=[], type=Path)
    parser.add_argument("--framework", action="append")
    parser.add_argument("--pairs", action="store_true", help="also print every pair")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        observations = list(store.observations())
    for path in options.file:
        observations += read_observations(path)
    blocks = {o.block for o in observations if o.indicator.name == "model"}
    frameworks = {o.framework for o in observations if o.block in blocks}
    runs = {o.indicator.label: o.indicator for o in observations}
    print("| framework | method | pairs | RMSE | RMSE of `none` | rank | sign errors | coverage |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    whole: list[Pair] = []
    for framework in sorted(frameworks):
        if options.framework and framework not in options.framework:
            continue
        own = [o for o in observations if o.framework == framework and o.indicator.device == "cpu"]
        every = evidence_of(own).contrasts
        pairs = [Pair(contrast=c) for c in every if c.family == "model" and not c.is_control]
        for pair in pairs:
            pair.predicted["none"] = 0.0
        add_sums(pairs, every, runs, reference_seconds(own))
        add_discrepancy(pairs)
        add_held_out(pairs, every)
        print("\n".join(table_rows(framework, pairs)), flush=True)
        whole += pairs
    print("\n".join(table_rows("all", whole)))
    if options.pairs:
        for pair in whole:
            c = pair.contrast
            values = " ".join(f"{method} {pair.predicted[method]:+.3f}" for method in METHODS[1:] if method in pair.predicted)
            print(f"{c.framework} {c.side.version} {dict(c.side.settings)} {c.label}: {c.mean:+.3f} +- {c.error:.3f} {values}")


if __name__ == "__main__":
    main()
