"""How much releases differ at each indicator, and how much each setting changes, relative to what is usual."""

from __future__ import annotations

import math
from collections.abc import Sequence

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.similarity import side_on

TYPICAL_VARIANCE = 0.05**2
"""Usual variance of a part of the covariance, in squared natural-log units."""
_PRIOR_COUNT = 2.0
"""Weight of the usual difference, in contrasts, when the difference of one indicator is estimated."""


def is_of_settings(c: Contrast) -> bool:
    """Whether a contrast shows the effect of settings on a processor."""
    return c.family != PUBLISHED and c.side.settings != c.reference.settings


def usual_difference(contrasts: Sequence[Contrast]) -> float:
    """Return the mean squared true difference of stacks over all indicators."""
    return _beyond_noise([(c.mean, c.error) for c in contrasts if not c.is_control], TYPICAL_VARIANCE)


def scales_of(contrasts: Sequence[Contrast], usual: float) -> dict[str, float]:
    """Return the standard deviation of differences at each indicator relative to the usual one, shrunk towards it.

    At most indicators versions hardly differ, and at a few they differ much: one amplitude for all would be too wide
    for most indicators and shrink the few too much.

    Args:
        contrasts: Contrasts of one framework and device.
        usual: Mean squared difference over all indicators; without any, there are no scales.
    """
    by_label: dict[str, list[tuple[float, float]]] = {}
    for c in contrasts:
        if not c.is_control:
            by_label.setdefault(c.label, []).append((c.mean, c.error))
    if usual <= 0:
        return {}
    return {
        label: math.sqrt(_shrunk(_beyond_noise(pairs, usual), _information(pairs, usual), usual) / usual)
        for label, pairs in sorted(by_label.items())
    }


def setting_scales_of(contrasts: Sequence[Contrast]) -> dict[str, float]:
    """Return the root mean square of the effects of each setting relative to the usual one, shrunk towards it.

    Most settings hardly change anything, and a few, such as a library that is switched off, change some programs much.

    Args:
        contrasts: Contrasts of one framework on processors.
    """
    effects: dict[str, list[tuple[float, float]]] = {}
    for c in contrasts:
        settings = side_on(c.side, c.machine).settings
        if len(settings) == 1 and not c.reference.settings and c.side.version == c.reference.version:
            effects.setdefault("=".join(*settings.items()), []).append((c.mean, c.error))
    usual = _beyond_noise([pair for pairs in effects.values() for pair in pairs], TYPICAL_VARIANCE)
    if usual <= 0:
        return {}
    return {
        setting: math.sqrt(_shrunk(_beyond_noise(pairs, usual), _information(pairs, usual), usual) / usual)
        for setting, pairs in sorted(effects.items())
    }


def _beyond_noise(pairs: Sequence[tuple[float, float]], about: float) -> float:
    """Return the variance of true differences, from measured ones with their errors.

    Each is weighted by its information on the variance, (about + error^2)^-2, since the square of a normal value with
    variance v has variance 2 v^2: an uncertain measurement hardly counts.
    """
    weights = [(about + error**2) ** -2 for _, error in pairs]
    if not weights:
        return 0.0
    beyond = (w * (mean**2 - error**2) for w, (mean, error) in zip(weights, pairs, strict=True))
    return max(0.0, sum(beyond) / sum(weights))


def _information(pairs: Sequence[tuple[float, float]], about: float) -> float:
    """Return the number of exactly measured differences with the same information on the variance."""
    return sum((about / (about + error**2)) ** 2 for _, error in pairs)


def _shrunk(variance: float, count: float, usual: float) -> float:
    """Return a variance that was estimated from a number of differences, shrunk towards the usual one."""
    return (_PRIOR_COUNT * usual + count * variance) / (_PRIOR_COUNT + count)
