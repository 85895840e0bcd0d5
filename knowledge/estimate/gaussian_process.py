"""A Gaussian process over contrasts: the posterior of any stack, in closed form.

With the covariance K of the contrasts y (:mod:`knowledge.estimate.amplitudes`) and the covariance k of a stack with
them, the posterior mean is k' K^-1 y and the covariance falls by k' K^-1 k (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, equations 2.23 and 2.24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
class Sums:
    """Posterior of weighted sums over indicators, each of the log speed of a stack over that of one anchor.

    Attributes:
        mean: Means (n,).
        cross: Prior covariance with each kind of contrast (n, kinds).
        whitened: ``cross``, whitened by the contrasts' covariance (n, kinds): the contrasts reduce the covariance of
            two sums by the inner product of their rows.
        prior: Function from two arrays of indices to the prior covariances of these pairs of sums.
        weigh: Function from a row of ``cross`` to the weight of each contrast.
    """

    mean: Array
    cross: Array
    whitened: Array
    prior: Callable[[Array, Array], Array]
    weigh: Callable[[Array], Array]

    def variances(self, ones: Sequence[int], others: Sequence[int]) -> Array:
        """Return the variances of the differences of pairs of sums, which are given by their indices."""
        import numpy as np

        left, right = np.array(ones, dtype=int), np.array(others, dtype=int)
        whitened = self.whitened[left] - self.whitened[right]
        before = self.prior(left, left) + self.prior(right, right) - 2 * self.prior(left, right)
        result: Array = np.maximum(before - np.einsum("ij,ij->i", whitened, whitened), 0.0)
        return result

    def weights(self, one: int, other: int) -> Array:
        """Return the weight of each contrast in the difference of the means of two sums."""
        return self.weigh(self.cross[one] - self.cross[other])


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

    def posterior(self, sides: Sequence[Side], labels: Sequence[tuple[str, str]], machine: Machine) -> StackPosterior:
        """Return the posterior of the log speed of stacks.

        Args:
            sides: The stacks.
            labels: Label and family of each indicator.
            machine: The machine that the stacks run on.
        """
        import numpy as np

        # Every stack is at the same indicators, so one point for each stack and each indicator is enough.
        points = [Point(side=sides[0], label=label, family=family, machine=machine) for label, family in labels]
        points += [Point(side=side, label=labels[0][0], family=labels[0][1], machine=machine) for side in sides]
        design = Design(
            [*points, *points_of(self.contrasts)],
            length=self.amplitudes.length,
            scales=self.amplitudes.scales,
            spans=self.amplitudes.spans,
        )
        arms, references = places(len(self.contrasts), len(points))
        solved = self._solve(design, arms, references)
        return StackPosterior(
            design,
            self.amplitudes.parts,
            solved,
            rows=np.arange(len(labels)),
            heads=np.arange(len(labels), len(points)),
            arms=arms[solved.first],
            references=references[solved.first],
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
        references: Array,
    ) -> None:
        """Create the posterior.

        Args:
            design: The encoded points.
            parts: Variance of each part of the covariance.
            solved: The contrasts' covariance.
            rows: Index of a point at each indicator (labels,).
            heads: Index of a point of each stack (stacks,).
            arms: Index of the arm of the first contrast of each kind (kinds,).
            references: Index of its reference (kinds,).
        """
        self._design = design
        self._parts = [(part, variance) for part, variance in zip(PARTS, parts, strict=True) if variance > 0]
        self._solved = solved
        self._rows = rows
        self._heads = heads
        self._arms = arms
        effects = sorted({part[0] for part, _ in self._parts})
        column = heads[:, None]
        # Correlation of each stack with the contrasts, in each effect.
        self._correlations = {
            e: design.correlation(e, column, arms[None, :]) - design.correlation(e, column, references[None, :])
            for e in effects
        }

    def levels(self) -> Array:
        """Return the mean log speed of each stack at each indicator (stacks, labels)."""
        import numpy as np

        levels = np.zeros((len(self._heads), len(self._rows)))
        for part, variance in self._parts:
            shared = self._design.sharing(part, self._rows, self._arms)
            levels += variance * (self._correlations[part[0]] * self._solved.projected_means) @ shared.T
        return levels

    def sums(self, stacks: Sequence[int], weights: Array, anchor: int) -> Sums:
        """Return weighted sums over the indicators, each of the log speed of a stack over that of the anchor.

        Args:
            stacks: Index of the stack of each sum (n,).
            weights: Weights of the indicators in each sum (n, labels).
            anchor: Index of the anchor.
        """
        import numpy as np
        from scipy.linalg import solve_triangular

        solved, places = self._solved, np.array(stacks, dtype=int)
        cross = np.zeros((len(places), len(self._arms)))
        for part, variance in self._parts:
            correlation = self._correlations[part[0]]
            shared = weights @ self._design.sharing(part, self._rows, self._arms)
            cross += variance * (correlation[places] - correlation[anchor]) * shared
        heads, base = self._heads[places], np.full(len(places), self._heads[anchor])

        def prior(left: Array, right: Array) -> Array:
            covariances = np.zeros(len(left))
            for part, variance in self._parts:
                ways = [
                    self._design.correlation(part[0], one[left], other[right])
                    for one in (heads, base)
                    for other in (heads, base)
                ]
                shared = self._design.sharing(part, self._rows, self._rows)
                sums = np.einsum("ij,jk,ik->i", weights[left], shared, weights[right], optimize=True)
                covariances += variance * (ways[0] - ways[1] - ways[2] + ways[3]) * sums
            return covariances

        def weigh(row: Array) -> Array:
            result: Array = solve_triangular(solved.factor.T, solved.kinds @ row, lower=False)
            return result

        return Sums(
            mean=cross @ solved.projected_means,
            cross=cross,
            whitened=cross @ solved.root,
            prior=prior,
            weigh=weigh,
        )


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
