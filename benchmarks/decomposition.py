"""Compare predicted with measured ratios of whole models between releases and settings.

    python -m benchmarks.decomposition [--file OBSERVATIONS] [--framework NAME] [--pairs]

The truth is the measured log ratio of a whole model (indicator `model`) between an arm and the reference of its block.
It is predicted

- `none`: no difference;
- `log mean`: by the mean of the log ratios of its single operations in the same block and arm, weighted by their FLOP
  (the method before times were added up);
- `operations`: by the sum of the times of these operations;
- `blocks`: by the sum of the times of its blocks, of any size, measured with the same stacks;
- `models`: by the mean of the other models with the same architecture and mode, measured with the same stacks;
- `posterior, models`: by the Gaussian process without any measurement of this model;
- `sizes`: by the same model and mode at other sizes, measured with the same stacks;
- `sizes, elsewhere`: the same, measured on other machines;
- `posterior, sizes`: by the Gaussian process without this size, but with the other sizes of the model.

Standard deviations contain a discrepancy, which is estimated from the other models of the framework (for `models`, from
those that were measured with both stacks). Sign errors count
among the ratios that differ by more than 5 %.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, spearmanr

from knowledge.domain.model_part import PartOfModel
from knowledge.domain.observation import Observation, words_of
from knowledge.estimate.discrepancy import (
    WHOLE_MODEL,
    Residual,
    discrepancy,
    model_and_mode,
    predictions_by_blocks,
    predictions_by_models,
    predictions_by_operations,
    predictions_by_sizes,
    predictions_by_sizes_elsewhere,
    reference_seconds,
)
from knowledge.estimate.evidence import Contrast, evidence_of
from knowledge.estimate.gaussian_process import predict_held_out
from knowledge.estimate.stack_discrepancy import StackDiscrepancy, program_of
from knowledge.exchange.files import read_lines, read_observations
from knowledge.store.engine import open_knowledge_base
from pi_runners.model_parts import blocks_of_model, parts_of_run

DIFFERENT = math.log(1.05)
HALF = float(norm.ppf(0.95))


class Predictions(NamedTuple):
    """Predictions of one method.

    Attributes:
        truth: Measured log speed-ups (n,).
        values: Predicted log speed-ups (n,).
        deviations: Standard deviations of the residuals (n,); none if the method has none.
    """

    truth: NDArray[np.float64]
    values: NDArray[np.float64]
    deviations: NDArray[np.float64] | None


def with_discrepancy(residuals: Sequence[Residual], contrasts: Sequence[Contrast] = ()) -> Predictions:
    """Add the discrepancy of the other models, and the noise of both sides, to the deviations.

    Args:
        residuals: Residuals of one method.
        contrasts: Contrasts of the framework, if the discrepancy of two stacks is estimated from the other models.
    """
    names = [model_and_mode(r.contrast.label)[0] for r in residuals]
    widths = {}
    for name in set(names):
        others = [r for r, other in zip(residuals, names, strict=True) if other != name] or residuals
        wholes = [c for c in contrasts if c.family == WHOLE_MODEL and model_and_mode(c.label)[0] != name]
        widths[name] = StackDiscrepancy(wholes, discrepancy(others))
    deviations = []
    for r, name in zip(residuals, names, strict=True):
        width = widths[name].between(program_of(r.contrast.side), program_of(r.contrast.reference))
        deviations.append(math.sqrt(width**2 + r.contrast.error**2 + r.deviation**2))
    return Predictions(
        truth=np.array([r.contrast.mean for r in residuals]),
        values=np.array([r.predicted for r in residuals]),
        deviations=np.array(deviations),
    )


def log_means(
    contrasts: Sequence[Contrast], parts_of: Callable[[str], Sequence[PartOfModel]], whole: Sequence[Contrast]
) -> Predictions:
    """Predict whole models by the mean of the log ratios of their operations, weighted by FLOP."""
    measured = {(c.block, c.arm, c.label): c.mean for c in contrasts if c.family != WHOLE_MODEL}
    values = []
    for c in whole:
        rows = [
            (part.calls * part.flops, measured[c.block, c.arm, part.label])
            for part in parts_of(c.label)
            if (c.block, c.arm, part.label) in measured
        ]
        values.append(sum(weight * mean for weight, mean in rows) / sum(weight for weight, _ in rows))
    return Predictions(truth=np.array([c.mean for c in whole]), values=np.array(values), deviations=None)


def held_out(contrasts: Sequence[Contrast], key_of: Callable[[Contrast], str]) -> Predictions:
    """Predict whole models by the Gaussian process, with all contrasts of one key held out at a time."""
    folds: dict[str, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        if c.family == WHOLE_MODEL and not c.is_control:
            folds[key_of(c)].append(c)
    truth, values, deviations = [], [], []
    for key, members in folds.items():
        training = [c for c in contrasts if c.family != WHOLE_MODEL or key_of(c) != key]
        means, widths = predict_held_out(training, members)
        truth += [c.mean for c in members]
        values += list(means)
        deviations += list(widths)
    return Predictions(truth=np.array(truth), values=np.array(values), deviations=np.array(deviations))


def predictions_of(contrasts: Sequence[Contrast], observations: Sequence[Observation]) -> dict[str, Predictions]:
    """Return the predictions of every method for the whole models of one framework."""
    runs = {o.indicator.label: o.indicator for o in observations}

    def parts_of(label: str) -> Sequence[PartOfModel]:
        return parts_of_run(runs[label])

    seconds = reference_seconds(observations)
    summed = predictions_by_operations(contrasts, seconds, parts_of)
    whole = [r.contrast for r in summed]
    every = np.array([c.mean for c in contrasts if c.family == WHOLE_MODEL and not c.is_control])
    return {
        "none": Predictions(truth=every, values=np.zeros(len(every)), deviations=None),
        "log mean": log_means(contrasts, parts_of, whole),
        "operations": with_discrepancy(summed),
        "blocks": with_discrepancy(predictions_by_blocks(contrasts, seconds, blocks_of_model)),
        "models": with_discrepancy(predictions_by_models(contrasts), contrasts),
        "posterior, models": held_out(contrasts, lambda c: words_of(c.label)["model"]),
        "sizes": with_discrepancy(predictions_by_sizes(contrasts)),
        "sizes, elsewhere": with_discrepancy(predictions_by_sizes_elsewhere(contrasts)),
        "posterior, sizes": held_out(contrasts, lambda c: c.label),
    }


def table_row(framework: str, method: str, predictions: Predictions) -> str:
    """Return a row of the table: errors, with those of predicting no difference for the same pairs."""
    truth, values, deviations = predictions
    errors = values - truth
    different = np.abs(truth) > DIFFERENT
    wrong = different & (values * truth < 0)
    rank = f"{spearmanr(values, truth).statistic:.2f}" if len(values) > 2 and np.ptp(values) > 0 else "-"
    inside = "-" if deviations is None else f"{np.mean(np.abs(errors) <= HALF * deviations):.0%}"
    return (
        f"| {framework} | {method} | {len(truth)} | {rms(errors):.3f} | {rms(truth):.3f} | {rank} "
        f"| {wrong.sum()} of {different.sum()} | {inside} |"
    )


def rms(values: NDArray[np.float64]) -> float:
    """Return the root of the mean square."""
    return math.sqrt(float(np.mean(values**2)))


def joined(every: Sequence[Predictions]) -> Predictions:
    """Return the predictions of several frameworks as one."""
    deviations = [p.deviations for p in every if p.deviations is not None]
    return Predictions(
        truth=np.concatenate([p.truth for p in every]),
        values=np.concatenate([p.values for p in every]),
        deviations=np.concatenate(deviations) if deviations else None,
    )


def main() -> None:
    """Print the table for the shipped observations and those of files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", action="append", default=[], type=Path)
    parser.add_argument("--framework", action="append")
    parser.add_argument("--pairs", action="store_true", help="also print every pair of the method `operations`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        for path in options.file:
            store.add(read_observations(read_lines(path.read_bytes(), where=path.name), where=path.name))
        observations = list(store.observations())
    observations = [o for o in observations if o.indicator.device == "cpu"]
    frameworks = sorted({o.framework for o in observations if o.indicator.name == WHOLE_MODEL})
    print("| framework | method | pairs | RMSE | RMSE of `none` | rank | sign errors | coverage |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every: dict[str, list[Predictions]] = defaultdict(list)
    for framework in options.framework or frameworks:
        own = [o for o in observations if o.framework == framework]
        contrasts = evidence_of(own).contrasts
        for method, predictions in predictions_of(contrasts, own).items():
            if len(predictions.truth):
                print(table_row(framework, method, predictions), flush=True)
                every[method].append(predictions)
        if options.pairs:
            runs = {o.indicator.label: o.indicator for o in own}
            parts = {label: parts_of_run(run) for label, run in runs.items() if run.name == WHOLE_MODEL}
            for r in predictions_by_operations(contrasts, reference_seconds(own), parts.__getitem__):
                c = r.contrast
                print(f"{c.side.version} {dict(c.side.settings)} {c.label}: {c.mean:+.3f} +- {c.error:.3f}", end="")
                print(f", operations {r.predicted:+.3f} +- {r.deviation:.3f}")
    for method, predictions_by_framework in every.items():
        print(table_row("all", method, joined(predictions_by_framework)))


if __name__ == "__main__":
    main()
