"""Estimation of the amplitudes of the covariance and of the noise, by marginal likelihood.

The covariance of the contrasts is linear in the amplitudes, a variance-components model: K = sum_i a_i B_i + noise.
Their logarithms maximise the marginal likelihood (Rasmussen and Williams 2006, equation 5.8, gradient 5.9) under weak
normal priors, so a part without data keeps its usual amplitude. The noise is estimated from the rounds: half of it is
shared by arms that were compared with one reference, and a part is common to all indicators of an arm. Two more parts
model effects that repeat within a block but not in other blocks; each source of published measurements has two of its
own, as its code or its hosts may have changed between two rows. What all rows of a source with the same software and
settings share does not become smaller with their number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.discrepancy import program_of_label
from knowledge.estimate.evidence import Contrast, Side
from knowledge.estimate.kernel import (
    PARTS,
    ROWS_AT_ONCE,
    Design,
    Point,
    Spans,
    codes,
    parts_of,
    side_key,
    spans_of,
    task_of,
)
from knowledge.estimate.scales import TYPICAL_VARIANCE, is_of_settings, scales_of, setting_scales_of, usual_difference
from knowledge.estimate.similarity import side_on

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

LENGTHS = (1.0, 3.0, 9.0)
"""Candidate correlation lengths, in minor releases: the most likely one is used."""
MOST_FOR_AMPLITUDES = 300
"""Maximum number of contrasts, evenly selected, that amplitudes are fitted to; the posterior uses all contrasts."""
MOST_OF_SETTINGS = 200
"""Maximum number of contrasts of settings in addition to these."""
MOST_ON_ACCELERATORS = 700
"""The same for accelerators, whose measurements are of many tasks, models of accelerators and sources."""
_LEAST_ERROR = 0.005
_LEAST_LASTING = {"label": 2 * 0.01**2, "arm": 2 * 0.015**2}
"""Minimum variance of a contrast due to effects that each of its two arms keeps throughout a block, for one indicator
and for all: standard deviations of 1 % and 1.5 %. One block cannot distinguish it from an effect of the version. The
place of a program in memory alone changes its speed (Mytkowicz et al., "Producing wrong data without doing anything
obviously wrong!", ASPLOS 2009); the values are a judgement."""
_LOOSE = 2.5
_CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplitudes:
    """Fitted amplitudes.

    Attributes:
        parts: Variance of each part of :data:`knowledge.estimate.kernel.PARTS`, in squared natural-log units.
        label: Variance of effects that one indicator of an arm has in one block only.
        arm: Variance of effects that all indicators of an arm share in one block only.
        noise: Factor on the variance that was estimated from the rounds.
        length: Correlation length of versions, in minor releases.
        scales: Standard deviation of the differences between versions relative to the usual one, by label.
        setting_scales: The same of the effects of settings on processors, by ``name=value``.
        spans: Number of minor releases of each major release, by package.
        widening: Factor on standard deviations that calibrates the intervals of held-out versions; at least 1, so that
            estimates are never more certain than the measurements.
        setting_widening: The same for the effects of settings at held-out models.
        likelihood: Log marginal likelihood, including the priors.
        discrepancies: Standard deviation of log ratios of whole programs beyond predictions from ``operations``, from
            ``blocks``, from other ``models``, and from other ``sizes`` of a model
            (:mod:`knowledge.estimate.discrepancy`).
        refused: Those of them whose predictions mislead: no speed is predicted from them.
        shares: Measured shares of the time of whole models that their operations and their blocks take, by list of
            parts (:mod:`knowledge.estimate.measured_shares`).
        sources: The same as ``label`` and ``arm`` for each source of published measurements, by its name.
    """

    parts: tuple[float, ...]
    label: float
    arm: float
    noise: float
    length: float
    scales: Mapping[str, float]
    setting_scales: Mapping[str, float]
    spans: Spans
    widening: float
    setting_widening: float
    likelihood: float
    discrepancies: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    shares: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    sources: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def widening_of(self, c: Contrast) -> float:
        """Return the factor on the standard deviation of a contrast."""
        return self.setting_widening if is_of_settings(c) else self.widening

    def lasting(self, c: Contrast) -> tuple[float, float]:
        """Return the variances of the effects of one indicator, and of all, that an arm keeps in a block or source."""
        return self.sources.get(c.block, (self.label, self.arm))


def fit_amplitudes(contrasts: Sequence[Contrast]) -> Amplitudes:
    """Fit the amplitudes to contrasts of one framework and device."""
    is_cpu = device_of(contrasts) == "cpu"
    sample = _sample(contrasts) if is_cpu else _evenly(contrasts, MOST_ON_ACCELERATORS)
    # Accelerators have few measurements of each label, and settings with larger effects than versions.
    of_releases = [c for c in contrasts if not is_of_settings(c)]
    scales = scales_of(of_releases, usual_difference(of_releases)) if is_cpu else {}
    setting_scales = setting_scales_of(contrasts) if is_cpu else {}
    spans = spans_of(side for c in contrasts for side in (c.side, c.reference))
    fits = (
        _fit(sample, length=length, scales=scales, setting_scales=setting_scales, spans=spans) for length in LENGTHS
    )
    return max(fits, key=lambda fit: fit.likelihood)


def _sample(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return contrasts on processors to fit amplitudes to: some of releases, and some of settings."""
    of_settings = [c for c in contrasts if is_of_settings(c)]
    others = [c for c in contrasts if not is_of_settings(c)]
    return [*_evenly(others, MOST_FOR_AMPLITUDES), *_evenly(of_settings, MOST_OF_SETTINGS)]


def _evenly(contrasts: Sequence[Contrast], most: int) -> list[Contrast]:
    if len(contrasts) <= most:
        return list(contrasts)
    step = len(contrasts) / most
    return [contrasts[int(i * step)] for i in range(most)]


def _fit(
    contrasts: Sequence[Contrast],
    *,
    length: float,
    scales: Mapping[str, float],
    setting_scales: Mapping[str, float],
    spans: Spans,
) -> Amplitudes:
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    arms, references = places(len(contrasts))
    design = Design(points_of(contrasts), length=length, scales=scales, setting_scales=setting_scales, spans=spans)
    sampling, label, arm = _Noise(contrasts).parts()
    device_parts = parts_of(device_of(contrasts))
    every = list(design.contrasts(arms, references, device_parts))
    # A part in which no contrast has variance cannot be estimated.
    present = [i for i, matrix in enumerate(every) if np.any(np.abs(matrix) > 1e-12)]
    masks = _masks(contrasts)
    lasting = [matrix * np.outer(mask, mask) for mask in masks.values() for matrix in (label, arm)]
    parts = [*(every[i] for i in present), *lasting, sampling]
    typical = np.log([*[TYPICAL_VARIANCE] * (len(present) + len(lasting)), 1.0])
    loose = np.array([*[_LOOSE] * (len(present) + len(lasting)), 0.5])
    means = np.array([c.mean for c in contrasts])
    stacked = np.stack(parts)

    def objective(logs: Array) -> tuple[float, Array]:
        amplitudes = np.exp(logs)
        total = np.tensordot(amplitudes, stacked, axes=1)
        try:
            factor = cho_factor(total, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(logs)
        weights = cho_solve(factor, means, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(means)), check_finite=False)
        inverse -= np.outer(weights, weights)
        value = 0.5 * means @ weights + np.log(np.diag(factor[0])).sum()
        gradient = 0.5 * amplitudes * np.einsum("kij,ij->k", stacked, inverse)
        away = (logs - typical) / loose
        return float(value + 0.5 * away @ away), gradient + away / loose

    # The noise is at least what the rounds show: its factor is at least 1.
    least = [(math.log(_LEAST_LASTING[what]), 4.0) for _ in masks for what in ("label", "arm")]
    bounds = [*[(-25.0, 4.0)] * len(present), *least, (0.0, 4.0)]
    result = minimize(objective, typical, jac=True, method="L-BFGS-B", bounds=bounds)
    fitted = np.exp(result.x)
    variances = np.zeros(len(device_parts))
    variances[present] = fitted[: len(present)]
    total = np.tensordot(fitted, stacked, axes=1)
    pairs = fitted[len(present) : -1].reshape(-1, 2)
    sources = {name: (float(label), float(arm)) for name, (label, arm) in zip(masks, pairs, strict=True)}
    own = sources.pop("", (TYPICAL_VARIANCE, TYPICAL_VARIANCE))
    # A part without data keeps its prior: unmeasured effects are uncertain, not zero.
    by_part = {part: float(variances[i]) if i in present else TYPICAL_VARIANCE for i, part in enumerate(device_parts)}
    return Amplitudes(
        parts=tuple(by_part.get(part, 0.0) for part in PARTS),
        label=own[0],
        arm=own[1],
        noise=float(fitted[-1]),
        length=length,
        scales=scales,
        setting_scales=setting_scales,
        spans=spans,
        widening=_widening(_groups(contrasts, _release_or_task), total, means),
        setting_widening=max(
            _widening(_groups(contrasts, key, of_settings=True), total, means) for key in (_model, _size)
        ),
        likelihood=float(-result.fun),
        sources=sources,
    )


def device_of(contrasts: Sequence[Contrast]) -> str:
    """Return the device that contrasts were measured on, which is the same for all: ``cpu`` or another one."""
    return contrasts[0].label.rpartition("/")[2] if contrasts else "cpu"


def _masks(contrasts: Sequence[Contrast]) -> dict[str, Array]:
    """Return which contrasts (n,) each source of published measurements has; those of other blocks are under ``""``."""
    import numpy as np

    names = [c.block if c.family == PUBLISHED else "" for c in contrasts]
    return {name: np.array([other == name for other in names], dtype=float) for name in sorted(set(names))}


def with_own_scales(amplitudes: Amplitudes, own: Sequence[Contrast]) -> Amplitudes:
    """Return amplitudes that have a scale for a project's own benchmark, too.

    Without it, a benchmark that differs more than most indicators would be shrunk like noise.

    Args:
        amplitudes: Amplitudes of the framework.
        own: Contrasts of the project's own benchmark.
    """
    import numpy as np

    compared = [c for c in own if not c.is_control]
    if not compared:
        return amplitudes
    design = Design(
        points_of(compared),
        length=amplitudes.length,
        scales={},
        setting_scales=amplitudes.setting_scales,
        spans=amplitudes.spans,
    )
    usual = float(np.diag(design.covariance(*places(len(compared)), amplitudes.parts)).mean())
    return replace(amplitudes, scales={**amplitudes.scales, **scales_of(compared, usual)})


def _widening(groups: Sequence[Sequence[int]], total: Array, means: Array) -> float:
    """Return the factor with which 90 % intervals cover 90 % of the contrasts, with each group held out in turn.

    Holding out a group of contrasts needs no new fit: with the inverse Q of the covariance, their residuals are
    Q_gg^-1 (Q y)_g with covariance Q_gg^-1 (Rasmussen and Williams 2006, equations 5.10 to 5.12, for groups).

    Args:
        groups: Indices of the contrasts of each group.
        total: Covariance of the contrasts.
        means: The contrasts.
    """
    import numpy as np

    if len(groups) < 3:
        return 1.0
    inverse = np.linalg.inv(total)
    solved = inverse @ means
    scores: list[float] = []
    for members in groups:
        covariance = np.linalg.inv(inverse[np.ix_(members, members)])
        scores += list(np.abs(covariance @ solved[members]) / np.sqrt(np.diag(covariance)))
    return max(1.0, float(np.quantile(scores, _CONFIDENCE) / statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)))


def _groups(
    contrasts: Sequence[Contrast], key: Callable[[Contrast], object], *, of_settings: bool = False
) -> list[list[int]]:
    """Return the indices of contrasts of settings on processors, or of all others, that have the same key."""
    groups: dict[object, list[int]] = {}
    for i, c in enumerate(contrasts):
        if not c.is_control and is_of_settings(c) == of_settings:
            groups.setdefault(key(c), []).append(i)
    return list(groups.values())


def _release_or_task(c: Contrast) -> object:
    """Return the version of a contrast; of a published measurement, its task and source."""
    return (c.block, task_of(c.label)) if c.family == PUBLISHED else c.side.version


def _model(c: Contrast) -> object:
    """Return the model or block of a contrast; of another indicator, its label."""
    return program_of_label(c.label, c.family)[:2]


def _size(c: Contrast) -> object:
    """Return the indicator of a contrast at one size."""
    return c.label


def points_of(contrasts: Sequence[Contrast]) -> list[Point]:
    """Return the points of the arms of contrasts, then the points of their references."""
    both = [*contrasts, *contrasts]
    sides = [
        *(side_on(c.side, c.machine) for c in contrasts),
        *(side_on(c.reference, c.machine) for c in contrasts),
    ]
    # Equal sides become one object: their keys are computed once.
    distinct: dict[object, Side] = {}
    shared = [distinct.setdefault(side_key(side), side) for side in sides]
    return [
        Point(side=side, label=c.label, family=c.family, machine=c.machine)
        for side, c in zip(shared, both, strict=True)
    ]


def places(count: int, offset: int = 0) -> tuple[Array, Array]:
    """Return the indices of the arms and of the references in :func:`points_of`, for a number of contrasts."""
    import numpy as np

    return np.arange(offset, offset + count), np.arange(offset + count, offset + 2 * count)


class _Noise:
    """Covariances of effects of contrasts that do not repeat in other blocks.

    Each is whole for an arm with itself, and half for two arms with one reference.
    """

    def __init__(self, contrasts: Sequence[Contrast]) -> None:
        import numpy as np

        arms = [((c.block, c.arm), (c.block, c.reference_arm)) for c in contrasts]
        where = [(c.label, c.machine.identity) for c in contrasts]
        self._label = codes([(arm, place) for pair, place in zip(arms, where, strict=True) for arm in pair])
        # Rows of one source share what its code makes of a setting or a version, whatever container they ran in.
        self._arm = codes(
            effect
            for c, pair in zip(contrasts, arms, strict=True)
            for effect in (
                ((c.block, side_key(c.side)), (c.block, side_key(c.reference))) if c.family == PUBLISHED else pair
            )
        )
        self._common = np.array([c.common for c in contrasts])
        self._own = np.array([math.sqrt(max(0.0, c.error**2 - c.common**2) + _LEAST_ERROR**2) for c in contrasts])

    def parts(self, rows: slice = slice(None), columns: slice = slice(None)) -> tuple[Array, Array, Array]:
        """Return the covariances (rows, columns).

        Args:
            rows: The contrasts of the rows; by default all.
            columns: The contrasts of the columns; by default all.

        Returns:
            The covariance of the sampling error that was estimated from the rounds; that of effects of one indicator of
            an arm, of unit amplitude; that of effects of all indicators of an arm, of unit amplitude.
        """
        import numpy as np

        label, arm = half_shared(self._label, rows, columns), half_shared(self._arm, rows, columns)
        sampling = arm * np.outer(self._common[rows], self._common[columns])
        sampling += label * np.outer(self._own[rows], self._own[columns])
        return sampling, label, arm


def half_shared(effects: Array, rows: slice = slice(None), columns: slice = slice(None)) -> Array:
    """Return the covariance (rows, columns) of contrasts, each the difference of an arm's effect and a reference's.

    Each effect has the variance 1/2, and different ones are independent.

    Args:
        effects: Codes of the effects of the arm and of the reference of each contrast (2 n,).
        rows: The contrasts of the rows.
        columns: The contrasts of the columns.
    """
    arms, references = effects[0::2], effects[1::2]
    same: Array = 0.5 * (arms[rows, None] == arms[None, columns])
    same += 0.5 * (references[rows, None] == references[None, columns])
    same -= 0.5 * (arms[rows, None] == references[None, columns])
    same -= 0.5 * (references[rows, None] == arms[None, columns])
    return same


def add_noise(covariance: Array, contrasts: Sequence[Contrast], amplitudes: Amplitudes) -> None:
    """Add the covariance of the noise, everything that is not an effect of a stack, to the lower triangle (n, n)."""
    import numpy as np

    noise = _Noise(contrasts)
    deviations = np.sqrt(np.array([amplitudes.lasting(c) for c in contrasts]))
    for start in range(0, len(contrasts), ROWS_AT_ONCE):
        rows, columns = slice(start, start + ROWS_AT_ONCE), slice(0, start + ROWS_AT_ONCE)
        sampling, label, arm = noise.parts(rows, columns)
        # Effects of different sources are independent: the products of two sources are multiplied by 0.
        label *= np.outer(deviations[rows, 0], deviations[columns, 0])
        arm *= np.outer(deviations[rows, 1], deviations[columns, 1])
        covariance[rows, columns] += amplitudes.noise * sampling + label + arm
