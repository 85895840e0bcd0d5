"""One hierarchical model of log speed-ups: what versions and settings gain, by program and machine.

The log speed of a stack at a program on a machine is a sum of independent effects. Each is an effect of a change (the
version of the framework, that of a companion, a setting, two settings together) that programs share if they have
something in common (all; a mode; an architecture; a model; a size; similar features), and machines, too (all; the same
features for matrices; similar accelerators; one machine). Effects of similar programs are similar: k(p, q) =
exp(-d^2 / 2), where d is the distance of their places (:mod:`knowledge.estimate.programs`), and they change linearly
with the size. So the covariance of two measured ratios is a sum of products,

    cov = sum over terms of variance x K_change(pair, pair') x K_program(p, p') x K_machine(m, m') + noise,

and the gain of any stack at any program has a closed form: the mean k' K^-1 y and the variance k - k' K^-1 k'
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.23 and 2.24). It is a mixed model
with crossed random effects, in the form in which its size is the number of measurements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.gain_space import (
    _RELEASES,
    _VERSION,
    Array,
    Points,
    Registry,
    Space,
    _place,
    _sums,
    covariance,
    cross_covariance,
    half_shared,
)
from knowledge.estimate.gain_terms import (
    MEASURED_HERE,
    OWN,
    OWN_FACTORS,
    OWN_VARIANCE,
    Blend,
    Change,
    Pair,
    Releases,
    Term,
    Variances,
)
from knowledge.estimate.programs import PROGRAMS, Program
from knowledge.estimate.similarity import side_on
from knowledge.evidence.contrasts import Contrast, Machine

LEAST_ERROR = 0.005
"""Least standard error of a measured ratio."""
DEGREES = 4.0
"""Degrees of freedom of Student's t distribution of published numbers: some are mistakes."""
SIGNIFICANT = 3.84
"""By how much twice the log likelihood must be higher for another factor than the first: the 95 % quantile of the
chi-squared distribution with one degree of freedom."""


class Noise:
    """What measured ratios share that is no effect of a stack: references, processes and blocks."""

    def __init__(self, contrasts: Sequence[Contrast]) -> None:
        """Compute the covariances (n, n) of unit variance."""
        arms = [(c.block, c.machine.name, arm) for c in contrasts for arm in (c.arm, c.reference_arm)]
        labels = [c.label for c in contrasts for _ in range(2)]
        common = np.array([c.common for c in contrasts])
        own = np.sqrt(np.maximum(0.0, np.array([c.error for c in contrasts]) ** 2 - common**2))
        self.published = np.array([c.family == PUBLISHED for c in contrasts])
        self._sources = [c.source for c in contrasts]
        # What a block adds is as much smaller in a mean of several blocks as their errors are.
        parts = np.array([c.blocks for c in contrasts]) ** -0.5
        means = np.outer(parts, parts)
        self.arm = half_shared(arms) * np.outer(~self.published, ~self.published)
        software = [(c.source, arm) for c in contrasts for arm in (c.arm, c.reference_arm)]
        self.software = half_shared(software) * np.outer(self.published, self.published)
        self.label = half_shared(list(zip(arms, labels, strict=True)))
        shared = self.arm * np.outer(common, common) + self.label * np.outer(own, own)
        self.arm, self.label = self.arm * means, self.label * means
        # Two ratios of the same arm and program are never equal for sure: their covariance could not be inverted.
        self.rounds: Array = shared + LEAST_ERROR**2 * np.eye(len(contrasts))

    def covariance(self, variances: Variances) -> Array:
        """Return the covariance (n, n) of the noise."""
        of_source = {source: variances.of_source(source) for source in set(self._sources)}
        labels = np.where(self.published, [of_source[source] for source in self._sources], variances.label) ** 0.5
        total: Array = variances.noise * self.rounds + self.label * np.outer(labels, labels)
        software = np.array([variances.of_software(source) for source in self._sources]) ** 0.5
        total += variances.arm * self.arm + self.software * np.outer(software, software)
        return total


class Predicted(NamedTuple):
    """Gains of pairs of stacks at one blend of programs.

    Attributes:
        means: Means (n,).
        variances: Variances (n,), or covariances (n, n).
    """

    means: Array
    variances: Array


