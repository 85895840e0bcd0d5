"""Test the model on held-out data: errors and intervals, compared with simple baselines.

    python benchmarks/estimator.py [--only versions|machines|mlperf]

Versions are held out one at a time (all their contrasts, with and without settings), amplitudes are fitted again to
the training data, and the held-out contrasts are predicted. Baselines: `newest` (no version differs), `nearest` (the
nearest version of the training data, at the same indicator), `mean` (the mean of all versions of the training data, at
the same indicator) and `ridge` (regression on the position of the version, by indicator and family).
`benchmarks/regret.py` tests the advice.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from packaging.version import Version
from scipy.stats import norm, spearmanr

from knowledge.domain.observation import Observation
from knowledge.estimate.evidence import Contrast, Machine, Side, evidence_of
from knowledge.estimate.gaussian_process import predict_held_out
from knowledge.estimate.mlperf import score_submissions, software_gains
from knowledge.exchange.mlperf.catalogue import round_order
from knowledge.store.engine import open_knowledge_base

Array = NDArray[np.float64]
Predictor = Callable[[Sequence[Contrast], Sequence[Contrast]], Array]
CLEAR = 0.1
"""Maximum standard error of a contrast that counts as the truth."""
HALF = float(norm.ppf(0.95))


def plain(contrast: Contrast) -> bool:
    """Return whether a contrast compares versions only, without settings."""
    return not (contrast.side.settings or contrast.reference.settings or contrast.is_control)


def newest(training: Sequence[Contrast], targets: Sequence[Contrast]) -> Array:
    """Predict that no version differs."""
    return np.zeros(len(targets))


def nearest(training: Sequence[Contrast], targets: Sequence[Contrast]) -> Array:
    """Predict the effect of the nearest training version at the same indicator; that of the reference is zero."""
    every = sorted({v for c in [*training, *targets] for v in (c.side.version, c.reference.version)}, key=Version)
    order = {v: i for i, v in enumerate(every)}
    predictions = []
    for target in targets:
        options = [
            (abs(order[target.side.version] - order[c.side.version]), c.mean)
            for c in training
            if c.label == target.label
        ]
        options.append((abs(order[target.side.version] - order[target.reference.version]), 0.0))
        closest = min(distance for distance, _ in options)
        predictions.append(statistics.fmean(mean for distance, mean in options if distance == closest))
    return np.array(predictions)


def mean_of_package(training: Sequence[Contrast], targets: Sequence[Contrast]) -> Array:
    """Predict the mean of all training versions at the same indicator."""
    groups = defaultdict(list)
    for c in training:
        groups[c.label].append(c.mean)
    return np.array([statistics.fmean(groups[target.label]) if target.label in groups else 0.0 for target in targets])


def ridge(training: Sequence[Contrast], targets: Sequence[Contrast]) -> Array:
    """Predict by ridge regression on the version's distance from the reference, by indicator and family."""
    every = sorted({v for c in [*training, *targets] for v in (c.side.version, c.reference.version)}, key=Version)
    order = {v: i / len(every) for i, v in enumerate(every)}
    labels = sorted({c.label for c in [*training, *targets]})
    families = sorted({c.family for c in [*training, *targets]})

    def features(c: Contrast) -> list[float]:
        step = order[c.side.version] - order[c.reference.version]
        return [
            step,
            *(step * (c.label == label) for label in labels),
            *(step * (c.family == family) for family in families),
            *(float(c.label == label) for label in labels),
        ]

    x, y = np.array([features(c) for c in training]), np.array([c.mean for c in training])
    weights = np.linalg.solve(x.T @ x + 1.0 * np.eye(x.shape[1]), x.T @ y)
    return np.array([features(c) for c in targets]) @ weights


BASELINES: dict[str, Predictor] = {"newest": newest, "nearest": nearest, "mean": mean_of_package, "ridge": ridge}


def predict_groups(
    contrasts: Sequence[Contrast], groups: Iterable[Callable[[Contrast], bool]], *, new: bool | None = None
) -> dict[str, list[float]]:
    """Predict each group from the others; return predictions by method, with the truth and the model's deviations.

    Args:
        contrasts: All contrasts.
        groups: The contrasts to hold out, one group after the other.
        new: True to predict only indicators without training data, False only those with; by default all.
    """
    predictions: dict[str, list[float]] = defaultdict(list)
    for hidden in groups:
        training = [c for c in contrasts if not hidden(c)]
        training_labels = {c.label for c in training}
        targets = [c for c in contrasts if hidden(c) and plain(c) and new in (None, c.label not in training_labels)]
        simple = [c for c in training if plain(c)]
        if not targets or len(simple) < 3:
            continue
        mean, deviation = predict_held_out(training, targets)
        predictions["truth"] += [c.mean for c in targets]
        predictions["error"] += [c.error for c in targets]
        predictions["model"] += list(mean)
        predictions["deviation"] += list(deviation)
        for name, predict in BASELINES.items():
            predictions[name] += list(predict(simple, targets))
    return predictions


def report(title: str, predictions: dict[str, list[float]]) -> None:
    """Print errors, rank correlations and coverage."""
    inside = np.abs(np.array(predictions["model"]) - np.array(predictions["truth"])) <= HALF * np.array(
        predictions["deviation"]
    )
    # Imprecise contrasts do not show which method predicts better.
    clear = np.array(predictions["error"]) <= CLEAR
    predictions = {name: list(np.array(values)[clear]) for name, values in predictions.items()}
    truth = np.array(predictions["truth"])
    errors = {m: np.array(predictions[m]) - truth for m in ("model", *BASELINES)}
    cells = [f"{math.sqrt(float(np.mean(e**2))):.3f}" for e in errors.values()]
    middles = [f"{float(np.median(np.abs(e))):.3f}" for e in errors.values()]
    ranks = []
    for method in errors:
        values = np.array(predictions[method])
        ranks.append(f"{spearmanr(values, truth).statistic:.2f}" if np.ptp(values) > 0 else "-")
    print(f"| {title} | {len(truth)} of {len(clear)} | {' | '.join(cells)} | {inside.mean():.0%} |")
    print(f"| median | | {' | '.join(middles)} | |")
    print(f"| rank | | {' | '.join(ranks)} | |", flush=True)


