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

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import InvalidVersion, Version

from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.programs import PROGRAMS, Program, programs_by_label
from knowledge.estimate.similarity import SIMILARITY_OF_VALUES, common_value, side_on, similarity_of_machines
from knowledge.evidence.contrasts import Contrast, Machine, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class Releases(NamedTuple):
    """What changes between two releases, as a random walk that stops after the last one.

    Attributes:
        last: Place of the last release.
    """

    last: float


Change = str | tuple[str, str] | Releases
"""What may differ between two stacks: a kind of change, one value of one setting, one version, or releases."""


class Term(NamedTuple):
    """An effect of a change that some programs and some machines share.

    Attributes:
        change: The change.
        programs: What programs share.
        machines: What machines share, or the identity of a machine.
    """

    change: Change
    programs: str
    machines: str


_SIZES = ("near", "linear")
PROCESSOR_TERMS: tuple[Term, ...] = tuple(
    Term(*names)
    for names in (
        *(("version", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
        ("version", "near", "kind"),
        ("version", "size", "kind"),
        ("version", "all", "machine"),
        ("version", "size", "machine"),
        *(("release", shared, "all") for shared in ("all", "architecture", "size", "near")),
        ("companion", "all", "all"),
        ("companion", "size", "all"),
        *(("setting", shared, "all") for shared in ("all", "mode", "architecture", "family", "model", "size", *_SIZES)),
        ("setting", "all", "kind"),
        ("setting", "near", "kind"),
        ("setting", "size", "kind"),
        ("setting", "size", "machine"),
        ("setting of a version", "all", "all"),
        ("setting of a version", "size", "all"),
        *(("pair", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
    )
)
"""Effects on processors."""
OWN, MEASURED_HERE = "own", "measured here"
"""How programs are the user's: the own program, and others that the user measured."""
OWN_VARIANCE = 0.15**2
"""Usual variance of what a minor release or a setting does only at the user's own program, or on the own machine; no
shipped measurement can show it: a judgement."""
OWN_TERMS: tuple[Term, ...] = tuple(
    Term(change, programs, shared)
    for programs in (OWN, MEASURED_HERE)
    for change in ("near version", "exact setting", "exact pair")
    for shared in ("all", "machine")
)
"""Effects at a program of the user, on all machines and on one: of all releases, each setting and each pair."""
LEAST_OWN = 1 / 16
"""Part of the usual variance that these effects always have: a judgement."""
OWN_FACTORS = (0.0, 1 / 4, 1.0, 4.0, 25.0, 100.0)
"""Factors on the usual variance of what own measurements show: the first, or the likeliest if the measurements are
unlikely with the first. So what agrees with other programs and machines widens nothing."""
ACCELERATOR_TERMS: tuple[Term, ...] = tuple(
    Term(*names)
    for names in (
        *(("version", shared, "all") for shared in ("all", "architecture", "family", "model", "size", "near")),
        ("version", "all", "similar"),
        ("version", "model", "similar"),
        ("version", "size", "machine"),
        ("companion", "all", "all"),
        *(("setting", shared, "units") for shared in ("all", "mode", "architecture", "family", "model")),
        *(
            ("setting", shared, "similar")
            for shared in ("all", "mode", "architecture", "family", "model", "near", "linear")
        ),
        ("setting", "model", "name"),
        ("setting", "size", "machine"),
        ("setting of a version", "all", "all"),
        ("setting of a version", "model", "all"),
        ("pair", "all", "units"),
        ("pair", "model", "units"),
    )
)
"""Effects on accelerators."""
DRIFT, SPAN = 100.0, 10.0
"""Effects of versions are almost a random walk, with this correlation length in minor releases: what a release changes
stays, and later ones do not return to the mean. Their variance is that of two releases with this distance."""
LENGTH, RELEASE = 9.0, 0.5
"""Correlation lengths in minor releases: of what settings, companions and programs do in a version, and of effects of
single releases."""
OF_RELEASE = 0.2
"""Share of the effect of a single release that no other one has, however near: a judgement."""
LEAST_ERROR = 0.005
"""Least standard error of a measured ratio."""
DEGREES = 4.0
"""Degrees of freedom of Student's t distribution of published numbers: some are mistakes."""
SIGNIFICANT = 3.84
"""By how much twice the log likelihood must be higher for another factor than the first: the 95 % quantile of the
chi-squared distribution with one degree of freedom."""
_VERSION, _RELEASES = "version", Releases(math.inf)
_MINORS, _PATCHES = 40, 40
"""Places of minor releases of a major one, and of patch releases of a minor one; later ones have the last place."""

Blend = tuple[tuple[float, Program], ...]
"""Programs with their shares of the time of one; most have one part."""
Pair = tuple[Side, Side]
"""A stack, and the one that it is compared with."""


def terms_of(device: str) -> tuple[Term, ...]:
    """Return the terms that are fitted for a device: ``cpu``, or another one."""
    return PROCESSOR_TERMS if device == "cpu" else ACCELERATOR_TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Variances of the model, in squared natural-log units.

    Attributes:
        terms: Variance of each term.
        label: Variance of what one program has with one arm in one block only.
        arm: Variance of what all programs have with one arm in one block only.
        noise: Factor on the variance that was estimated from the rounds.
        scales: Standard deviation of the effect of each setting relative to the usual one, by ``name=value``.
        sources: Variance of a published ratio, by source; one that is not listed has the largest.
        software: Variance of what all programs of a source have with one software and its settings only, by source; one
            that is not listed has the largest.
    """

    terms: Mapping[Term, float]
    label: float
    arm: float
    noise: float
    scales: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, float] = field(default_factory=dict)
    software: Mapping[str, float] = field(default_factory=dict)

    def of_source(self, source: str) -> float:
        """Return the variance of a published ratio: nobody knows how an unknown publisher measures."""
        return self.sources.get(source, max(self.sources.values(), default=self.label))

    def of_software(self, source: str) -> float:
        """Return the variance of what all programs of a source have with one software."""
        return self.software.get(source, max(self.software.values(), default=0.0))


class Space:
    """Stacks, programs and machines, each once, and how similar any two of them are."""

    def __init__(
        self,
        sides: Sequence[Side],
        programs: Sequence[Program],
        machines: Sequence[Machine],
        scales: Mapping[str, float],
    ) -> None:
        """Compute the similarities.

        Args:
            sides: The stacks, as on their machine (:func:`knowledge.estimate.similarity.side_on`).
            programs: The programs.
            machines: The machines.
            scales: See :class:`Variances`.
        """
        import numpy as np

        self.changes = _similar_changes(sides, scales)
        self._values = [{(_VERSION, side.version), *side.settings.items()} for side in sides]
        self._places = [_place(side.version) for side in sides]
        self.programs = _similar_programs(programs)
        self.machines = _similar_machines(machines)
        self._identities = np.array([machine.identity for machine in machines])

    def differences(self, change: Change, rows: Array, columns: Array) -> Array:
        """Return the covariance (n, m) of the effects of a change on pairs of stacks (n, 2) and (m, 2)."""
        import numpy as np

        (a, r), (b, s) = rows.T, columns.T
        if isinstance(change, Releases):
            places = np.minimum(self._places, change.last)
            kernel = np.minimum(places[:, None], places[None])
        elif isinstance(change, tuple):
            kernel = np.array([change in values for values in self._values], dtype=float)
            kernel = np.outer(kernel, kernel)
        else:
            kernel = self.changes[change]
        result: Array = (
            kernel[a[:, None], b[None]]
            - kernel[a[:, None], s[None]]
            - kernel[r[:, None], b[None]]
            + kernel[r[:, None], s[None]]
        )
        return result

    def shared(self, term: Term, rows: tuple[Array, Array], columns: tuple[Array, Array]) -> Array:
        """Return how much programs on machines share a term (n, m).

        Args:
            term: The term.
            rows: Programs as shares of those of the space (n, programs), and machines (n,) by number.
            columns: Programs (m, programs) and machines (m,).
        """
        import numpy as np

        result: Array = rows[0] @ self.programs[term.programs] @ columns[0].T
        if term.machines in self.machines:
            result = result * self.machines[term.machines][rows[1][:, None], columns[1][None]]
        elif term.machines != "all":
            here = self._identities == term.machines
            result = result * np.outer(here[rows[1]], here[columns[1]])
        return result


def _similar_changes(sides: Sequence[Side], scales: Mapping[str, float]) -> dict[str, Array]:
    """Return how similar stacks are (n, n), by what may differ."""
    import numpy as np

    distances = _distances([side.version for side in sides])
    settings = [sorted(side.settings.items()) for side in sides]
    single = [[(item,) for item in own] for own in settings]
    pairs = [list(combinations(own, 2)) for own in settings]
    alone, same = _shared(single, scales), equal([side.version for side in sides])
    return {
        "version": np.exp(-distances / DRIFT) * DRIFT / (2 * SPAN),
        "release": (1 - OF_RELEASE) * np.exp(-distances / RELEASE) + OF_RELEASE * same,
        "near version": np.exp(-distances / LENGTH),
        "companion": _companions(sides),
        "setting": alone,
        "setting of a version": alone * np.exp(-distances / LENGTH),
        "pair": _shared(pairs, scales),
        "exact setting": _shared(single, {}),
        "exact pair": _shared(pairs, {}),
    }


def _similar_programs(programs: Sequence[Program]) -> dict[str, Array]:
    """Return how similar programs are (n, n), by what they may share."""
    import numpy as np

    places = np.array([program.place for program in programs])
    squares = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    size, same = places[:, 0], equal([program.label for program in programs])
    own = {name: np.array([float(program.own == name) for program in programs]) for name in (OWN, MEASURED_HERE)}
    return {
        "all": np.ones((len(programs), len(programs))),
        "mode": equal([program.training for program in programs]),
        "architecture": equal([program.architecture for program in programs]),
        "family": equal([program.family or program.model for program in programs]),
        "model": equal([program.model for program in programs]),
        "size": same,
        **{name: same * np.outer(rows, rows) for name, rows in own.items()},
        "near": np.exp(-0.5 * squares),
        "linear": np.outer(size, size),
    }


def _similar_machines(machines: Sequence[Machine]) -> dict[str, Array]:
    """Return how similar machines are (n, n), by what they may share."""
    import numpy as np

    return {
        "all": np.ones((len(machines), len(machines))),
        "kind": equal([machine.precision_features or machine.kind for machine in machines]),
        "similar": similarity_of_machines([machine.features or machine.kind for machine in machines]),
        "units": equal([machine.has_matrix_units for machine in machines]),
        "name": equal([machine.name for machine in machines]),
        "machine": equal([machine.identity for machine in machines]),
    }


class Points:
    """Ratios of two stacks at programs on machines, by the numbers of these in a :class:`Space`."""

    def __init__(self, numbers: Sequence[tuple[int, int, int, int]]) -> None:
        """Group ratios.

        Args:
            numbers: Arm, reference, program and machine of each ratio.
        """
        import numpy as np

        pairs: dict[tuple[int, int], int] = {}
        places: dict[tuple[int, int], int] = {}
        self.pair: Array = np.array([pairs.setdefault(entry[:2], len(pairs)) for entry in numbers], dtype=int)
        self.place: Array = np.array([places.setdefault(entry[2:], len(places)) for entry in numbers], dtype=int)
        self.pairs: Array = np.array(list(pairs), dtype=int).reshape(-1, 2)
        self.programs, self.machines = np.array(list(places), dtype=int).reshape(-1, 2).T


class Registry:
    """Numbers of stacks, programs and machines."""

    def __init__(self) -> None:
        self._sides: dict[object, tuple[int, Side]] = {}
        self.programs: dict[Program, int] = {}
        self.by_label: Mapping[str, Program] = {}
        self._machines: dict[Machine, int] = {}

    def points_of(self, contrasts: Sequence[Contrast], program_of: Callable[[Contrast], Program]) -> Points:
        """Return measured ratios; contrasts with one label have one program."""
        self.by_label = programs = programs_by_label(map(program_of, contrasts), [c.label for c in contrasts])
        return Points(
            [
                (
                    self.side(c.side, c.machine),
                    self.side(c.reference, c.machine),
                    self.program(programs[c.label]),
                    self.machine(c.machine),
                )
                for c in contrasts
            ]
        )

    def space(self, scales: Mapping[str, float]) -> Space:
        """Return the similarities of everything that has a number."""
        sides = [side for _, side in self._sides.values()]
        return Space(sides, list(self.programs), list(self._machines), scales)

    def side(self, side: Side, machine: Machine) -> int:
        """Return the number of a stack on a machine."""
        side = side_on(side, machine)
        return self._sides.setdefault(side.key, (len(self._sides), side))[0]

    def program(self, program: Program) -> int:
        """Return the number of a program."""
        return self.programs.setdefault(program, len(self.programs))

    def machine(self, machine: Machine) -> int:
        """Return the number of a machine."""
        return self._machines.setdefault(machine, len(self._machines))


def covariance(space: Space, points: Points, terms: Mapping[Term, float], rows: Array | None = None) -> Array:
    """Return the covariance (n, n) of the effects on ratios, or on some of them.

    There are few pairs of stacks and few programs on machines: similarities are computed for these, and looked up.

    Args:
        space: The similarities.
        points: The ratios.
        terms: Variance of each effect.
        rows: Numbers of the ratios (n,); all by default.
    """
    import numpy as np

    places = np.eye(len(space.programs["all"]))[points.programs], points.machines
    pair, place = (points.pair, points.place) if rows is None else (points.pair[rows], points.place[rows])
    total = np.zeros((len(pair), len(pair)))
    for change, matrix in _sums(space, places, places, terms).items():
        pairs = space.differences(change, points.pairs, points.pairs)
        total += pairs[pair[:, None], pair[None]] * matrix[place[:, None], place[None]]
    return total


def _sums(
    space: Space, rows: tuple[Array, Array], columns: tuple[Array, Array], terms: Mapping[Term, float]
) -> dict[Change, Array]:
    """Return the variance (n, m) that programs on machines share of each change."""
    sums: dict[Change, Array] = {}
    for term, variance in terms.items():
        if variance > 0:
            own = variance * space.shared(term, rows, columns)
            sums[term.change] = sums[term.change] + own if term.change in sums else own
    return sums


class Noise:
    """What measured ratios share that is no effect of a stack: references, processes and blocks."""

    def __init__(self, contrasts: Sequence[Contrast]) -> None:
        """Compute the covariances (n, n) of unit variance."""
        import numpy as np

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
        import numpy as np

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
        import numpy as np

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
        import numpy as np

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
        import numpy as np

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
        import numpy as np

        registry, points = self._registry, self._points
        numbers = np.array([[registry.side(side, machine) for side in pair] for pair in pairs], dtype=int)
        shares = [{registry.program(program): share for share, program in blend} for blend in blends]
        here = np.full(len(blends), registry.machine(machine))
        space = registry.space(self.variances.scales)
        weights = np.zeros((len(blends), len(registry.programs)))
        for row, own in enumerate(shares):
            weights[row, list(own)] = list(own.values())
        measured = np.eye(len(registry.programs))[points.programs], points.machines
        across = _sums(space, (weights, here), measured, self._terms)
        within = _sums(space, (weights, here), (weights, here), self._terms)
        # A change that no pair has, such as that of the version in pairs of settings, shares nothing.
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

    def held_out(self, groups: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], Array, Array]]:
        """Predict groups of the measured ratios, each from all others.

        This needs no new model: with the inverse Q of the covariance, the residuals of a group g are Q_gg^-1 (Q y)_g,
        and their covariance is Q_gg^-1 (Rasmussen and Williams 2006, equations 5.10 to 5.12, for groups).

        Args:
            groups: Numbers of the ratios of each group.

        Yields:
            A group, its predictions (n,), and the covariance (n, n) of their errors with the noise of measurements.
        """
        import numpy as np

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
    import numpy as np

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
    import numpy as np

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
    import numpy as np

    inverse: Array = np.linalg.inv(effects + noise)
    if published.any():
        squares = (inverse @ means) ** 2 / np.diag(inverse)
        factors = np.where(published, np.maximum(1.0, (DEGREES + squares) / (DEGREES + 1)), 1.0)
        inverse = np.linalg.inv(effects + noise + np.diag((factors - 1) * np.diag(noise)))
    return inverse


def equal(values: Sequence[object]) -> Array:
    """Return whether values are equal (n, n), as numbers."""
    import numpy as np

    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values])
    same: Array = (codes[:, None] == codes[None]).astype(float)
    return same


def half_shared(effects: Sequence[object]) -> Array:
    """Return the covariance (n, n) of differences of an arm's effect and a reference's, each with the variance 1/2.

    Args:
        effects: The effects of arm and reference of each ratio (2 n,).
    """
    same = equal(effects)
    result: Array = 0.5 * (same[0::2, 0::2] + same[1::2, 1::2] - same[0::2, 1::2] - same[1::2, 0::2])
    return result


def _shared(every: Sequence[Sequence[tuple[tuple[str, str], ...]]], scales: Mapping[str, float]) -> Array:
    """Return how much stacks share of their settings, or pairs of settings (n, n), by the scales of these."""
    import numpy as np

    rows: list[dict[object, float]] = []
    for own in every:
        rows.append({})
        for combination in own:
            short = tuple(map(common_value, combination))
            own_part = (1 - SIMILARITY_OF_VALUES) ** 0.5 if short != combination else 0.0
            for key, part in ((combination, own_part), (short, (1 - own_part**2) ** 0.5)):
                scale = float(np.prod([scales.get("=".join(item), 1.0) for item in key])) ** (1 / len(key))
                rows[-1][key] = rows[-1].get(key, 0.0) + scale * part
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    weights = np.zeros((len(every), max(1, len(numbers))))
    for place, row in enumerate(rows):
        weights[place, [numbers[name] for name in row]] = list(row.values())
    shared: Array = weights @ weights.T
    return shared


def _companions(sides: Sequence[Side]) -> Array:
    import numpy as np

    total = np.zeros((len(sides), len(sides)))
    for name in sorted({name for side in sides for name in side.companions}):
        versions = [side.companions.get(name) for side in sides]
        present = np.array([version is not None for version in versions])
        kernel = np.exp(-_distances([version or "0" for version in versions]) / LENGTH)
        total += kernel * np.outer(present, present)
    return total


def _distances(texts: Sequence[str]) -> Array:
    """Return distances (n, n) of versions: 1 for a minor release, less for a patch release, 1 for another build."""
    import numpy as np

    versions = [_version(text) for text in texts]
    place = np.array([_place(text) for text in texts])
    builds = 1.0 - equal([v.local for v in versions])
    distances: Array = np.abs(place[:, None] - place[None]) + builds
    return distances


def _place(text: str) -> float:
    """Return the place of a release: minor releases are 1 apart."""
    v = _version(text)
    return v.major * _MINORS + min(v.minor, _MINORS - 1) + min(v.micro, _PATCHES - 1) / _PATCHES


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