class GainModel:
    """The model, conditioned on measured ratios of one framework on one kind of device."""

    def __init__(
        self,
        contrasts: Sequence[Contrast],
        program_of: Callable[[Contrast], Program],
        variances: Variances,
        own_blocks: Collection[str] = (),
    ) -> None:
        """Condition on measured ratios.

        Args:
            contrasts: The ratios.
            program_of: Returns the program of a ratio.
            variances: Variances of the model.
            own_blocks: Names of the blocks that the user measured.
        """
        self.contrasts = tuple(contrasts)
        self.variances = variances
        self._registry = Registry()
        self._points = self._registry.points_of(contrasts, program_of)
        space, noise = self._registry.space(variances.scales), Noise(contrasts)
        errors, means = noise.covariance(variances), np.array([c.mean for c in contrasts])
        self._terms = dict(variances.terms)
        effects = covariance(space, self._points, self._terms)
        mine = [c for c in contrasts if c.block in own_blocks and c.family in PROGRAMS]
        machines = {c.machine.identity for c in mine}
        own = [program_of(c).own for c in contrasts]
        rows = np.array([n for n, c in enumerate(contrasts) if own[n] or c.machine.identity in machines], dtype=int)
        benchmark = [c for kind, c in zip(own, contrasts, strict=True) if kind == OWN]
        groups = [dict.fromkeys(terms, OWN_VARIANCE) for terms in _own_terms(benchmark, mine, self._registry.by_label)]
        parts = [covariance(space, self._points, group, rows) for group in groups]
        factors = likeliest_factors(effects + errors, means, rows, parts)
        for factor, group, part in zip(factors, groups, parts, strict=True):
            self._terms |= {term: self._terms.get(term, 0.0) + factor * value for term, value in group.items()}
            effects[np.ix_(rows, rows)] += factor * part
        self._inverse = robust_inverse(effects, errors, means, noise.published)
        self._solved: Array = self._inverse @ means
        self._last: tuple[object, Mapping[Change, Array], Mapping[Change, Array]] | None = None

    @property
    def programs(self) -> Mapping[str, Program]:
        """The program of each label of the measured ratios."""
        return self._registry.by_label

    def predict(
        self, pairs: Sequence[Pair], blends: Sequence[Blend], machine: Machine, *, joint: bool = False
    ) -> list[Predicted]:
        """Predict gains of stacks over others, at blends of programs on a machine.

        Args:
            pairs: Each stack with the one that it is compared with.
            blends: The blends of programs.
            machine: The machine.
            joint: Whether covariances are needed, and not only variances.
        """
        predicted = []
        related, covariances = self._covariances(pairs, blends, machine)
        inverse, solved = self._inverse[np.ix_(related, related)], self._solved[related]
        for cross, prior in covariances:
            weights = cross @ inverse
            explained = weights @ cross.T if joint else np.einsum("ij,ij->i", weights, cross)
            predicted.append(Predicted(cross @ solved, (prior if joint else np.diag(prior)) - explained))
        return predicted

    def weights(self, pair: Pair, blends: Sequence[Blend], machine: Machine) -> Array:
        """Return the weight (n,) of each measured ratio in the mean gain of a pair over blends of programs."""
        related, covariances = self._covariances([pair], blends, machine)
        weights: Array = np.mean([cross[0] for cross, _ in covariances], axis=0) @ self._inverse[related]
        return weights

    def _covariances(
        self, pairs: Sequence[Pair], blends: Sequence[Blend], machine: Machine
    ) -> tuple[Array, Iterator[tuple[Array, Array]]]:
        """Return which measured ratios (m,) are related to pairs, and the covariances of their gains for each blend.

        Those are with these ratios (n, m), and among the pairs (n, n). Ratios of versions say nothing about settings of
        one version.
        """
        registry, points = self._registry, self._points
        numbers = np.array([[registry.side(side, machine) for side in pair] for pair in pairs], dtype=int)
        across, within, space = self._shared_by(tuple(blends), machine)
        # A change that no pair has shares nothing: for instance, pairs of settings do not change the version.
        others = {name: space.differences(name, numbers, numbers) for name in across}
        others = {name: matrix for name, matrix in others.items() if matrix.any()}
        of_pairs = {name: space.differences(name, numbers, points.pairs) for name in others}
        is_related = sum((abs(matrix).sum(axis=0) for matrix in of_pairs.values()), np.zeros(len(points.pairs)))
        (related,) = np.nonzero(is_related[points.pair])
        places, columns = points.place[related], points.pair[related]
        measurements = {name: matrix[:, columns] for name, matrix in of_pairs.items()}

        def covariances() -> Iterator[tuple[Array, Array]]:
            for row in range(len(blends)):
                cross: Array = np.zeros((len(pairs), len(related)))
                prior: Array = np.zeros((len(pairs), len(pairs)))
                for name in others:
                    cross += measurements[name] * across[name][row][places]
                    prior += others[name] * within[name][row, row]
                yield cross, prior

        return related, covariances()

    def _shared_by(
        self, blends: tuple[Blend, ...], machine: Machine
    ) -> tuple[Mapping[Change, Array], Mapping[Change, Array], Space]:
        """Return what blends share of each change with the measured ratios' programs, and with each other.

        Many stacks are compared for the same blends, one after the other, so the last answer is remembered.
        """
        registry, points = self._registry, self._points
        shares = [{registry.program(program): share for share, program in blend} for blend in blends]
        here = np.full(len(blends), registry.machine(machine))
        space = registry.space(self.variances.scales)
        last = self._last
        if last is None or last[0] != (blends, machine):
            weights = np.zeros((len(blends), len(registry.programs)))
            for row, own in enumerate(shares):
                weights[row, list(own)] = list(own.values())
            across = _sums(space, (weights, here), (points.programs, points.machines), self._terms)
            last = (blends, machine), across, _sums(space, (weights, here), (weights, here), self._terms)
            self._last = last
        return last[1], last[2], space

    def explained_by(
        self, ratios: Sequence[Contrast], programs: Sequence[Program], gains: Sequence[tuple[Pair, Program, Machine]]
    ) -> tuple[Array, Array]:
        """Return what further ratios would explain of gains, given the measured ones.

        Args:
            ratios: The further ratios (n,), whose means do not count.
            programs: The program of each.
            gains: The gains (m,): of pairs of stacks at programs on machines.

        Returns:
            The covariances of the gains with the ratios (m, n), and those of the ratios with their noise (n, n).
        """
        registry = self._registry
        targets = registry.points(gains)
        new = registry.points(((c.side, c.reference), p, c.machine) for c, p in zip(ratios, programs, strict=True))
        space = registry.space(self.variances.scales)

        def prior(one: Points, other: Points) -> Array:
            return cross_covariance(space, one, other, self._terms)

        explained = self._inverse @ prior(self._points, new)
        across = prior(targets, new) - prior(targets, self._points) @ explained
        within = prior(new, new) - prior(new, self._points) @ explained
        return across, within + Noise(ratios).covariance(self.variances)

    def held_out(self, groups: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], Array, Array]]:
        """Predict groups of the measured ratios, each from all others.

        This needs no new model: with the inverse Q of the covariance, the residuals of a group g are Q_gg^-1 (Q y)_g,
        and their covariance is Q_gg^-1 (Rasmussen and Williams 2006, equations 5.10 to 5.12, for groups).

        Args:
            groups: Numbers of the ratios of each group.

        Yields:
            A group, its predictions (n,), and the covariance (n, n) of their errors with the noise of measurements.
        """
        truth = np.array([c.mean for c in self.contrasts])
        for group in groups:
            spread = np.linalg.inv(self._inverse[np.ix_(group, group)])
            yield group, truth[group] - spread @ self._solved[group], spread


