"""A Gaussian process over contrasts: the posterior of any stack, in closed form.

With the covariance K of the contrasts y (:mod:`knowledge.estimate.amplitudes`) and the covariance k of a stack with
them, the posterior mean is k' K^-1 y and the covariance falls by k' K^-1 k (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, equations 2.23 and 2.24).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from knowledge.estimate.amplitudes import Amplitudes, add_noise, fit_amplitudes, places, points_of
from knowledge.estimate.evidence import Contrast, Machine, Side
from knowledge.estimate.kernel import PARTS, Design, Point
from knowledge.estimate.similarity import side_on

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

MOST_CONTRASTS = 5000
"""Maximum number of contrasts that a process is conditioned on: the last ones."""
_SMALL_BLOCK = 64
_REPEATED = 4
"""Mean number of contrasts of one kind from which on predictions are computed from the kinds."""


class Sums:
    """Posterior of weighted sums over indicators, one of each stack, of its log speed over that of one anchor."""

    def __init__(self, posterior: StackPosterior, weights: Array, anchor: int, cross: Array) -> None:
        """Create the sums.

        Args:
            posterior: Posterior of the stacks.
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
            cross: Prior covariance of each sum with each kind of contrast (stacks, kinds).
        """
        self._posterior = posterior
        self._weights = weights
        self._anchor = anchor
        self._cross = cross
        self._whitened = posterior.whiten(cross)

    @property
    def mean(self) -> Array:
        """Means (stacks,)."""
        return self._posterior.means(self._cross)

    def covariances(self, ones: Sequence[int], others: Sequence[int]) -> Array:
        """Return the covariances of pairs of sums, which are given by the indices of their stacks."""
        import numpy as np

        left, right = np.array(ones, dtype=int), np.array(others, dtype=int)
        prior = self._posterior.prior(self._weights, self._anchor, left, right)
        result: Array = prior - np.einsum("ij,ij->i", self._whitened[left], self._whitened[right])
        return result

    def variances(self, ones: Sequence[int], others: Sequence[int]) -> Array:
        """Return the variances of the differences of pairs of sums, which are given by the indices of their stacks."""
        import numpy as np

        own = self._own_variances
        variances = own[list(ones)] + own[list(others)] - 2 * self.covariances(ones, others)
        result: Array = np.maximum(variances, 0.0)
        return result

    @cached_property
    def _own_variances(self) -> Array:
        every = range(len(self._weights))
        return self.covariances(every, every)

    def contrast_weights(self, one: int, other: int) -> Array:
        """Return the weight of each contrast in the difference of the means of two sums."""
        return self._posterior.weigh(self._cross[one] - self._cross[other])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """The contrasts' covariance K = L L', and the kinds of contrasts.

    Contrasts of the same two stacks at one indicator on one machine are of one kind: they have the same prior
    covariance with everything else. P has a row for each contrast, with 1 in the column of its kind.

    Attributes:
        first: Index of the first contrast of each kind (kinds,).
        kind: Kind of each contrast (n,).
        inverse: Inverse of the Cholesky factor, L^-1 (n, n).
        whitening: V with V V' = P' K^-1 P: P' L^-T (kinds, n), or its Cholesky factor (kinds, kinds) if most kinds have
            several contrasts, so that the cost of a prediction depends on the number of kinds.
        projected_means: P' K^-1 y (kinds,).
    """

    first: Array
    kind: Array
    inverse: Array
    whitening: Array
    projected_means: Array

    def whiten(self, cross: Array) -> Array:
        """Return covariances with the kinds of contrasts (m, kinds), whitened by K: W with W W' = C P' K^-1 P C'."""
        whitened: Array = cross @ self.whitening
        return whitened

    def weigh(self, row: Array) -> Array:
        """Return K^-1 P c for the covariances c with the kinds of contrasts (kinds,)."""
        weights: Array = self.inverse.T @ (self.inverse @ row[self.kind])
        return weights


def _inverse_of_factor(factor: Array) -> Array:
    """Return the inverse of a lower triangular matrix (n, n), by blocks.

    SciPy has a function for it, whose import takes longer than all predictions for an advice.
    """
    import numpy as np

    size = len(factor)
    if size <= _SMALL_BLOCK:
        small: Array = np.linalg.inv(factor)
        return small
    half = size // 2
    inverse = np.zeros_like(factor)
    inverse[:half, :half] = _inverse_of_factor(factor[:half, :half])
    inverse[half:, half:] = _inverse_of_factor(factor[half:, half:])
    inverse[half:, :half] = -inverse[half:, half:] @ (factor[half:, :half] @ inverse[:half, :half])
    return inverse


