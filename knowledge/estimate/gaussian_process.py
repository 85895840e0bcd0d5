"""A Gaussian process over contrasts: the posterior of any stack, in closed form.

With the covariance K of the contrasts y (:mod:`knowledge.estimate.amplitudes`) and the covariance k of a stack with
them, the posterior mean is k' K^-1 y and the covariance falls by k' K^-1 k (Rasmussen and Williams, Gaussian Processes
for Machine Learning, 2006, equations 2.23 and 2.24).

There are many contrasts, but few pairs of stacks that they compare. So the covariances of many stacks with the
contrasts are combinations of few rows, one for each indicator, effect and pair: only these are multiplied by K^-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from knowledge.estimate.amplitudes import Amplitudes, add_noise, fit_amplitudes, places, points_of
from knowledge.estimate.evidence import Contrast, Machine, Side
from knowledge.estimate.kernel import PARTS, Design, Point, side_key
from knowledge.estimate.similarity import side_on

if TYPE_CHECKING:
    from knowledge.estimate.kernel import Array

MOST_CONTRASTS = 5000
"""Maximum number of contrasts that a process is conditioned on: the last ones."""
_Differences = Mapping[str, "tuple[Array, Array]"]
"""Pairs of stacks (active,) and differences of correlations with them (stacks, active), by effect."""
_BLOCK = 64
"""Rows of a triangular matrix that are solved at once."""


class _Factor:
    """The Cholesky factor L of a covariance K = L L' (n, n).

    SciPy solves with triangular matrices, but its import takes longer than all predictions for an advice.
    """

    def __init__(self, covariance: Array) -> None:
        """Factorise a covariance, of which only the lower triangle is read."""
        import numpy as np

        self._lower: Array = np.linalg.cholesky(covariance)

    def whiten(self, columns: Array) -> Array:
        """Return L^-1 C for columns C (n, m)."""
        import numpy as np

        lower, whitened = self._lower, np.array(columns)
        for start in range(0, len(lower), _BLOCK):
            own = slice(start, start + _BLOCK)
            whitened[own] -= lower[own, :start] @ whitened[:start]
            whitened[own] = np.linalg.solve(lower[own, own], whitened[own])
        return whitened

    def solve(self, column: Array) -> Array:
        """Return K^-1 c for a column c (n,)."""
        import numpy as np

        lower, solved = self._lower, self.whiten(column[:, None])[:, 0]
        for start in reversed(range(0, len(lower), _BLOCK)):
            own, after = slice(start, start + _BLOCK), slice(start + _BLOCK, None)
            solved[own] -= lower[after, own].T @ solved[after]
            solved[own] = np.linalg.solve(lower[own, own].T, solved[own])
        return solved


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
        self._stacks: dict[Machine, _Stacks] = {}
        self._indicators: dict[tuple[Machine, tuple[tuple[str, str], ...]], _Indicators] = {}

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
        if machine not in self._stacks:
            self._stacks[machine] = _Stacks(self, machine)
        stacks = self._stacks[machine]
        key = machine, tuple(labels)
        if key not in self._indicators:
            self._indicators[key] = self._encoded(labels, machine)
        return StackPosterior(self, stacks, stacks.rows(sides), self._indicators[key])

    def _encoded(self, labels: Sequence[tuple[str, str]], machine: Machine) -> _Indicators:
        import numpy as np

        side = self.contrasts[0].side
        points = [Point(side=side, label=label, family=family, machine=machine) for label, family in labels]
        design = self.encode(points, self.design)
        rows = np.arange(len(self.design), len(design))
        # Parts of one effect differ only in which indicators and machines share them: their covariances add up.
        with_contrasts: dict[str, Array] = {}
        with_each_other: dict[str, Array] = {}
        for part, variance in zip(PARTS, self.amplitudes.parts, strict=True):
            if variance > 0:
                for sums, others in ((with_contrasts, self.arms), (with_each_other, rows)):
                    sums[part[0]] = sums.get(part[0], 0.0) + variance * design.sharing(part, rows, others)
        pairs, first = self.pairs
        means = {
            effect: np.array([np.bincount(pairs, row * self.solved_means, len(first)) for row in covariances])
            for effect, covariances in with_contrasts.items()
        }
        return _Indicators(with_contrasts=with_contrasts, with_each_other=with_each_other, means=means)

    def encode(self, points: Sequence[Point], base: Design | None = None) -> Design:
        """Return encoded points, after those of another design."""
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
    def design(self) -> Design:
        """The encoded contrasts: their arms, then their references."""
        return self.encode(points_of(self.contrasts))

    @property
    def arms(self) -> Array:
        """Indices of the arms of the contrasts (n,)."""
        return places(len(self.contrasts))[0]

    @cached_property
    def pairs(self) -> tuple[Array, Array]:
        """The pair of stacks of each contrast (n,), and the first contrast of each pair (pairs,)."""
        return self.design.pairs(*places(len(self.contrasts)))

    @cached_property
    def factor(self) -> _Factor:
        """The factor of the contrasts' covariance K."""
        total = self.design.covariance(*places(len(self.contrasts)), self.amplitudes.parts)
        add_noise(total, self.contrasts, self.amplitudes)
        return _Factor(total)

    @cached_property
    def solved_means(self) -> Array:
        """K^-1 y (n,)."""
        import numpy as np

        return self.factor.solve(np.array([c.mean for c in self.contrasts]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Indicators:
    """Covariances of indicators on a machine, by effect.

    Attributes:
        with_contrasts: With the contrasts, whatever their stacks are (labels, n).
        with_each_other: With each other (labels, labels).
        means: With the contrasts of each pair of stacks, times K^-1 y (labels, pairs).
    """

    with_contrasts: Mapping[str, Array]
    with_each_other: Mapping[str, Array]
    means: Mapping[str, Array]


class _Stacks:
    """Stacks on a machine, each encoded once: all kinds of workloads ask for the same ones."""

    def __init__(self, process: GaussianProcess, machine: Machine) -> None:
        self._process = process
        self._machine = machine
        self._rows: dict[object, int] = {}
        self.design = process.design
        self.correlations: dict[str, Array] = {}
        """Correlation of each stack with the contrasts of each pair (stacks, pairs), by effect with a variance."""

    def rows(self, sides: Sequence[Side]) -> Array:
        """Return the row of each stack."""
        import numpy as np

        sides = [side_on(side, self._machine) for side in sides]
        keys = [side_key(side) for side in sides]
        new = {key: side for key, side in zip(keys, sides, strict=True) if key not in self._rows}
        if new:
            self._rows.update(zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True))
            self._add(list(new.values()))
        return np.array([self._rows[key] for key in keys])

    def _add(self, sides: Sequence[Side]) -> None:
        import numpy as np

        process = self._process
        label, family = process.contrasts[0].label, process.contrasts[0].family
        points = [Point(side=side, label=label, family=family, machine=self._machine) for side in sides]
        heads = np.arange(len(self.design), len(self.design) + len(points))
        self.design = process.encode(points, self.design)
        _, first = process.pairs
        arms, references = process.arms[first], process.arms[first] + len(process.contrasts)
        for effect in dict.fromkeys(p[0] for p, v in zip(PARTS, process.amplitudes.parts, strict=True) if v > 0):
            own = self.design.correlation(effect, heads[:, None], arms[None, :])
            own -= self.design.correlation(effect, heads[:, None], references[None, :])
            before = self.correlations.get(effect)
            self.correlations[effect] = own if before is None else np.concatenate([before, own])

    def heads(self, rows: Array) -> Array:
        """Return the indices of the points of stacks in the design."""
        heads: Array = len(self._process.design) + rows
        return heads


class StackPosterior:
    """Posterior of the log speed of stacks at some indicators; only differences of stacks are meaningful."""

    def __init__(self, process: GaussianProcess, stacks: _Stacks, rows: Array, indicators: _Indicators) -> None:
        """Create the posterior.

        Args:
            process: The process.
            stacks: Encoded stacks on the machine.
            rows: Rows of the stacks of the posterior (stacks,).
            indicators: The indicators.
        """
        self._process = process
        self._stacks = stacks
        self._rows = rows
        self._indicators = indicators

    def levels(self) -> Array:
        """Return the mean log speed of each stack at each indicator (stacks, labels)."""
        import numpy as np

        means, correlations = self._indicators.means, self._stacks.correlations
        levels: Array = np.sum([own[self._rows] @ means[effect].T for effect, own in correlations.items()], axis=0)
        return levels

    def sums(self, weights: Array, anchor: int) -> Sums:
        """Return weighted sums over the indicators, one of each stack, of its log speed over that of the anchor.

        Args:
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
        """
        differences = {}
        for effect, correlations in self._stacks.correlations.items():
            own = correlations[self._rows] - correlations[self._rows[anchor]]
            # Most pairs differ only in settings, or only in versions: they say nothing about other differences.
            active = own.any(axis=0).nonzero()[0]
            differences[effect] = active, own[:, active]
        terms = weights.shape[1] * sum(len(active) for active, _ in differences.values())
        split = self._split if terms < len(weights) else self._whole
        return Sums(self, weights, anchor, *split(weights, differences))

    def _split(self, weights: Array, differences: _Differences) -> tuple[Array, Array]:
        """Return coordinates and rows, of which there is one for each indicator, effect and pair; see :class:`Sums`."""
        import numpy as np

        pairs, _ = self._process.pairs
        coordinates = [weights[:, :, None] * own[:, None, :] for _, own in differences.values()]
        rows = [
            self._indicators.with_contrasts[effect][:, None, :] * (pairs == active[:, None])
            for effect, (active, _) in differences.items()
        ]
        return (
            np.concatenate([array.reshape(len(weights), -1) for array in coordinates], axis=1),
            np.concatenate([array.reshape(-1, len(pairs)) for array in rows]),
        )

    def _whole(self, weights: Array, differences: _Differences) -> tuple[Array, Array]:
        """Return coordinates and rows, of which there is one for each stack; see :class:`Sums`."""
        import numpy as np

        pairs, first = self._process.pairs
        rows = np.zeros((len(weights), len(pairs)))
        for effect, (active, own) in differences.items():
            every = np.zeros((len(weights), len(first)))
            every[:, active] = own
            rows += every[:, pairs] * (weights @ self._indicators.with_contrasts[effect])
        return np.eye(len(weights)), rows

    def prior(self, weights: Array, anchor: int, left: Array, right: Array) -> Array:
        """Return the prior covariances of pairs of sums; see :meth:`sums`.

        Args:
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
            left: Indices of the stacks of the first sums (n,).
            right: Indices of the stacks of the second sums (n,).
        """
        import numpy as np

        design, heads = self._stacks.design, self._stacks.heads(self._rows)
        ones, others, base = heads[left], heads[right], heads[[anchor]]
        covariances = np.zeros(len(left))
        for effect, shared in self._indicators.with_each_other.items():
            correlation = design.correlation(effect, ones, others)
            correlation -= design.correlation(effect, ones, base)
            correlation -= design.correlation(effect, base, others)
            correlation += design.correlation(effect, base, base)
            covariances += correlation * ((weights[left] @ shared) * weights[right]).sum(axis=1)
        return covariances

    def means(self, rows: Array) -> Array:
        """Return R K^-1 y for rows R of covariances with the contrasts (m, n)."""
        means: Array = rows @ self._process.solved_means
        return means

    def reductions(self, rows: Array) -> Array:
        """Return R K^-1 R' for rows R of covariances with the contrasts (m, n)."""
        whitened = self._process.factor.whiten(rows.T)
        reductions: Array = whitened.T @ whitened
        return reductions

    def weigh(self, row: Array) -> Array:
        """Return the weight of each contrast in the mean of a sum with these covariances with the contrasts (n,)."""
        return self._process.factor.solve(row)


class Sums:
    """Posterior of weighted sums over indicators, one of each stack, of its log speed over that of one anchor."""

    def __init__(self, posterior: StackPosterior, weights: Array, anchor: int, coordinates: Array, rows: Array) -> None:
        """Create the sums.

        Args:
            posterior: Posterior of the stacks.
            weights: Weights of the indicators for each stack (stacks, labels).
            anchor: Index of the anchor.
            coordinates: Each sum as a combination of the rows (stacks, m).
            rows: Prior covariances with the contrasts (m, n).
        """
        self._posterior = posterior
        self._weights = weights
        self._anchor = anchor
        self._coordinates = coordinates
        self._rows = rows

    @property
    def mean(self) -> Array:
        """Means (stacks,)."""
        means: Array = self._coordinates @ self._posterior.means(self._rows)
        return means

    def covariances(self, ones: Sequence[int], others: Sequence[int]) -> Array:
        """Return the covariances of pairs of sums, which are given by the indices of their stacks."""
        import numpy as np

        left, right = np.array(ones, dtype=int), np.array(others, dtype=int)
        prior = self._posterior.prior(self._weights, self._anchor, left, right)
        result: Array = prior - np.einsum("ij,ij->i", self._reduced[left], self._coordinates[right])
        return result

    @cached_property
    def _reduced(self) -> Array:
        """The coordinates times what the contrasts reduce the covariances of the rows by (stacks, m)."""
        reduced: Array = self._coordinates @ self._posterior.reductions(self._rows)
        return reduced

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
        difference = self._coordinates[one] - self._coordinates[other]
        return self._posterior.weigh(difference @ self._rows)


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
    gain = cho_solve((factor, True), total[count:, :count].T).T
    mean = gain @ np.array([c.mean for c in fitted])
    variance = np.diag(total[count:, count:]) - np.einsum("ij,ij->i", gain, total[count:, :count])
    widening = np.array([amplitudes.widening_of(c) for c in held_out])
    return mean, widening * np.sqrt(np.maximum(variance, 0.0))
