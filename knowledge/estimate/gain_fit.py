"""Fits the variances of the model of gains, by the marginal likelihood of measured ratios; never at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from knowledge.estimate.evidence import Contrast
from knowledge.estimate.gain_model import TERMS, Noise, Registry, Term, Variances, covariance
from knowledge.estimate.programs import Program
from knowledge.estimate.scales import TYPICAL_VARIANCE, setting_scales_of

if TYPE_CHECKING:
    from knowledge.estimate.gain_model import Array

LOOSE = 2.5
"""Standard deviation of the prior of the logarithm of a variance: a part without data keeps its usual variance."""
LEAST_LABEL, LEAST_ARM = 2 * 0.01**2, 2 * 0.015**2
"""Least variances of what one program, and all programs, have with one arm in one block only: one block cannot
distinguish them from an effect of the version. The place of a program in memory alone changes its speed (Mytkowicz et
al., "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009); the values are a judgement."""
LEAST = 0.003**2
"""Least variance of a term: what data cannot show is not known to be zero."""


def fit_variances(
    contrasts: Sequence[Contrast], program_of: Callable[[Contrast], Program], usual: Mapping[Term, float] | None = None
) -> Variances:
    """Return the variances that maximise the marginal likelihood under a weak prior.

    The logarithm of each variance has a normal prior (Rasmussen and Williams 2006, equations 5.8 and 5.9).

    Args:
        contrasts: Ratios of one framework on one kind of device.
        program_of: Returns the program of a ratio.
        usual: Means of the prior; 5 % for each term by default.
    """
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    scales = setting_scales_of(contrasts)
    registry = Registry()
    points = registry.points_of(contrasts, program_of)
    space, noise = registry.space(scales), Noise(contrasts)
    parts = {term: covariance(space, points, points, {term: 1.0}) for term in TERMS}
    present = [term for term, matrix in parts.items() if np.abs(matrix).max(initial=0.0) > 1e-12]
    stacked = np.stack([*(parts[term] for term in present), noise.label, noise.arm, noise.rounds])
    means = np.array([c.mean for c in contrasts])
    prior = [math.log((usual or {}).get(term, TYPICAL_VARIANCE)) for term in present]
    typical = np.array([*prior, math.log(LEAST_LABEL), math.log(LEAST_ARM), 0.0])
    loose = np.array([*[LOOSE] * (len(present) + 2), 0.5])

    def objective(logs: Array) -> tuple[float, Array]:
        variances = np.exp(logs)
        factor = cho_factor(np.tensordot(variances, stacked, axes=1), lower=True, check_finite=False)
        weights = cho_solve(factor, means, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(means)), check_finite=False) - np.outer(weights, weights)
        value = 0.5 * means @ weights + np.log(np.diag(factor[0])).sum()
        away = (logs - typical) / loose
        gradient = 0.5 * variances * np.einsum("kij,ij->k", stacked, inverse) + away / loose
        return float(value + 0.5 * away @ away), gradient

    # The noise is at least what the rounds show: its factor is at least 1.
    bounds = [
        *[(math.log(LEAST), 4.0)] * len(present),
        (math.log(LEAST_LABEL), 4.0),
        (math.log(LEAST_ARM), 4.0),
        (0.0, 4.0),
    ]
    fitted = np.exp(minimize(objective, typical, jac=True, method="L-BFGS-B", bounds=bounds).x)
    terms = dict.fromkeys(TERMS, TYPICAL_VARIANCE) | dict(usual or {})
    terms |= {term: float(value) for term, value in zip(present, fitted, strict=False)}
    label, arm, factor = map(float, fitted[-3:])
    return Variances(terms=terms, label=label, arm=arm, noise=factor, scales=scales)
