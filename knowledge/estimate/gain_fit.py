"""Fits the variances of the model of gains, by the marginal likelihood of measured ratios; never at run time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.gain_model import Noise
from knowledge.estimate.gain_space import Array, Registry, covariance
from knowledge.estimate.gain_terms import Term, Variances, terms_of
from knowledge.estimate.programs import Program
from knowledge.estimate.similarity import common_value, side_on
from knowledge.evidence.contrasts import Contrast

TYPICAL_VARIANCE = 0.05**2
"""Usual variance of a term, in squared natural-log units."""
LOOSE = 2.5
"""Standard deviation of the prior of the logarithm of a variance: a part without data keeps its usual variance."""
LEAST_LABEL, LEAST_ARM = 2 * 0.01**2, 2 * 0.015**2
"""Least variances of what one program, and all programs, have with one arm in one block only: one block cannot
distinguish them from an effect of the version. The place of a program in memory alone changes its speed (Mytkowicz et
al., "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009); the values are a judgement."""
LEAST = 0.003**2
"""Least variance of a term: what data cannot show is not known to be zero."""
LEAST_OF_KINDS = 0.02**2
"""Least variance of how versions differ between kinds of processors: the data are of few kinds; a judgement."""
LEAST_OF_SETTINGS_BY_VERSION = 0.05**2
"""Least variance of what another release changes of a usual setting: the data are of few releases; a judgement."""
LEAST_OF_SOURCE = 2 * 0.015**2
"""Least variance of a published ratio: tables are of one run, rounded; a judgement."""
FEWEST = 20
"""Fewest published ratios of a source with a variance of its own."""
LOOSE_SCALE = 2.0
"""Standard deviation of the prior of the logarithm of the square of a setting's scale: a judgement."""
LEAST_SCALE = 0.1**2
"""Least square of a setting's scale."""
OF_ONE_SETTING = ("setting", "setting of a version")
"""Changes whose effects are proportional to the square of the scale of a setting."""


def fit_variances(
    contrasts: Sequence[Contrast],
    program_of: Callable[[Contrast], Program],
    *,
    device: str = "cpu",
    usual: Mapping[Term, float] | None = None,
) -> Variances:
    """Return the variances that maximise the marginal likelihood under a weak prior.

    The logarithm of each variance has a normal prior (Rasmussen and Williams 2006, equations 5.8 and 5.9). First the
    variances of the terms are fitted, then the scales of settings, then again the variances: they are products.

    Args:
        contrasts: Ratios of one framework on one kind of device.
        program_of: Returns the program of a ratio.
        device: The device: ``cpu``, or another one.
        usual: Means of the prior; 5 % for each term by default.
    """
    problem = VarianceProblem(
        contrasts, program_of, {**dict.fromkeys(terms_of(device), TYPICAL_VARIANCE), **(usual or {})}
    )
    variances = problem.fit_terms({})
    return problem.fit_terms(problem.fit_scales(variances))


class VarianceProblem:
    """Ratios whose variances are fitted."""

    def __init__(
        self,
        contrasts: Sequence[Contrast],
        program_of: Callable[[Contrast], Program],
        usual: Mapping[Term, float],
    ) -> None:
        """Group the ratios.

        Args:
            contrasts: Ratios of one framework on one kind of device.
            program_of: Returns the program of a ratio.
            usual: The terms, with the means of the priors of their variances.
        """
        self._registry, self._usual = Registry(), usual
        self._points = self._registry.points_of(contrasts, program_of)
        self._noise = Noise(contrasts)
        self._means: Array = np.array([c.mean for c in contrasts])
        counts = Counter(c.source for c in contrasts if c.family == PUBLISHED)
        self._sources = [source for source, count in counts.items() if count >= FEWEST]
        rows = [np.array([c.source == source for c in contrasts]) for source in self._sources]
        rare = self._noise.published & ~np.any([*rows, ~self._noise.published], axis=0)
        # Rare sources count together, like unknown ones.
        self._sources += [""] if rare.any() else []
        self._rows = [~self._noise.published, *rows, *([rare] if rare.any() else [])]
        self._settings = sorted(
            {
                "=".join(value)
                for c in contrasts
                for side in (c.side, c.reference)
                for item in side_on(side, c.machine).settings.items()
                for value in (item, common_value(item))
            }
        )

    def fit_terms(self, scales: Mapping[str, float], estimate: Callable[..., list[float]] | None = None) -> Variances:
        """Return the variances of the terms and of the noise, for given scales of settings.

        Args:
            scales: The scales.
            estimate: Returns the variances, from the arguments of :func:`maximise_likelihood`, the default.
        """
        space, noise = self._registry.space(scales), self._noise
        parts = {term: covariance(space, self._points, {term: 1.0}) for term in self._usual}
        present = [term for term, matrix in parts.items() if np.abs(matrix).max(initial=0.0) > 1e-12]
        labels = [noise.label * np.outer(row, row) for row in self._rows]
        software = [noise.software * np.outer(row, row) for row in self._rows[1:]]
        stacked = np.stack([*(parts[term] for term in present), noise.rounds, noise.arm, *labels, *software])
        least = [*map(least_variance, present), 1.0, LEAST_ARM, LEAST_LABEL]
        least += [LEAST_OF_SOURCE] * 2 * len(software)
        typical = [self._usual[term] for term in present] + least[len(present) :]
        loose = [LOOSE] * len(present) + [0.5] + [LOOSE] * (2 + 2 * len(software))
        fitted = (estimate or maximise_likelihood)(self._means, stacked, 0.0 * stacked[0], typical, loose, least)
        factor, arm, label, *of_sources = fitted[len(present) :]
        terms = {**self._usual, **dict(zip(present, fitted, strict=False))}
        return Variances(
            terms={term: max(value, least_variance(term)) for term, value in terms.items()},
            label=label,
            arm=arm,
            noise=factor,
            scales=dict(scales),
            sources=dict(zip(self._sources, of_sources, strict=False)),
            software=dict(zip(self._sources, of_sources[len(software) :], strict=True)),
        )

    def fit_scales(self, variances: Variances) -> dict[str, float]:
        """Return the scale of each setting, for given variances.

        Most settings hardly change anything, and a few, such as a library that is switched off, change some programs
        much.
        """
        if not self._settings:
            return {}
        terms = {term: value for term, value in variances.terms.items() if term.change in OF_ONE_SETTING}
        others = {term: value for term, value in variances.terms.items() if term not in terms}
        rest = covariance(self._registry.space(variances.scales), self._points, others)
        parts = [
            covariance(
                self._registry.space({other: float(other == name) for other in self._settings}), self._points, terms
            )
            for name in self._settings
        ]
        count = len(self._settings)
        fitted = maximise_likelihood(
            self._means,
            np.stack(parts),
            rest + self._noise.covariance(variances),
            [1.0] * count,
            [LOOSE_SCALE] * count,
            [LEAST_SCALE] * count,
        )
        return {name: math.sqrt(value) for name, value in zip(self._settings, fitted, strict=True)}


def least_variance(term: Term) -> float:
    """Return the least variance of a term."""
    if term.change == "setting of a version" and term.programs == "all":
        return LEAST_OF_SETTINGS_BY_VERSION
    return LEAST_OF_KINDS if (term.change, term.machines) == ("version", "kind") else LEAST


def maximise_likelihood(
    means: Array,
    parts: Array,
    rest: Array,
    typical: Sequence[float],
    loose: Sequence[float],
    least: Sequence[float],
) -> list[float]:
    """Return the factors (k,) of parts of a covariance that maximise the marginal likelihood.

    Args:
        means: Measured values (n,).
        parts: Parts of their covariance (k, n, n).
        rest: The rest of it (n, n).
        typical: Means of the priors (k,).
        loose: Standard deviations of the logarithms of the priors (k,).
        least: Least factors (k,).
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    centres, widths = np.log(typical), np.array(loose)

    def objective(logs: Array) -> tuple[float, Array]:
        factors = np.exp(logs)
        root = cho_factor(rest + np.tensordot(factors, parts, axes=1), lower=True, check_finite=False)
        weights = cho_solve(root, means, check_finite=False)
        inverse = cho_solve(root, np.eye(len(means)), check_finite=False) - np.outer(weights, weights)
        value = 0.5 * means @ weights + np.log(np.diag(root[0])).sum()
        away = (logs - centres) / widths
        gradient = 0.5 * factors * np.einsum("kij,ij->k", parts, inverse) + away / widths
        return float(value + 0.5 * away @ away), gradient

    bounds = [(math.log(value), 4.0) for value in least]
    fitted = minimize(objective, centres, jac=True, method="L-BFGS-B", bounds=bounds).x
    values: list[float] = np.exp(fitted).tolist()
    return values