class GaussianProcess:
    """Gaussian process conditioned on contrasts of one framework on one kind of device."""

    def __init__(self, contrasts: Sequence[Contrast], amplitudes: Amplitudes | None = None) -> None:
        """Condition on contrasts.

        Args:
            contrasts: At most :data:`MOST_CONTRASTS` of them.
            amplitudes: Amplitudes; fitted to the contrasts if none.
        """
        self.contrasts = tuple(contrasts)
        self.amplitudes = amplitudes or fit_amplitudes(self.contrasts)
        self._last_stacks: tuple[object, tuple[Design, Array, Mapping[str, Array]]] | None = None

    @property
    def backend(self) -> str:
        """Backend of the contrasts."""
        return self.contrasts[0].backend

    def posterior(self, sides: Sequence[Side], labels: Sequence[tuple[str, str]], machine: Machine) -> StackPosterior:
        """Return the posterior of the log speed of stacks.

        Args:
            sides: The stacks.
            labels: Label and family of each indicator.
            machine: The machine that the stacks run on.
        """
        import numpy as np

        design, heads, correlations = self._stacks(tuple(sides), labels[0], machine)
        points = [Point(side=sides[0], label=label, family=family, machine=machine) for label, family in labels]
        arms, _ = places(len(self._solved.first))
        return StackPosterior(
            self._design(points, design),
            self.amplitudes.parts,
            self._solved,
            rows=np.arange(len(design), len(design) + len(points)),
            heads=heads,
            arms=arms,
            correlations=correlations,
        )

    def _stacks(
        self, sides: tuple[Side, ...], label: tuple[str, str], machine: Machine
    ) -> tuple[Design, Array, Mapping[str, Array]]:
        """Return the encoded contrasts and stacks, the indices of the stacks, and correlations with the contrasts.

        Correlations depend only on stacks, and all kinds of workload ask for the same ones: the last ones are kept.

        Args:
            sides: The stacks.
            label: Label and family of any indicator.
            machine: The machine.
        """
        import numpy as np

        if self._last_stacks is None or self._last_stacks[0] != (sides, machine):
            points = [
                Point(side=side_on(side, machine), label=label[0], family=label[1], machine=machine) for side in sides
            ]
            base = self._design_of_kinds
            design = self._design(points, base)
            arms, references = places(len(self._solved.first))
            heads = np.arange(len(base), len(design))
            column = heads[:, None]
            # Correlation of each stack with the contrasts, in each effect.
            correlations = {
                effect: design.correlation(effect, column, arms[None, :])
                - design.correlation(effect, column, references[None, :])
                for effect in dict.fromkeys(part[0] for part in PARTS)
                if any(v > 0 for part, v in zip(PARTS, self.amplitudes.parts, strict=True) if part[0] == effect)
            }
            self._last_stacks = (sides, machine), (design, heads, correlations)
        return self._last_stacks[1]

    def _design(self, points: Sequence[Point], base: Design | None = None) -> Design:
        amplitudes = self.amplitudes
        return Design(
            points,
            length=amplitudes.length,
            scales=amplitudes.scales,
            setting_scales=amplitudes.setting_scales,
            spans=amplitudes.spans,
            base=base,
        )

    @cached_property
    def _design_of_kinds(self) -> Design:
        """The points of the first contrast of each kind; contrasts of one kind differ only in their noise."""
        return self._design(points_of([self.contrasts[index] for index in self._solved.first]))

    @cached_property
    def _solved(self) -> _Solved:
        import numpy as np

        design = self._design(points_of(self.contrasts))
        arms, references = places(len(self.contrasts))
        total = design.covariance(arms, references, self.amplitudes.parts)
        add_noise(total, self.contrasts, self.amplitudes)
        inverse = _inverse_of_factor(np.linalg.cholesky(total))
        first, kind = design.distinct(arms, references)
        means = inverse.T @ (inverse @ np.array([c.mean for c in self.contrasts]))
        whitening = inverse.T
        if len(first) < len(kind):
            whitening = np.zeros((len(first), len(kind)))
            np.add.at(whitening, kind, inverse.T)
        if _REPEATED * len(first) <= len(kind):
            whitening = np.linalg.cholesky(whitening @ whitening.T)
        projected = np.bincount(kind, weights=means, minlength=len(first))
        return _Solved(first=first, kind=kind, inverse=inverse, whitening=whitening, projected_means=projected)


