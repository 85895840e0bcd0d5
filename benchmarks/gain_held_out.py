"""Compares a model of gains that knows the size of programs with simple rules, on measurements that it had not seen.

    python -m benchmarks.gain_held_out [FILE ...]

Each framework on processors: the shipped whole models and blocks, with those of the files (observation files; by
default `benchmarks/sizes`). The variances are fitted to all of them; then each model, size, architecture, release and
kind of machine is held out in turn. Root mean square errors of log ratios, wrong signs among ratios that differ by more
than 5 %, coverage and mean width of 90 % intervals:

- none: no difference;
- mean: the mean of the same change at other programs, or of the same setting in other releases;
- nearest: the same change at the program with the most similar features.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from knowledge.domain.observation import Observation
from knowledge.estimate.discrepancy import BLOCK_OF_MODEL, WHOLE_MODEL
from knowledge.estimate.evidence import Contrast, evidence_of
from knowledge.estimate.gain_fit import fit_variances
from knowledge.estimate.gain_model import GainModel
from knowledge.estimate.kernel import side_key
from knowledge.estimate.model_cache import framework_contrasts
from knowledge.estimate.programs import Program, program_of_run
from knowledge.estimate.similarity import side_on
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.exchange.files import read_observations
from knowledge.store.engine import open_knowledge_base

FRAMEWORKS = ("torch", "tensorflow-cpu", "jax", "onnxruntime")
SIZES = Path(__file__).parent / "sizes"
LARGE = 0.05
"""Least log ratio whose sign counts."""
HALF = 1.6448536269514722
"""Standard deviations on both sides of a 90 % interval."""


class Programs:
    """Programs of labels, with the amounts that the observations state."""

    def __init__(self) -> None:
        self._amounts: dict[str, tuple[float, float]] = {}

    def add(self, observations: Iterable[Observation]) -> list[Observation]:
        """Remember the amounts of observations, and return them."""
        listed = list(observations)
        self._amounts.update({o.indicator.label: (o.flops, o.bytes) for o in listed if o.flops})
        return listed

    def of(self, c: Contrast) -> Program:
        """Return the program of a ratio."""
        flops, moved = self._amounts.get(c.label, (0.0, 0.0))
        return _program(c.label, c.family, flops, moved)


@cache
def _program(label: str, family: str, flops: float, moved: float) -> Program:
    return program_of_run(label, family, flops=flops, bytes=moved)


def is_of_settings(c: Contrast) -> bool:
    """Whether a ratio shows the effect of settings."""
    return c.side.settings != c.reference.settings


def _change(c: Contrast) -> tuple[object, ...]:
    return side_key(side_on(c.side, c.machine)), side_key(side_on(c.reference, c.machine))


def _settings(c: Contrast) -> tuple[object, ...]:
    """Return the settings of both sides, whatever their releases are; releases if these differ."""
    releases = () if c.side.version == c.reference.version else (c.side.version, c.reference.version)
    sides = (side_on(side, c.machine).settings for side in (c.side, c.reference))
    return (*(tuple(sorted(own.items())) for own in sides), *releases)


def rows(
    model: GainModel, programs: Programs, group_of: Callable[[Contrast], object], counts: Callable[[Contrast], bool]
) -> list[tuple[float, ...]]:
    """Return truth, prediction, its deviation, the mean and the nearest of each ratio that was held out."""
    contrasts = model.contrasts
    members = [i for i, c in enumerate(contrasts) if not c.is_control and counts(c)]
    groups: dict[object, list[int]] = defaultdict(list)
    for i in members:
        groups[group_of(contrasts[i])].append(i)
    if len(groups) < 2:
        return []
    changes, settings = ({i: key(contrasts[i]) for i in members} for key in (_change, _settings))
    places = np.array([programs.of(c).place for c in contrasts])
    listed: list[tuple[float, ...]] = []
    for group, means, deviations in model.held_out(groups.values()):
        rest = [i for i in members if i not in set(group)]
        for i, mean, deviation in zip(group, means, deviations, strict=True):
            like = [j for j in rest if changes[j] == changes[i]] or [j for j in rest if settings[j] == settings[i]]
            truths = [contrasts[j].mean for j in like] or [0.0]
            distances = ((places[like] - places[i]) ** 2).sum(axis=1) if like else [0.0]
            nearest = truths[int(np.argmin(distances))]
            listed.append((contrasts[i].mean, float(mean), float(deviation), float(np.mean(truths)), nearest))
    return listed


def line(name: str, listed: Sequence[tuple[float, ...]]) -> str:
    """Return a line of the table."""
    truth, model, deviation, mean, nearest = np.array(listed).T
    columns = (model, 0 * truth, mean, nearest)
    errors = [math.sqrt(float(np.mean((column - truth) ** 2))) for column in columns]
    large = np.abs(truth) > LARGE
    signs = [int(np.sum((np.sign(column) != np.sign(truth)) & large)) for column in (model, mean, nearest)]
    covered = float(np.mean(np.abs(model - truth) <= HALF * deviation))
    cells = [
        name,
        str(len(truth)),
        *(f"{error:.3f}" for error in errors),
        f"{errors[0] / min(errors[1:]):.2f}",
        f"{' / '.join(map(str, signs))} of {int(large.sum())}",
        f"{covered:.0%}",
        f"{float(np.mean(2 * HALF * deviation)):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Fit, hold out and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(SIZES.glob("*.jsonl.gz")))
    programs = Programs()
    further: list[Contrast] = []
    for path in parser.parse_args().files:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            further += evidence_of(programs.add(read_observations(lines, where=str(path)))).contrasts
    with open_knowledge_base("sqlite://") as store:
        programs.add(o for block in store.blocks() for o in store.observations(block=block.name))
        evidence = load_evidence(store)
    groups: dict[str, Callable[[Contrast], object]] = {
        "model": lambda c: programs.of(c).model,
        "size": lambda c: c.label,
        "architecture": lambda c: programs.of(c).architecture,
        "release": lambda c: c.side.version,
        "machine": lambda c: c.machine.precision_features or c.machine.kind,
    }
    print("| framework, change, held out | n | model | none | mean | nearest | ratio | wrong signs | covered | width |")
    print("| --- " * 10 + "|")
    seconds = []
    for framework in FRAMEWORKS:
        contrasts = [
            c for c in framework_contrasts(evidence, framework, "cpu") if c.family in (WHOLE_MODEL, BLOCK_OF_MODEL)
        ]
        contrasts += [c for c in further if c.framework == framework]
        variances = fit_variances(contrasts, programs.of)
        start = time.process_time()
        model = GainModel(contrasts, programs.of, variances)
        seconds.append(f"{framework} {len(contrasts)} ratios {time.process_time() - start:.2f} s")
        for change, counts in (("settings", is_of_settings), ("versions", lambda c: not is_of_settings(c))):
            for name, group_of in groups.items():
                if listed := rows(model, programs, group_of, counts):
                    print(line(f"{framework}, {change}, {name}", listed), flush=True)
    print(f"\nProcessor time to condition the model: {', '.join(seconds)}")


if __name__ == "__main__":
    main()