def _own_terms(
    benchmark: Sequence[Contrast], mine: Sequence[Contrast], programs: Mapping[str, Program]
) -> Iterator[tuple[Term, ...]]:
    """Yield the effects whose common variance the user's measurements decide.

    What they show is first of the own program, then of the machine if two models show it, and then of other programs.

    Args:
        benchmark: Ratios of the user's own program.
        mine: Ratios of models that the user measured.
        programs: The program of each label.
    """
    here = [c for c in mine if programs[c.label].own == MEASURED_HERE]
    for changes in (*_own_changes(benchmark), ("exact pair",)):
        yield tuple(Term(change, OWN, shared) for change in changes for shared in ("all", "machine"))
    for identity in sorted({c.machine.identity for c in mine}):
        of_machine = [c for c in mine if c.machine.identity == identity]
        for changes, ratios in _own_changes(of_machine).items():
            if len({programs[c.label].model for c in ratios}) > 1:
                yield tuple(Term(change, "all", identity) for change in changes)
    for changes in (*_own_changes(here), ("exact pair",)):
        yield tuple(Term(change, MEASURED_HERE, shared) for change in changes for shared in ("all", "machine"))


def _own_changes(contrasts: Iterable[Contrast]) -> dict[tuple[Change, ...], list[Contrast]]:
    """Return what ratios compared: releases, builds of one release, and each setting.

    A release and a setting that changed together share what they show, after those that changed alone.
    """
    groups: dict[tuple[Change, ...], list[Contrast]] = defaultdict(list)
    last = 0.0
    for c in contrasts:
        side, other = side_on(c.side, c.machine), side_on(c.reference, c.machine)
        values = tuple(sorted(side.settings.items() ^ other.settings.items()))
        places = _place(side.version), _place(other.version)
        if places[0] != places[1]:
            last = max(last, *places)
            groups[_RELEASES, *values].append(c)
        elif side.version != other.version:
            groups[(_VERSION, side.version), *values].append(c)
        elif len({name for name, _ in values}) == 1:
            for value in values:
                groups[(value,)].append(c)
    ordered = sorted(groups.items(), key=lambda item: (len(item[0]), str(item[0])))
    return {
        tuple(Releases(last) if change is _RELEASES else change for change in changes): ratios
        for changes, ratios in ordered
    }


