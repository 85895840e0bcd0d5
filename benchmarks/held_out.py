"""Tables of predictions of measurements that a model had not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CLEAR = math.log(1.03)
"""Least log ratio whose sign counts."""
CLAIM = math.log(1.01)
"""Least predicted log ratio that has a sign."""
HALF = 1.6448536269514722
"""Standard deviations on both sides of a 90 % interval."""


class Row(NamedTuple):
    """A measurement that was held out, and its predictions, as log ratios.

    Attributes:
        truth: The measurement.
        mean: Prediction of the model.
        deviation: Its standard deviation, with the noise of the measurement.
        baselines: Predictions of other methods.
    """

    truth: float
    mean: float
    deviation: float
    baselines: tuple[float, ...]


def report(results: Mapping[tuple[str, str], Sequence[Row]], baselines: Sequence[str]) -> None:
    """Print root mean square errors, shares of wrong signs and coverage.

    A sign is wrong if the prediction is at least 1 % slower where the measurement is at least 3 % faster, or the
    reverse.

    Args:
        results: Rows by what was held out and by what differs.
        baselines: Names of the other methods.
    """
    methods = ("model", "no difference", *baselines)
    signs = ("wrong signs: model", *baselines)
    print(f"| held out | change | n | {' | '.join(methods)} | {' | '.join(signs)} | coverage |")
    print("| --- " * (len(methods) + len(signs) + 4) + "|")
    for (held_out, change), rows in sorted(results.items()):
        truth, model, deviation = (np.array([row[i] for row in rows]) for i in range(3))
        others = list(np.array([row.baselines for row in rows]).T)
        errors = [math.sqrt(float(np.mean((column - truth) ** 2))) for column in (model, 0 * truth, *others)]
        clear = np.abs(truth) >= CLEAR
        wrong = [
            float(np.mean(((column * truth < 0) & (np.abs(column) >= CLAIM))[clear])) if clear.any() else 0.0
            for column in (model, *others)
        ]
        covered = float(np.mean(np.abs(model - truth) <= HALF * deviation))
        cells = [held_out, change, str(len(rows)), *(f"{e:.3f}" for e in errors), *(f"{w:.0%}" for w in wrong)]
        print(f"| {' | '.join(cells)} | {covered:.0%} |")