class StackPosterior:
    """Posterior of the log speed of stacks at some indicators; only differences of stacks are meaningful."""

    def __init__(
        self,
        design: Design,
        parts: Sequence[float],
        solved: _Solved,
        *,
        rows: Array,
        heads: Array,
        arms: Array,
        correlations: Mapping[str, Array],
    ) -> None:
        """Create the posterior.

        Args:
            design: The encoded points.
            parts: Variance of each part of the covariance.
            solved: The contrasts' covariance.
            rows: Index of a point at each indicator (labels,).
            heads: Index of a point of each stack (stacks,).
            arms: Index of the arm of the first contrast of each kind (kinds,).
            correlations: Correlation of each stack with each kind of contrast (stacks, kinds), by effect.
        """
        self._design = design
        self._solved = solved
        self._heads = heads
        # Parts of one effect differ only in which indicators and machines share them: their covariances add up.
        self._with_contrasts: dict[str, Array] = {}
        self._with_each_other: dict[str, Array] = {}
        for part, variance in zip(PARTS, parts, strict=True):
            if variance > 0:
                for sums, others in ((self._with_contrasts, arms), (self._with_each_other, rows)):
                    sums[part[0]] = sums.get(part[0], 0.0) + variance * design.sharing(part, rows, others)
        self._correlations = correlations

    def levels(self) -> Array:
        """Return the mean log speed of each stack at each indicator (stacks, labels)."""
        means = self._solved.projected_means
        levels: Array = sum(
            correlations @ (self._with_contrasts[effect] * means).T
            for effect, correlations in self._correlations.items()
        )
        return levels

    def sums(self, weights: Array, anchor: int) -> Sums:
        """Return weighted sums over the indicators, one of each stack, of its log speed over that of the anchor.

        Args:
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
        """
        import numpy as np

        cross = np.zeros((len(weights), len(self._solved.first)))
        for effect, correlations in self._correlations.items():
            # One row is enough if the indicators have the same weights for all stacks.
            distinct = weights[:1] if np.array_equal(weights, np.broadcast_to(weights[:1], weights.shape)) else weights
            cross += (correlations - correlations[anchor]) * (distinct @ self._with_contrasts[effect])
        return Sums(self, weights, anchor, cross)

    def prior(self, weights: Array, anchor: int, left: Array, right: Array) -> Array:
        """Return the prior covariances of pairs of sums; see :meth:`sums`.

        Args:
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
            left: Indices of the stacks of the first sums (n,).
            right: Indices of the stacks of the second sums (n,).
        """
        import numpy as np

        ones, others, base = self._heads[left], self._heads[right], self._heads[[anchor]]
        covariances = np.zeros(len(left))
        for effect, shared in self._with_each_other.items():
            correlation = self._design.correlation(effect, ones, others)
            correlation -= self._design.correlation(effect, ones, base)
            correlation -= self._design.correlation(effect, base, others)
            correlation += self._design.correlation(effect, base, base)
            covariances += correlation * ((weights[left] @ shared) * weights[right]).sum(axis=1)
        return covariances

    def whiten(self, cross: Array) -> Array:
        """Return prior covariances with the contrasts, whitened by the contrasts' covariance."""
        return self._solved.whiten(cross)

    def means(self, cross: Array) -> Array:
        """Return the means of sums with these prior covariances with the contrasts."""
        means: Array = cross @ self._solved.projected_means
        return means

    def weigh(self, row: Array) -> Array:
        """Return the weight of each contrast in the mean of a sum with these prior covariances with the contrasts."""
        return self._solved.weigh(row)


def predict_held_out(
    fitted: Sequence[Contrast], held_out: Sequence[Contrast], amplitudes: Amplitudes | None = None
) -> tuple[Array, Array]:
    """Predict contrasts that the model was not fitted to, with their own noise, to check the model.

    A contrast of the same block and indicator shares the error of the reference with the contrasts of the fit. Advice
    is about the process without noise.

    Args:
        fitted: Contrasts that the model is fitted to.
        held_out: Contrasts to predict.
        amplitudes: Amplitudes; by default those that are fitted to the contrasts that are not held out.

    Returns:
        Means (n,) and standard deviations (n,) of the held-out contrasts.
    """
    import numpy as np
    from scipy.linalg import cho_solve

    amplitudes = amplitudes or fit_amplitudes(fitted)
    contrasts = [*fitted, *held_out]
    design = Design(
        points_of(contrasts),
        length=amplitudes.length,
        scales=amplitudes.scales,
        setting_scales=amplitudes.setting_scales,
        spans=amplitudes.spans,
    )
    total = design.covariance(*places(len(contrasts)), amplitudes.parts)
    add_noise(total, contrasts, amplitudes)
    count = len(fitted)
    factor = np.linalg.cholesky(total[:count, :count])
    gain = cho_solve((factor, True), total[:count, count:]).T
    mean = gain @ np.array([c.mean for c in fitted])
    variance = np.diag(total[count:, count:]) - np.einsum("ij,ij->i", gain, total[count:, :count])
    widening = np.array([amplitudes.widening_of(c) for c in held_out])
    return mean, widening * np.sqrt(np.maximum(variance, 0.0))