def likeliest_factors(others: Array, means: Array, rows: Array, parts: Sequence[Array]) -> list[float]:
    """Return the factors on parts of the covariance that make the values with this part likeliest, one after the other.

    Args:
        others: Covariance (n, n) of the rest.
        means: The values (n,).
        rows: Numbers of the values (m,) that have these parts.
        parts: The parts (m, m).
    """
    if not len(rows):
        return [OWN_FACTORS[0]] * len(parts)
    inverse = np.linalg.inv(others)
    spread = np.linalg.inv(inverse[np.ix_(rows, rows)])
    residuals = spread @ (inverse @ means)[rows]
    factors = []
    for part in parts:
        (own,) = np.nonzero(np.diag(part) > 0)
        block = np.ix_(own, own)
        totals = {factor: spread[block] + factor * part[block] for factor in OWN_FACTORS}
        values = {factor: _likelihood(total, residuals[own]) for factor, total in totals.items()}
        best = max(values, key=values.__getitem__)
        factors.append(best if values[best] > values[OWN_FACTORS[0]] + SIGNIFICANT else OWN_FACTORS[0])
        spread = spread + factors[-1] * part
    return factors


def _likelihood(covariance: Array, values: Array) -> float:
    """Return twice the log likelihood of values with the mean zero, up to a constant."""
    return -float(np.linalg.slogdet(covariance)[1] + values @ np.linalg.solve(covariance, values))


def robust_inverse(effects: Array, noise: Array, means: Array, published: Array) -> Array:
    """Return the inverse of the covariance (n, n) of measured values; published ones far from the others count less.

    It is one step of the expectation of the weights of Student's t distribution, from each value's prediction by the
    others (Lange, Little and Taylor, Journal of the American Statistical Association 84, 1989).

    Args:
        effects: Covariance (n, n) of the true values.
        noise: That of the noise (n, n).
        means: The values (n,).
        published: Whether each value is a published one (n,).
    """
    inverse: Array = np.linalg.inv(effects + noise)
    if published.any():
        squares = (inverse @ means) ** 2 / np.diag(inverse)
        factors = np.where(published, np.maximum(1.0, (DEGREES + squares) / (DEGREES + 1)), 1.0)
        inverse = np.linalg.inv(effects + noise + np.diag((factors - 1) * np.diag(noise)))
    return inverse
