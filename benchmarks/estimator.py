"""Test the model on held-out data: errors, intervals and advice, compared with simple baselines.

    python benchmarks/estimator.py [--only versions|machines|mlperf|advice]

Versions are held out one at a time (all their contrasts, with and without settings), amplitudes are fitted again to
the training data, and the held-out contrasts are predicted. Baselines: `newest` (no version differs), `nearest` (the
nearest version of the training data, at the same indicator), `mean` (the mean of all versions of the training data, at
the same indicator) and `ridge` (regression on the position of the version, by indicator and family). For advice, a
random quarter of the versions is held out, and each method chooses among all versions.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from packaging.version import Version
from scipy.stats import norm, spearmanr

from advisor.resolve.objectives import SPEED_STEP, speed_steps
from knowledge.domain.observation import Observation
from knowledge.estimate.discrepancy import WHOLE_MODEL
from knowledge.estimate.evidence import Contrast, Machine, Side, evidence_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess, predict_held_out
from knowledge.estimate.mlperf import score_submissions, software_gains
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.workloads import Workload, workload_catalogue
from knowledge.store.engine import open_knowledge_base

Array = NDArray[np.float64]
Predictor = Callable[[Sequence[Contrast], Sequence[Contrast]], Array]
CLEAR = 0.1
"""Maximum standard error of a contrast that counts as the truth."""
CLEAR_CHOICE = 0.1
"""Maximum standard error of a version's speed at a workload that counts as the truth."""
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

    A label is a benchmark with the targets of both rounds; a block is a machine with a benchmark.
    """
    contrasts = []
    for gain in software_gains(score_submissions(observations)):
        versions = [s.observation.stack.version_of(s.observation.framework) for s in (gain.later, gain.earlier)]
        indexes = {p.index for s in (gain.later, gain.earlier) for p in s.observation.stack.packages}
        if "ngc" not in indexes or None in versions:
            continue
        hardware = gain.later.hardware
        later, earlier = (Side(version=str(v), companions={}, settings={}) for v in versions)
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


def regret(observations: Sequence[Observation], *, draws: int, risks: Sequence[float]) -> None:
    """Hold out a random quarter of the versions, choose by each method, and print how much slower the choice is.

    The even rounds of every block are the training data, and the odd ones are the truth: otherwise, noise of the
    training data would count as truth.
    """
    losses: dict[str, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    generator = random.Random(20261121)
    even_rounds = by_framework(evidence_of(o for o in observations if o.round % 2 == 0).contrasts)
    odd_rounds = by_framework(evidence_of(o for o in observations if o.round % 2).contrasts)
    for framework, every in even_rounds.items():
        for block in sorted({c.block for c in odd_rounds[framework] if plain(c)}):
            inside = [c for c in odd_rounds[framework] if c.block == block and plain(c)]
            references = {c.reference.version for c in inside}
            versions = sorted({c.side.version for c in inside} | references, key=Version)
            if len(versions) < 4:
                continue
            has_models = any(c.family == WHOLE_MODEL for c in inside)
            groups = ("all", f"whole models, {framework}", "whole models") if has_models else ("all",)
            for _ in range(draws):
                hidden = set(generator.sample([v for v in versions if v not in references], max(1, len(versions) // 4)))
                training = [c for c in every if not hidden & {c.side.version, c.reference.version}]
                for name, value in regret_of_choices(inside, training, versions, risks).items():
                    for group in groups:
                        losses[group][name] += value
    for group, by_method in losses.items():
        print(f"\n{group}:\n\n| method | choices | not the newest | mean regret | 90th percentile | worst |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, choices in by_method.items():
            values, changes = [value for value, _ in choices], sum(moved for _, moved in choices)
            mean, high = statistics.fmean(values), float(np.quantile(values, 0.9))
            print(f"| {name} | {len(values)} | {changes} | {mean:.1%} | {high:.1%} | {max(values):.1%} |")


def even_shares(workload: Workload, labels: Sequence[tuple[str, str]]) -> tuple[str, dict[str, float]]:
    """Return the first list of parts that labels stand for, and the share of each, evenly among a part's labels."""
    for basis, parts in workload.parts.items():
        matching = [(part, [la for la, family in labels if part.matches(la, family)]) for part in parts]
        total = sum(part.share for part, members in matching if members)
        share: dict[str, float] = {}
        for part, members in matching:
            for label in members:
                share[label] = share.get(label, 0.0) + part.share / total / len(members)
        if share:
            return basis, share
    return "", {}


