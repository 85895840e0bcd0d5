"""A Gaussian process over contrasts: the posterior of any stack, in closed form.

With the covariance K of the contrasts y (:mod:`knowledge.estimate.amplitudes`) and the covariance k of a stack with
them, the posterior mean is k' K^-1 y and the covariance falls by k' K^-1 k (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, equations 2.23 and 2.24).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from knowledge.estimate.amplitudes import Amplitudes, fit_amplitudes, noise_of, places, points_of
from knowledge.estimate.evidence import Contrast, Machine, Side
from knowledge.estimate.kernel import PARTS, Design, Point

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

MOST_CONTRASTS = 5000
"""Maximum number of contrasts that a process is conditioned on: the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Selected effects of a stack.

    Attributes:
        side: The stack.
        effects: Names of effects (see :data:`knowledge.estimate.kernel.PARTS`); all effects if none.
    """

    side: Side
    effects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """Gains of terms over one of them.

    Attributes:
        mean: Means (n,).
        variance: Variances (n,).
        whitened: Prior covariance of each gain with the contrasts, whitened by the contrasts' covariance (n, kinds):
            the contrasts reduce the covariance of two gains by the inner product of their rows.
    """

    mean: Array
    variance: Array
    whitened: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Posterior of weighted sums of log speed over indicators; only differences are meaningful, not levels.

    Attributes:
        mean: Means (n,).
        cross: Prior covariance with each kind of contrast (n, kinds).
        whitened: ``cross``, whitened by the contrasts' covariance (n, kinds): the contrasts reduce the covariance of
            two terms by the inner product of their rows.
        weigh: Function from a row of ``cross`` to the weight of each contrast.
        prior: Function from two arrays of indices to the prior covariances of these pairs of terms.
    """

    mean: Array
    cross: Array
    whitened: Array
    weigh: Callable[[Array], Array]
    prior: Callable[[Array, Array], Array]

    def difference_from(self, places: Sequence[int], anchor: int) -> Gains:
        """Return the gains of terms over an anchor; terms and anchor are given by their indices."""
        import numpy as np

        indices, base = np.array(places, dtype=int), np.full(len(places), anchor)
        whitened = self.whitened[indices] - self.whitened[anchor]
        before = self.prior(indices, indices) + self.prior(base, base) - 2 * self.prior(indices, base)
        variance = np.maximum(before - np.einsum("ij,ij->i", whitened, whitened), 0.0)
        return Gains(mean=self.mean[indices] - self.mean[anchor], variance=variance, whitened=whitened)

    def weights(self, place: int, anchor: int) -> Array:
        """Return the weight of each contrast in the mean gain of a term over an anchor."""
        return self.weigh(self.cross[place] - self.cross[anchor])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """The contrasts' covariance K = L L', solved for the kinds of contrasts P.

    Contrasts of the same two stacks at one indicator on one machine are of one kind: they have the same prior
    covariance with everything else, so the cost of a prediction depends on the number of kinds.

    Attributes:
        first: Index of the first contrast of each kind (kinds,).
        factor: Cholesky factor L.
        kinds: L^-1 P (contrasts, kinds).
        root: Cholesky factor of P' K^-1 P (kinds, kinds).
        projected_means: P' K^-1 y (kinds,).
    """

    first: Array
    factor: Array
    kinds: Array
    root: Array
    projected_means: Array


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
        self._solved: _Solved | None = None

    @property
    def backend(self) -> str:
        """Backend of the contrasts."""
        return self.contrasts[0].backend

    def posterior(self, terms: Sequence[Term], shares: Mapping[tuple[str, str], float], machine: Machine) -> Posterior:
        """Return the posterior of terms, as weighted sums over indicators.

        Args:
            terms: Stacks, each with its selected effects.
            shares: Weight of each indicator, by label and family.
            machine: The machine that the stacks run on.
        """
        import numpy as np
        from scipy.linalg import solve_triangular

        # All sums are over the same indicators, so the points of the first term are enough.
        (head_label, head_family), *_ = shares
        points = [Point(side=terms[0].side, label=label, family=family, machine=machine) for label, family in shares]
        points += [Point(side=t.side, label=head_label, family=head_family, machine=machine) for t in terms]
        labels = len(shares)
        design = Design(
            [*points, *points_of(self.contrasts)],
            length=self.amplitudes.length,
            scales=self.amplitudes.scales,
            spans=self.amplitudes.spans,
        )
        arms, references = places(len(self.contrasts), len(points))
        solved = self._solve(design, arms, references)
        row, heads = np.arange(labels), np.arange(labels, labels + len(terms))
        weights = np.array(list(shares.values()))
        arms, references = arms[solved.first], references[solved.first]
        cross = np.zeros((len(terms), len(arms)))
        selected = {what: np.array([t.effects is None or what in t.effects for t in terms]) for what, *_ in PARTS}
        for part, variance in zip(PARTS, self.amplitudes.parts, strict=True):
            indices = np.flatnonzero(selected[part[0]])
            if variance > 0 and len(indices):
                cross[indices] += variance * design.sums(part, heads[indices], row, weights, arms)
                cross[indices] -= variance * design.sums(part, heads[indices], row, weights, references)

        def prior(left: Array, right: Array) -> Array:
            covariances = np.zeros(len(left))
            for part, variance in zip(PARTS, self.amplitudes.parts, strict=True):
                both = selected[part[0]][left] & selected[part[0]][right]
                covariances += variance * both * design.sums_of_sums(part, heads[left], heads[right], row, weights)
            return covariances

        def weigh(row: Array) -> Array:
            weights: Array = solve_triangular(solved.factor.T, solved.kinds @ row, lower=False)
            return weights

        return Posterior(
            mean=cross @ solved.projected_means, cross=cross, whitened=cross @ solved.root, weigh=weigh, prior=prior
        )

    def _solve(self, design: Design, arms: Array, references: Array) -> _Solved:
        import numpy as np
        from scipy.linalg import solve_triangular

        if self._solved is None:
            total = noise_of(self.contrasts, self.amplitudes)
            for variance, matrix in zip(self.amplitudes.parts, design.contrasts(arms, references), strict=True):
                total += variance * matrix
            factor = np.linalg.cholesky(total)
            first, kind = design.distinct(arms, references)
            membership = (kind[:, None] == np.arange(len(first))).astype(float)
            kinds = solve_triangular(factor, membership, lower=True)
            means = solve_triangular(factor, np.array([c.mean for c in self.contrasts]), lower=True)
            root = np.linalg.cholesky(kinds.T @ kinds)
            self._solved = _Solved(first=first, factor=factor, kinds=kinds, root=root, projected_means=kinds.T @ means)
        return self._solved


