"""Fits the variances of the model of gains, by the marginal likelihood of measured ratios; never at run time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.gain_model import OWN_TERMS, Noise, Registry, Term, Variances, covariance, terms_of
from knowledge.estimate.programs import Program
from knowledge.estimate.similarity import side_on

if TYPE_CHECKING:
    from knowledge.estimate.gain_model import Array

TYPICAL_VARIANCE = 0.05**2
"""Usual variance of a term, in squared natural-log units."""
OWN_VARIANCE = 0.15**2
"""Variance of the effects at the user's own program, which no shipped measurement can show: a judgement."""
LOOSE = 2.5
"""Standard deviation of the prior of the logarithm of a variance: a part without data keeps its usual variance."""
LEAST_LABEL, LEAST_ARM = 2 * 0.01**2, 2 * 0.015**2
"""Least variances of what one program, and all programs, have with one arm in one block only: one block cannot
distinguish them from an effect of the version. The place of a program in memory alone changes its speed (Mytkowicz et
al., "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009); the values are a judgement."""
LEAST = 0.003**2
"""Least variance of a term: what data cannot show is not known to be zero."""
LEAST_OF_SOURCE = 2 * 0.03**2
"""Least variance of a published ratio: tables are of one run, rounded; a judgement."""
FEWEST = 20
"""Fewest published ratios of a source with a variance of its own."""
_PRIOR_COUNT = 2.0
"""Weight of the usual effect, in ratios, when the effect of one setting is estimated."""


def fit_variances(
    contrasts: Sequence[Contrast],
    program_of: Callable[[Contrast], Program],
    *,
    device: str = "cpu",
    usual: Mapping[Term, float] | None = None,
) -> Variances:
    """Return the variances that maximise the marginal likelihood under a weak prior.

    The logarithm of each variance has a normal prior (Rasmussen and Williams 2006, equations 5.8 and 5.9).

    Args:
        contrasts: Ratios of one framework on one kind of device.
        program_of: Returns the program of a ratio.
        device: The device: ``cpu``, or another one.
        usual: Means of the prior; 5 % for each term by default.
    """
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    scales = setting_scales_of(contrasts)
    registry = Registry()
    points = registry.points_of(contrasts, program_of)
    space, noise = registry.space(scales), Noise(contrasts)
    parts = {term: covariance(space, points, {term: 1.0}) for term in terms_of(device)}
    present = [term for term, matrix in parts.items() if np.abs(matrix).max(initial=0.0) > 1e-12]
    counts = Counter(c.source for c in contrasts if c.family == PUBLISHED)
    sources = [source for source, count in counts.items() if count >= FEWEST]
    of_source = [np.array([c.source == source for c in contrasts]) for source in sources]
    rare = noise.published & ~np.any([*of_source, ~noise.published], axis=0)
    rows = [~noise.published, *of_source, *([rare] if rare.any() else [])]
    labels = [noise.label * np.outer(row, row) for row in rows]
    stacked = np.stack([*(parts[term] for term in present), noise.rounds, noise.arm, *labels])
    least = [LEAST] * len(present) + [1.0, LEAST_ARM, LEAST_LABEL] + [LEAST_OF_SOURCE] * (len(rows) - 1)
    means = np.array([c.mean for c in contrasts])
    prior = [math.log((usual or {}).get(term, TYPICAL_VARIANCE)) for term in present]
    typical = np.array([*prior, *map(math.log, least[len(present) :])])
    loose = np.array([LOOSE] * len(typical))
    loose[len(present)] = 0.5

    def objective(logs: Array) -> tuple[float, Array]:
        variances = np.exp(logs)
        factor = cho_factor(np.tensordot(variances, stacked, axes=1), lower=True, check_finite=False)
        weights = cho_solve(factor, means, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(means)), check_finite=False) - np.outer(weights, weights)
        value = 0.5 * means @ weights + np.log(np.diag(factor[0])).sum()
        away = (logs - typical) / loose
        gradient = 0.5 * variances * np.einsum("kij,ij->k", stacked, inverse) + away / loose
        return float(value + 0.5 * away @ away), gradient

    bounds = [(math.log(value), 4.0) for value in least]
    fitted = np.exp(minimize(objective, typical, jac=True, method="L-BFGS-B", bounds=bounds).x).tolist()
    terms = dict.fromkeys(terms_of(device), TYPICAL_VARIANCE) | dict.fromkeys(OWN_TERMS, OWN_VARIANCE)
    terms |= dict(usual or {})
    terms |= dict(zip(present, fitted, strict=False))
    factor, arm, label, *others = fitted[len(present) :]
    return Variances(
        terms=terms,
        label=label,
        arm=arm,
        noise=factor,
        scales=scales,
        # Rare sources count together, like unknown ones.
        sources=dict(zip([*sources, *([""] if rare.any() else [])], others, strict=True)),
    )


def setting_scales_of(contrasts: Sequence[Contrast]) -> dict[str, float]:
    """Return the root mean square of the effects of each setting relative to the usual one, shrunk towards it.

    Most settings hardly change anything, and a few, such as a library that is switched off, change some programs much.

    Args:
        contrasts: Contrasts of one framework on one kind of device.
    """
    effects: dict[str, list[tuple[float, float]]] = {}
    for c in contrasts:
        settings = side_on(c.side, c.machine).settings
        if len(settings) == 1 and not c.reference.settings and c.side.version == c.reference.version:
            effects.setdefault("=".join(*settings.items()), []).append((c.mean, max(c.error, LEAST_LABEL**0.5)))
    usual = _beyond_noise([pair for pairs in effects.values() for pair in pairs], TYPICAL_VARIANCE)
    if usual <= 0:
        return {}
    return {name: math.sqrt(_shrunk(pairs, usual) / usual) for name, pairs in sorted(effects.items())}


def _beyond_noise(pairs: Sequence[tuple[float, float]], about: float) -> float:
    """Return the variance of true differences, from measured ones with their errors.

    Each is weighted by its information on the variance, (about + error^2)^-2, since the square of a normal value with
    variance v has variance 2 v^2: an uncertain measurement hardly counts.
    """
    weights = [(about + error**2) ** -2 for _, error in pairs]
    beyond = (w * (mean**2 - error**2) for w, (mean, error) in zip(weights, pairs, strict=True))
    return max(0.0, sum(beyond) / sum(weights)) if weights else 0.0


def _shrunk(pairs: Sequence[tuple[float, float]], usual: float) -> float:
    """Return the variance of differences, shrunk towards the usual one where there are few or uncertain ones."""
    count = sum((usual / (usual + error**2)) ** 2 for _, error in pairs)
    return (_PRIOR_COUNT * usual + count * _beyond_noise(pairs, usual)) / (_PRIOR_COUNT + count)
