"""One hierarchical model of log speed-ups: what versions and settings gain, by program and machine.

The log speed of a stack at a program on a machine is a sum of independent effects. Each is an effect of a change (the
version of the framework, that of a companion, a setting, two settings together) that programs share if they have
something in common (all; a mode; an architecture; a model; a size; similar features), and machines, too (all; the same
features for matrices; one machine). Effects of similar programs are similar: k(p, q) = exp(-d^2 / 2), where d is the
distance of their places (:mod:`knowledge.estimate.programs`), and they change linearly with the size. So the
covariance of two measured ratios is a sum of products,

    cov = sum over terms of variance x K_change(pair, pair') x K_program(p, p') x K_machine(m, m') + noise,

and the gain of any stack at any program has a closed form: the mean k' K^-1 y and the variance k - k' K^-1 k'
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.23 and 2.24). It is a mixed model
with crossed random effects, in the form in which its size is the number of measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import InvalidVersion, Version

from knowledge.estimate.evidence import Contrast, Machine, Side
from knowledge.estimate.interface import PredictedGain
from knowledge.estimate.kernel import side_key
from knowledge.estimate.programs import Program
from knowledge.estimate.similarity import side_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class Term(NamedTuple):
    """An effect of a change that some programs and some machines share."""

    change: str
    programs: str
    machines: str


_SIZES = ("near", "linear")
TERMS: tuple[Term, ...] = tuple(
    Term(*names)
    for names in (
        *(("version", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
        ("version", "size", "kind"),
        ("version", "all", "machine"),
        ("version", "size", "machine"),
        *(("release", shared, "all") for shared in ("all", "architecture", "size", "near")),
        ("companion", "all", "all"),
        ("companion", "size", "all"),
        *(("setting", shared, "all") for shared in ("all", "mode", "architecture", "model", "size", *_SIZES)),
        ("setting", "all", "kind"),
        ("setting", "size", "kind"),
        ("setting", "size", "machine"),
        ("setting of a version", "all", "all"),
        ("setting of a version", "size", "all"),
        *(("pair", shared, "all") for shared in ("all", "architecture", "model", "size", *_SIZES)),
    )
)
"""Effects on processors."""
LENGTH, RELEASE = 9.0, 0.5
"""Correlation lengths of effects of versions, and of single releases, in minor releases."""
LEAST_ERROR = 0.005
"""Least standard error of a measured ratio."""
_PLACES = 20
"""Minor releases of a major one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Variances of the model, in squared natural-log units.

    Attributes:
        terms: Variance of each term.
        label: Variance of what one program has with one arm in one block only.
        arm: Variance of what all programs have with one arm in one block only.
        noise: Factor on the variance that was estimated from the rounds.
        scales: Standard deviation of the effect of each setting relative to the usual one, by ``name=value``.
    """

    terms: Mapping[Term, float]
    label: float
    arm: float
    noise: float
    scales: Mapping[str, float]


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

        distances = _distances([side.version for side in sides])
        settings = [sorted(side.settings.items()) for side in sides]
        alone = _shared([[("=".join(item),) for item in own] for own in settings], scales)
        version = np.exp(-distances / LENGTH)
        self.changes: dict[str, Array] = {
            "version": version,
            "release": np.exp(-distances / RELEASE),
            "companion": _companions(sides),
            "setting": alone,
            "setting of a version": alone * version,
            "pair": _shared(
                [[tuple(map("=".join, pair)) for pair in combinations(own, 2)] for own in settings], scales
            ),
        }
        places = np.array([program.place for program in programs])
        squares = ((places[:, None] - places[None]) ** 2).sum(axis=2)
        size = places[:, 0]
        self.programs: dict[str, Array] = {
            "mode": _equal([program.training for program in programs]),
            "architecture": _equal([program.architecture for program in programs]),
            "model": _equal([program.model for program in programs]),
            "size": _equal([program.label for program in programs]),
            "near": np.exp(-0.5 * squares),
            "linear": np.outer(size, size),
        }
        self.machines: dict[str, Array] = {
            "kind": _equal([machine.precision_features or machine.kind for machine in machines]),
            "machine": _equal([machine.identity for machine in machines]),
        }

    def shared(self, term: Term, rows: tuple[Array, Array], columns: tuple[Array, Array]) -> Array:
        """Return how much programs on machines share a term (n, m).

        Args:
            term: The term.
            rows: Programs (n,) and machines (n,), by number.
            columns: Programs (m,) and machines (m,).
        """
        import numpy as np

        result: Array = np.ones((len(rows[0]), len(columns[0])))
        if term.programs != "all":
            result = result * self.programs[term.programs][rows[0][:, None], columns[0][None]]
        if term.machines != "all":
            result = result * self.machines[term.machines][rows[1][:, None], columns[1][None]]
        return result

    def differences(self, change: str, rows: Array, columns: Array) -> Array:
        """Return the covariance (n, m) of the effects of a change on pairs of stacks (n, 2) and (m, 2)."""
        kernel = self.changes[change]
        (a, r), (b, s) = rows.T, columns.T
        result: Array = (
            kernel[a[:, None], b[None]]
            - kernel[a[:, None], s[None]]
            - kernel[r[:, None], b[None]]
            + kernel[r[:, None], s[None]]
        )
        return result


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
        programs, machines = np.array(list(places), dtype=int).reshape(-1, 2).T
        self.places: tuple[Array, Array] = programs, machines


class Registry:
    """Numbers of stacks, programs and machines."""

    def __init__(self) -> None:
        self._sides: dict[object, tuple[int, Side]] = {}
        self._programs: dict[Program, int] = {}
        self._machines: dict[Machine, int] = {}

    def points(self, ratios: Iterable[tuple[Side, Side, Program, Machine]]) -> Points:
        """Return ratios of an arm and a reference, each at a program on a machine."""
        return Points(
            [
                (
                    self._side(arm, machine),
                    self._side(reference, machine),
                    self._programs.setdefault(program, len(self._programs)),
                    self._machines.setdefault(machine, len(self._machines)),
                )
                for arm, reference, program, machine in ratios
            ]
        )

    def points_of(self, contrasts: Sequence[Contrast], program_of: Callable[[Contrast], Program]) -> Points:
        """Return measured ratios; contrasts with one label have one program."""
        programs = {c.label: program_of(c) for c in contrasts}
        return self.points((c.side, c.reference, programs[c.label], c.machine) for c in contrasts)

    def space(self, scales: Mapping[str, float]) -> Space:
        """Return the similarities of everything that has a number."""
        sides = [side for _, side in self._sides.values()]
        return Space(sides, list(self._programs), list(self._machines), scales)

    def _side(self, side: Side, machine: Machine) -> int:
        side = side_on(side, machine)
        return self._sides.setdefault(side_key(side), (len(self._sides), side))[0]


def covariance(space: Space, rows: Points, columns: Points, terms: Mapping[Term, float]) -> Array:
    """Return the covariance (n, m) of the effects on two lists of ratios.

    There are few pairs of stacks and few programs on machines: similarities are computed for these, and looked up.
    """
    import numpy as np

    shared: dict[str, Array] = {}
    for term, variance in terms.items():
        if variance > 0:
            own = variance * space.shared(term, rows.places, columns.places)
            shared[term.change] = shared[term.change] + own if term.change in shared else own
    total = np.zeros((len(rows.pair), len(columns.pair)))
    for change, matrix in shared.items():
        pairs = space.differences(change, rows.pairs, columns.pairs)
        total += pairs[rows.pair[:, None], columns.pair[None]] * matrix[rows.place[:, None], columns.place[None]]
    return total


def prior_variances(space: Space, points: Points, terms: Mapping[Term, float]) -> Array:
    """Return the variance (n,) of each ratio before any measurement."""
    import numpy as np

    total = np.zeros(len(points.pair))
    programs, _ = points.places
    for term, variance in terms.items():
        own = np.full(len(programs), variance)
        if term.programs != "all":
            own = own * np.diag(space.programs[term.programs])[programs]
        kernel = space.changes[term.change]
        arms, references = points.pairs.T
        pairs = np.diag(kernel)[arms] + np.diag(kernel)[references] - 2 * kernel[arms, references]
        total += pairs[points.pair] * own[points.place]
    return total


class Noise:
    """What measured ratios share that is no effect of a stack: references, processes and blocks."""

    def __init__(self, contrasts: Sequence[Contrast]) -> None:
        """Compute the covariances (n, n) of unit variance."""
        import numpy as np

        arms = [(c.block, arm) for c in contrasts for arm in (c.arm, c.reference_arm)]
        labels = [c.label for c in contrasts for _ in range(2)]
        common = np.array([c.common for c in contrasts])
        own = np.sqrt(np.maximum(0.0, np.array([c.error for c in contrasts]) ** 2 - common**2) + LEAST_ERROR**2)
        self.arm = _half_shared(arms)
        self.label = _half_shared(list(zip(arms, labels, strict=True)))
        self.rounds: Array = self.arm * np.outer(common, common) + self.label * np.outer(own, own)

    def covariance(self, variances: Variances) -> Array:
        """Return the covariance (n, n) of the noise."""
        total: Array = variances.noise * self.rounds + variances.label * self.label + variances.arm * self.arm
        return total


class GainModel:
    """The model, conditioned on measured ratios of one framework on one kind of device."""

    def __init__(
        self, contrasts: Sequence[Contrast], program_of: Callable[[Contrast], Program], variances: Variances
    ) -> None:
        """Condition on measured ratios.

        Args:
            contrasts: The ratios.
            program_of: Returns the program of a ratio.
            variances: Variances of the model.
        """
        import numpy as np

        self.contrasts = tuple(contrasts)
        self.variances = variances
        self._registry = Registry()
        self._points = self._registry.points_of(contrasts, program_of)
        total = self._covariance(self._points) + Noise(contrasts).covariance(variances)
        self._inverse: Array = np.linalg.inv(total)
        self._solved: Array = self._inverse @ np.array([c.mean for c in contrasts])

    def _covariance(self, points: Points) -> Array:
        """Return the covariance of ratios with the measured ones."""
        space = self._registry.space(self.variances.scales)
        return covariance(space, points, self._points, self.variances.terms)

    def gains(self, pairs: Sequence[tuple[Side, Side]], program: Program, machine: Machine) -> list[PredictedGain]:
        """Return the gains of stacks over others, at a program on a machine.

        Args:
            pairs: Each stack with the one that it is compared with.
            program: The program.
            machine: The machine.
        """
        import numpy as np

        points = self._registry.points((*pair, program, machine) for pair in pairs)
        cross = self._covariance(points)
        prior = prior_variances(self._registry.space(self.variances.scales), points, self.variances.terms)
        means = cross @ self._solved
        variances = prior - np.einsum("ij,ij->i", cross @ self._inverse, cross)
        return [
            PredictedGain(mean=float(mean), variance=max(0.0, float(variance)))
            for mean, variance in zip(means, variances, strict=True)
        ]

    def held_out(self, groups: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], Array, Array]]:
        """Predict groups of the measured ratios, each from all others.

        This needs no new model: with the inverse Q of the covariance, the residuals of a group g are Q_gg^-1 (Q y)_g,
        and their covariance is Q_gg^-1 (Rasmussen and Williams 2006, equations 5.10 to 5.12, for groups).

        Args:
            groups: Numbers of the ratios of each group.

        Yields:
            A group, its predictions, and their standard deviations with the noise of the measurements.
        """
        import numpy as np

        truth = np.array([c.mean for c in self.contrasts])
        for group in groups:
            spread = np.linalg.inv(self._inverse[np.ix_(group, group)])
            yield group, truth[group] - spread @ self._solved[group], np.sqrt(np.diag(spread))


def _equal(values: Sequence[object]) -> Array:
    import numpy as np

    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values])
    equal: Array = (codes[:, None] == codes[None]).astype(float)
    return equal


def _half_shared(effects: Sequence[object]) -> Array:
    """Return the covariance (n, n) of differences of an arm's effect and a reference's, each with the variance 1/2.

    Args:
        effects: The effects of arm and reference of each ratio (2 n,).
    """
    equal = _equal(effects)
    result: Array = 0.5 * (equal[0::2, 0::2] + equal[1::2, 1::2] - equal[0::2, 1::2] - equal[1::2, 0::2])
    return result


def _shared(every: Sequence[Sequence[tuple[str, ...]]], scales: Mapping[str, float]) -> Array:
    """Return how much stacks share of their settings, or pairs of settings (n, n), by the scales of these."""
    import numpy as np

    names = {name: number for number, name in enumerate(sorted({name for own in every for name in own}))}
    weights = np.zeros((len(every), max(1, len(names))))
    for row, own in enumerate(every):
        for name in own:
            weights[row, names[name]] = np.prod([scales.get(part, 1.0) for part in name]) ** (1 / len(name))
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
    """Return distances (n, n) of versions: 1 for a minor release, 0.1 for a patch release, 1 for another build."""
    import numpy as np

    versions = [_version(text) for text in texts]
    place = np.array([v.major * _PLACES + v.minor + min(v.micro, 9) / 10 for v in versions])
    builds = 1.0 - _equal([v.local for v in versions])
    distances: Array = np.abs(place[:, None] - place[None]) + builds
    return distances


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
