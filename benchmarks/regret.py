"""Test the advice on held-out versions: how much slower is the chosen stack than the best one?

    python -m benchmarks.regret [--draws NUMBER]

A random quarter of the versions is held out, and each method chooses among all versions. Its baselines are those of
`benchmarks/estimator.py`.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from packaging.version import Version

from advisor.resolve.speed_steps import SPEED_STEP, speed_steps
from benchmarks.estimator import BASELINES, by_framework, plain
from knowledge.domain.observation import Observation
from knowledge.estimate.discrepancy import WHOLE_MODEL
from knowledge.estimate.evidence import Contrast, Side, evidence_of
from knowledge.estimate.framework_model import FrameworkModel
from knowledge.estimate.gaussian_process import GaussianProcess
from knowledge.estimate.measured_framework import MeasuredFramework
from knowledge.estimate.model_cache import shipped_amplitudes
from knowledge.estimate.stack_discrepancy import StackDiscrepancy
from knowledge.estimate.workloads import MODELS, Workload, workload_catalogue
from knowledge.store.engine import open_knowledge_base

CLEAR_CHOICE = 0.1
"""Maximum standard error of a version's speed at a workload that counts as the truth."""


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
        kind = workload.discrepancy(basis)
        width = StackDiscrepancy(training if kind == MODELS else (), shipped.discrepancies.get(kind, 0.0))
        model = FrameworkModel(MeasuredFramework("", process, inside[0].machine), shares, discrepancy=width)
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


def main() -> None:
    """Print the regret of each method on the shipped observations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        observations = list(store.observations())
    regret(observations, draws=options.draws, risks=(0, 16, 64, 256))


if __name__ == "__main__":
    main()