def predict_held_out(fitted: Sequence[Contrast], held_out: Sequence[Contrast]) -> tuple[Array, Array]:
    """Predict contrasts that the model was not fitted to, with their own noise, to check the model.

    A contrast of the same block and indicator shares the error of the reference with the contrasts of the fit. Advice
    is about the process without noise.

    Args:
        fitted: Contrasts that the model is fitted to.
        held_out: Contrasts to predict.

    Returns:
        Means (n,) and standard deviations (n,) of the held-out contrasts.
    """
    import numpy as np
    from scipy.linalg import cho_solve

    amplitudes = fit_amplitudes(fitted)
    contrasts = [*fitted, *held_out]
    total = noise_of(contrasts, amplitudes)
    design = Design(points_of(contrasts), length=amplitudes.length, scales=amplitudes.scales, spans=amplitudes.spans)
    arms, references = places(len(contrasts))
    for variance, matrix in zip(amplitudes.parts, design.contrasts(arms, references), strict=True):
        total += variance * matrix
    count = len(fitted)
    factor = np.linalg.cholesky(total[:count, :count])
    gain = cho_solve((factor, True), total[:count, count:]).T
    mean = gain @ np.array([c.mean for c in fitted])
    variance = np.diag(total[count:, count:]) - np.einsum("ij,ij->i", gain, total[count:, :count])
    return mean, amplitudes.widening * np.sqrt(np.maximum(variance, 0.0))