def regret_of_choices(
    inside: Sequence[Contrast], training: Sequence[Contrast], versions: Sequence[str], risks: Sequence[float]
) -> dict[str, list[tuple[float, bool]]]:
    """Return the regret of each method's choice for each workload, and whether it is not the newest version."""
    process, shipped = GaussianProcess(training), shipped_amplitudes(inside[0].framework, "cpu")
    losses: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    simple = [c for c in training if plain(c)]
    reference = inside[0].reference
    sides: dict[str, Side] = {c.side.version: c.side for c in inside} | {reference.version: reference}
    for workload in workload_catalogue().values():
        if workload.backends and inside[0].backend not in workload.backends:
            continue
        # Only indicators that all versions were measured at: without one, a version seems as fast as the reference.
        complete = {c.label for c in inside if sum(d.label == c.label for d in inside) == len(versions) - 1}
        labels = sorted({(c.label, c.family) for c in inside if c.label in complete})
        basis, share = even_shares(workload, labels)
        relevant = [c for c in inside if c.label in share]
        # Without a prediction, the advice is the newest version.
        if not relevant or workload.discrepancy(basis) in shipped.refused:
            continue
        times, doubt = dict.fromkeys(versions, 0.0), dict.fromkeys(versions, 0.0)
        times[reference.version] = 1.0
        for c in relevant:
            times[c.side.version] += share[c.label] * math.exp(-c.mean)
            doubt[c.side.version] += (share[c.label] * c.error) ** 2
        truth = {version: -math.log(time) for version, time in times.items()}
        if max(doubt.values()) > CLEAR_CHOICE**2:
            continue
        best = max(truth.values())

        def note(name: str, version: str, best: float = best, truth: Mapping[str, float] = truth) -> None:
            losses[name].append((math.expm1(best - truth[version]), version != versions[-1]))

        shares = {(label, family): share[label] for label, family in labels if label in share}
        width = shipped.discrepancies.get(workload.discrepancy(basis), 0.0)
        model = FrameworkModel("", process, shares, inside[0].machine, discrepancy=width)
        speeds = model.speeds([sides[v] for v in versions])
        # The advice is relative to the newest version.
        gains = speeds.gains(range(len(versions)), [len(versions) - 1] * len(versions))
        comparisons = len({c.side.version for c in training} & set(versions[:-1]))
        significant = np.array([g.is_significant(comparisons) for g in gains])
        steps = {}
        for risk in risks:
            # A gain of less than a step counts as none, as in the advice.
            counted = np.trunc([(g.mean - risk / 2 * g.variance) / SPEED_STEP for g in gains])
            steps[f"risk {risk:g}"] = counted
            steps[f"risk {risk:g}, significant"] = np.where(significant | (counted < 0), counted, 0)
        steps["as shipped"] = np.array([speed_steps(gain, comparisons) for gain in gains])
        for name, counted in steps.items():
            index = max((float(step), i) for i, step in enumerate(counted))[1]
            note(name, versions[index])
        note("newest", versions[-1])
        for name in ("nearest", "mean", "ridge"):
            predicted = dict.fromkeys(versions, 0.0)
            predicted[reference.version] = 1.0
            for c, value in zip(relevant, BASELINES[name](simple, relevant), strict=True):
                predicted[c.side.version] += share[c.label] * math.exp(-value)
            version = max(versions, key=lambda v: (-predicted[v], Version(v)))
            note(name, version)
    return losses


def by_framework(contrasts: Iterable[Contrast]) -> dict[str, list[Contrast]]:
    """Return the contrasts of each framework with a comparison of versions."""
    groups: dict[str, list[Contrast]] = defaultdict(list)
    for c in contrasts:
        groups[c.framework].append(c)
    return {name: of_framework for name, of_framework in groups.items() if any(plain(c) for c in of_framework)}


def main() -> None:
    """Evaluate on the shipped observations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["versions", "machines", "mlperf", "advice"])
    parser.add_argument("--draws", type=int, default=5)
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
    if options.only in (None, "advice"):
        regret(observations, draws=options.draws, risks=(0, 16, 64, 256))


if __name__ == "__main__":
    main()