def hide_version(version: str) -> Callable[[Contrast], bool]:
    """Return whether a contrast is of a version, or against it."""
    return lambda c: version in (c.side.version, c.reference.version)


def hide_machine(identity: str) -> Callable[[Contrast], bool]:
    """Return whether a contrast is of a machine."""
    return lambda c: c.machine.identity == identity


def heads() -> None:
    """Print the head of the table of errors."""
    print("\n| held out | n | model | newest | nearest | mean | ridge | coverage |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")


def errors_of_held_out_versions(groups: dict[str, list[Contrast]]) -> None:
    """Hold out each version of each framework, except for the references of the comparisons."""
    whole: dict[str, list[float]] = defaultdict(list)
    for framework, contrasts in groups.items():
        references = {c.reference.version for c in contrasts}
        versions = sorted({c.side.version for c in contrasts if plain(c)} - references, key=Version)
        predictions = predict_groups(contrasts, [hide_version(v) for v in versions])
        if predictions:
            report(f"versions of {framework}", predictions)
        for name, values in predictions.items():
            whole[name] += values
    report("all versions", whole)


def errors_of_held_out_machines(groups: dict[str, list[Contrast]]) -> None:
    """Hold out each machine."""
    for new, title in ((False, "machines"), (True, "machines, at indicators that were not measured on other machines")):
        whole: dict[str, list[float]] = defaultdict(list)
        for contrasts in groups.values():
            machines = sorted({c.machine.identity for c in contrasts})
            if len(machines) > 1:
                hidden = [hide_machine(machine) for machine in machines]
                for name, values in predict_groups(contrasts, hidden, new=new).items():
                    whole[name] += values
        report(title, whole)


def mlperf_contrasts(observations: Iterable[Observation]) -> list[Contrast]:
    """Return the software gain of each MLPerf round on identical hardware, as contrasts of NVIDIA's container releases.

    A label is a benchmark with the targets of both rounds; a block is a machine with a benchmark. Only the rounds up to
    v0.7 count, whose machines are known by name.
    """
    contrasts = []
    scores = (s for s in score_submissions(observations) if round_order(s.round_) < (1, 0))
    for gain in software_gains(scores):
        releases = [str(s.observation.environment.get("container", "")) for s in (gain.later, gain.earlier)]
        if not all(releases):
            continue
        hardware = gain.later.hardware
        later, earlier = (Side(version=str(Version(r)), companions={}, settings={}) for r in releases)
        contrasts.append(
            Contrast(
                block=f"{hardware.name} x {hardware.nodes} {gain.later.benchmark} {gain.later.round_}",
                arm=1,
                label=f"{gain.later.benchmark} {gain.earlier.target} {gain.later.target}",
                family=gain.later.benchmark,
                backend="ngc",
                framework="ngc",
                machine=Machine(identity=hardware.identity, name=hardware.name, kind=f"{hardware.name}", family="sm 7"),
                side=later,
                reference=earlier,
                mean=math.log(gain.speedup),
                error=math.log(gain.high / gain.low) / 4,
                common=0.0,
                low=math.log(gain.low),
                high=math.log(gain.high),
                rounds=min(gain.earlier.runs, gain.later.runs),
                is_control=False,
            )
        )
    return contrasts


def errors_on_mlperf(observations: Iterable[Observation]) -> None:
    """Hold out each machine, each benchmark and each container release of the public MLPerf results."""
    contrasts = mlperf_contrasts(observations)
    kinds = sorted({c.machine.kind for c in contrasts})
    report("MLPerf: machines", predict_groups(contrasts, [hide_kind(kind) for kind in kinds]))
    families = sorted({c.family for c in contrasts})
    report("MLPerf: benchmarks", predict_groups(contrasts, [hide_family(family) for family in families]))
    pairs = sorted({(c.reference.version, c.side.version) for c in contrasts})
    report("MLPerf: releases", predict_groups(contrasts, [hide_release(*pair) for pair in pairs]))


def hide_kind(kind: str) -> Callable[[Contrast], bool]:
    """Return whether a contrast is of a kind of machine."""
    return lambda c: c.machine.kind == kind


def hide_family(family: str) -> Callable[[Contrast], bool]:
    """Return whether a contrast is of a family of indicators."""
    return lambda c: c.family == family


def hide_release(earlier: str, later: str) -> Callable[[Contrast], bool]:
    """Return whether a contrast is of the step from one release to another."""
    return lambda c: (c.reference.version, c.side.version) == (earlier, later)


def by_framework(contrasts: Iterable[Contrast]) -> dict[str, list[Contrast]]:
    """Return the contrasts of each framework with a comparison of versions."""
    groups: dict[str, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        groups[c.framework].append(c)
    return {name: of_framework for name, of_framework in groups.items() if any(plain(c) for c in of_framework)}


def main() -> None:
    """Evaluate on the shipped observations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["versions", "machines", "mlperf"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        observations = list(store.observations())
    groups = by_framework(evidence_of(observations).contrasts)
    heads()
    if options.only in (None, "versions"):
        errors_of_held_out_versions(groups)
    if options.only in (None, "machines"):
        errors_of_held_out_machines(groups)
    if options.only in (None, "mlperf"):
        errors_on_mlperf(observations)


if __name__ == "__main__":
    main()
