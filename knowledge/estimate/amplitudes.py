"""Amplitudes of the covariance's parts, and of the noise, by marginal likelihood.

The covariance of the contrasts is linear in the amplitudes, a variance-components model: K = sum_i a_i B_i + noise.
Their logarithms maximise the marginal likelihood (Rasmussen and Williams 2006, equation 5.8, gradient 5.9) under weak
normal priors, which keep a part that the data do not speak of at what is usual. The noise is what the rounds tell, with
half of it shared by arms that were compared with one reference, and a part common to all indicators of an arm; two
more parts stand for what repeats within a block but not beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knowledge.estimate.evidence import Contrast
from knowledge.estimate.kernel import PARTS, Design, Point, Spans, codes, spans_of

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

LENGTHS = (1.0, 3.0, 9.0)
"""Releases over which versions are alike: the likeliest of these is taken."""
MOST_FOR_AMPLITUDES = 300
"""So many contrasts, evenly taken, decide the amplitudes; all of them give the posterior."""
_LEAST_ERROR = 0.005
_LEAST_LASTING = {"label": 2 * 0.01**2, "arm": 2 * 0.015**2}
"""Least variance of a contrast for what each of its two arms keeps through a block, of one indicator and of all: a
standard deviation of 1 % and 1.5 %. One block cannot tell it from an effect of the version. That the place of a program
in memory alone changes its speed is known (Mytkowicz et al., "Producing wrong data without doing anything obviously
wrong!", ASPLOS 2009); the sizes are a judgement."""
_TYPICAL_VARIANCE = 0.05**2
_LOOSE = 2.5
_CONFIDENCE = 0.9
_PRIOR_COUNT = 2.0
"""How many contrasts the usual difference is worth, where an indicator's own is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplitudes:
    """What was fitted.

    Attributes:
        parts: Variance of each part of :data:`knowledge.estimate.kernel.PARTS`, in squared natural-log units.
        label: Variance of what an arm's indicator keeps through a block, and not beyond.
        arm: Variance of what all indicators of an arm keep through a block, and not beyond.
        noise: Factor on the variance that the rounds tell.
        length: Minor releases over which versions are alike.
        scales: How much more than usual versions differ at an indicator, by label.
        spans: How many minor releases major ones had.
        widening: Factor on standard deviations that makes intervals of left-out versions hold as often as they say; at
            least 1, so that what is known of a stack is never more than its measurements tell.
        likelihood: Log marginal likelihood, priors included.
    """

    parts: tuple[float, ...]
    label: float
    arm: float
    noise: float
    length: float
    scales: Mapping[str, float]
    spans: Spans
    widening: float
    likelihood: float


def fit_amplitudes(contrasts: Sequence[Contrast]) -> Amplitudes:
    """Fit the amplitudes to contrasts."""
    chosen, scales = _evenly(contrasts, MOST_FOR_AMPLITUDES), _scales(contrasts)
    spans = spans_of(side for c in contrasts for side in (c.side, c.reference))
    fits = (_fit(chosen, length=length, scales=scales, spans=spans) for length in LENGTHS)
    return max(fits, key=lambda found: found.likelihood)


def _evenly(contrasts: Sequence[Contrast], most: int) -> list[Contrast]:
    if len(contrasts) <= most:
        return list(contrasts)
    step = len(contrasts) / most
    return [contrasts[int(i * step)] for i in range(most)]


def _fit(contrasts: Sequence[Contrast], *, length: float, scales: Mapping[str, float], spans: Spans) -> Amplitudes:
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    arms, references = places(len(contrasts))
    design = Design(points_of(contrasts), length=length, scales=scales, spans=spans)
    told, label, arm = _noise_parts(contrasts)
    every = list(design.contrasts(arms, references))
    # A part that no contrast differs by cannot be told from nothing.
    spoken = [i for i, matrix in enumerate(every) if np.any(np.abs(matrix) > 1e-12)]
    parts = [*(every[i] for i in spoken), label, arm, told]
    typical = np.log([*[_TYPICAL_VARIANCE] * (len(spoken) + 2), 1.0])
    loose = np.array([*[_LOOSE] * (len(spoken) + 2), 0.5])
    seen = np.array([c.mean for c in contrasts])
    stacked = np.stack(parts)

    def objective(logs: Array) -> tuple[float, Array]:
        amplitudes = np.exp(logs)
        total = np.tensordot(amplitudes, stacked, axes=1)
        try:
            factor = cho_factor(total, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(logs)
        weights = cho_solve(factor, seen, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(seen)), check_finite=False)
        inverse -= np.outer(weights, weights)
        value = 0.5 * seen @ weights + np.log(np.diag(factor[0])).sum()
        gradient = 0.5 * amplitudes * np.einsum("kij,ij->k", stacked, inverse)
        away = (logs - typical) / loose
        return float(value + 0.5 * away @ away), gradient + away / loose

    # What the rounds tell of the noise is not argued away: its factor is at least 1.
    lasting = [(math.log(_LEAST_LASTING[what]), 4.0) for what in ("label", "arm")]
    bounds = [*[(-25.0, 4.0)] * len(spoken), *lasting, (0.0, 4.0)]
    found = minimize(objective, typical, jac=True, method="L-BFGS-B", bounds=bounds)
    fitted = np.exp(found.x)
    variances = np.zeros(len(PARTS))
    variances[spoken] = fitted[: len(spoken)]
    total = np.tensordot(fitted, stacked, axes=1)
    return Amplitudes(
        # What no contrast speaks of keeps its prior: unmeasured is uncertain, never zero.
        parts=tuple(float(variances[i]) if i in spoken else _TYPICAL_VARIANCE for i in range(len(PARTS))),
        label=float(fitted[-3]),
        arm=float(fitted[-2]),
        noise=float(fitted[-1]),
        length=length,
        scales=scales,
        spans=spans,
        widening=_widening(contrasts, total, seen),
        likelihood=float(-found.fun),
    )


def _scales(contrasts: Sequence[Contrast]) -> dict[str, float]:
    """Return how much more than usual contrasts differ from none at each indicator, drawn towards the usual.

    Most indicators hardly differ from version to version, and a few differ much: one amplitude for all would be too
    wide for most and draw the few too close to nothing.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for c in contrasts:
        if not c.is_control:
            found.setdefault(c.label, []).append((c.mean, c.error))
    usual = _beyond_noise([pair for pairs in found.values() for pair in pairs], _TYPICAL_VARIANCE)
    if usual <= 0:
        return {}
    return {
        label: math.sqrt(_drawn(_beyond_noise(pairs, usual), _information(pairs, usual), usual) / usual)
        for label, pairs in sorted(found.items())
    }


def _beyond_noise(pairs: Sequence[tuple[float, float]], about: float) -> float:
    """Return the variance of true differences, from measured ones with their errors.

    Each counts by its information on the variance, (about + error^2)^-2, since the square of a normal value with
    variance v has variance 2 v^2: one that was measured badly hardly counts.
    """
    weights = [(about + error**2) ** -2 for _, error in pairs]
    if not weights:
        return 0.0
    beyond = (w * (mean**2 - error**2) for w, (mean, error) in zip(weights, pairs, strict=True))
    return max(0.0, sum(beyond) / sum(weights))


def _information(pairs: Sequence[tuple[float, float]], about: float) -> float:
    """Return how many differences measured without error tell as much of their variance."""
    return sum((about / (about + error**2)) ** 2 for _, error in pairs)


def _drawn(variance: float, count: float, usual: float) -> float:
    """Return a variance that is known from so many differences, drawn towards the usual one."""
    return (_PRIOR_COUNT * usual + count * variance) / (_PRIOR_COUNT + count)


def _widening(contrasts: Sequence[Contrast], total: Array, seen: Array) -> float:
    """Return the factor that makes 90 % intervals hold for nine in ten contrasts of versions left out in turn.

    Leaving out a group of contrasts needs no new fit: with the inverse Q of the covariance, their residuals are
    Q_gg^-1 (Q y)_g with covariance Q_gg^-1 (Rasmussen and Williams 2006, equations 5.10 to 5.12, for groups).
    """
    import numpy as np
    from scipy.stats import norm

    inverse = np.linalg.inv(total)
    solved = inverse @ seen
    groups: dict[object, list[int]] = {}
    for i, c in enumerate(contrasts):
        if not c.is_control:
            groups.setdefault((c.side.version, tuple(sorted(c.side.settings.items()))), []).append(i)
    if len(groups) < 3:
        return 1.0
    scores: list[float] = []
    for members in groups.values():
        covariance = np.linalg.inv(inverse[np.ix_(members, members)])
        scores += list(np.abs(covariance @ solved[members]) / np.sqrt(np.diag(covariance)))
    return max(1.0, float(np.quantile(scores, _CONFIDENCE) / norm.ppf((1 + _CONFIDENCE) / 2)))


def points_of(contrasts: Sequence[Contrast]) -> list[Point]:
    """Return the arms' points, then the references'."""
    sides = [*(c.side for c in contrasts), *(c.reference for c in contrasts)]
    both = [*contrasts, *contrasts]
    return [
        Point(side=side, label=c.label, family=c.family, machine=c.machine) for side, c in zip(sides, both, strict=True)
    ]


def places(count: int, offset: int = 0) -> tuple[Array, Array]:
    """Return where :func:`points_of` puts the arms and the references of so many contrasts."""
    import numpy as np

    return np.arange(offset, offset + count), np.arange(offset + count, offset + 2 * count)


def _noise_parts(contrasts: Sequence[Contrast]) -> tuple[Array, Array, Array]:
    """Return the covariances (n, n) of what does not repeat beyond a block.

    What the rounds tell; of unit amplitude, what an arm's indicator keeps through a block; of unit amplitude, what all
    indicators of an arm keep. Each is whole for an arm with itself, and half for two arms with one reference.
    """
    import numpy as np

    blocks = codes(c.block for c in contrasts)
    labels = codes(c.label for c in contrasts)
    arms = codes((c.block, c.arm) for c in contrasts)
    same_block = blocks[:, None] == blocks[None, :]
    arm = 0.5 * same_block + 0.5 * (arms[:, None] == arms[None, :])
    same_label = labels[:, None] == labels[None, :]
    common = np.array([c.common for c in contrasts])
    own = np.array([math.sqrt(max(0.0, c.error**2 - c.common**2) + _LEAST_ERROR**2) for c in contrasts])
    told = np.outer(common, common) + same_label * np.outer(own, own)
    return arm * told, arm * same_label, arm


def noise_of(contrasts: Sequence[Contrast], amplitudes: Amplitudes) -> Array:
    """Return the covariance (n, n) of what is no effect of a stack."""
    told, label, arm = _noise_parts(contrasts)
    total: Array = amplitudes.noise * told + amplitudes.label * label + amplitudes.arm * arm
    return total
