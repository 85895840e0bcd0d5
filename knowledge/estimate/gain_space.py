"""How similar stacks, programs and machines are, and what covariance follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from packaging.version import InvalidVersion, Version

from knowledge.estimate.gain_terms import (
    MEASURED_HERE,
    OWN,
    Change,
    Pair,
    Releases,
    Term,
)
from knowledge.estimate.programs import Program, programs_by_label
from knowledge.estimate.similarity import SIMILARITY_OF_VALUES, common_value, side_on
from knowledge.evidence.contrasts import Contrast, Machine, Side

Array = NDArray[Any]
DRIFT, SPAN = 100.0, 10.0
"""Effects of versions are almost a random walk, with this correlation length in minor releases: what a release changes
stays, and later ones do not return to the mean. Their variance is that of two releases with this distance."""
LENGTH, RELEASE = 9.0, 0.5
"""Correlation lengths in minor releases: of what settings, companions and programs do in a version, and of effects of
single releases."""
OF_RELEASE = 0.2
"""Share of the effect of a single release that no other one has, however near: a judgement."""
_VERSION, _RELEASES = "version", Releases(math.inf)
_MINORS, _PATCHES = 40, 40
"""Places of minor releases of a major one, and of patch releases of a minor one; later ones have the last place."""


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
        self.changes = _similar_changes(sides, scales)
        self._values = [{(_VERSION, side.version), *side.settings.items()} for side in sides]
        self._places = [_place(side.version) for side in sides]
        self.programs = _similar_programs(programs)
        self.machines = _similar_machines(machines)
        self._identities = np.array([machine.identity for machine in machines])

    def differences(self, change: Change, rows: Array, columns: Array) -> Array:
        """Return the covariance (n, m) of the effects of a change on pairs of stacks (n, 2) and (m, 2)."""
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

    def shared(self, programs: Array, machines: str, rows: tuple[Array, Array], columns: tuple[Array, Array]) -> Array:
        """Return how much programs on machines share (n, m).

        Args:
            programs: How much the space's programs share (programs, programs).
            machines: What machines share it.
            rows: Programs by number (n,), or as shares of the space's programs (n, programs); machines (n,) by number.
            columns: Programs (m,) or (m, programs), and machines (m,).
        """
        result: Array = _blended(_blended(programs, rows[0]).T, columns[0]).T
        if machines in self.machines:
            result = result * self.machines[machines][rows[1][:, None], columns[1][None]]
        elif machines != "all":
            here = self._identities == machines
            result = result * np.outer(here[rows[1]], here[columns[1]])
        return result


def _blended(kernel: Array, programs: Array) -> Array:
    """Return rows of a kernel for programs by number, or their means for shares of programs."""
    blended: Array = kernel[programs] if programs.ndim == 1 else programs @ kernel
    return blended


def _similar_changes(sides: Sequence[Side], scales: Mapping[str, float]) -> dict[str, Array]:
    """Return how similar stacks are (n, n), by what may differ."""
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
    return {
        "all": np.ones((len(machines), len(machines))),
        "kind": equal([machine.precision_features or machine.kind for machine in machines]),
        "similar": similarity_of_machines([machine.features or machine.kind for machine in machines]),
        "units": equal([machine.has_matrix_units for machine in machines]),
        "name": equal([machine.name for machine in machines]),
        "machine": equal([machine.identity for machine in machines]),
    }


def similarity_of_machines(values: Sequence[object]) -> Array:
    """Return the similarity of machines (n, n), by the features of their accelerators.

    Args:
        values: Features of each machine, or its kind if they are unknown: such a machine is similar to its kind only.
    """
    similarity = np.array([[float(one == other) for other in values] for one in values])
    rows = [i for i, value in enumerate(values) if isinstance(value, tuple)]
    if not rows:
        return similarity
    features = np.array([values[i] for i in rows], dtype=float).reshape(len(rows), -1)
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    similarity[np.ix_(rows, rows)] = np.exp(-0.5 * distances)
    return similarity


class Points:
    """Ratios of two stacks at programs on machines, by the numbers of these in a :class:`Space`."""

    def __init__(self, numbers: Sequence[tuple[int, int, int, int]]) -> None:
        """Group ratios.

        Args:
            numbers: Arm, reference, program and machine of each ratio.
        """
        pairs: dict[tuple[int, int], int] = {}
        places: dict[tuple[int, int], int] = {}
        self.pair: Array = np.array([pairs.setdefault(entry[:2], len(pairs)) for entry in numbers], dtype=int)
        self.place: Array = np.array([places.setdefault(entry[2:], len(places)) for entry in numbers], dtype=int)
        self.pairs: Array = np.array(list(pairs), dtype=int).reshape(-1, 2)
        self.programs, self.machines = np.array(list(places), dtype=int).reshape(-1, 2).T

    def part(self, rows: Array) -> Points:
        """Return the ratios with some numbers (n,)."""
        part = copy(self)
        part.pair, part.place = self.pair[rows], self.place[rows]
        return part


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
        return self.points(((c.side, c.reference), programs[c.label], c.machine) for c in contrasts)

    def points(self, ratios: Iterable[tuple[Pair, Program, Machine]]) -> Points:
        """Return ratios of pairs of stacks at programs on machines."""
        return Points(
            [
                (self.side(one, machine), self.side(other, machine), self.program(program), self.machine(machine))
                for (one, other), program, machine in ratios
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

    Args:
        space: The similarities.
        points: The ratios.
        terms: Variance of each effect.
        rows: Numbers of the ratios (n,); all by default.
    """
    some = points if rows is None else points.part(rows)
    return cross_covariance(space, some, some, terms)


def cross_covariance(space: Space, one: Points, other: Points, terms: Mapping[Term, float]) -> Array:
    """Return the covariance (n, m) of the effects on ratios with those on others.

    There are few pairs of stacks and few programs on machines: similarities are computed for these, and looked up.
    """
    rows, columns = ((points.programs, points.machines) for points in (one, other))
    total = np.zeros((len(one.pair), len(other.pair)))
    for change, matrix in _sums(space, rows, columns, terms).items():
        pairs = space.differences(change, one.pairs, other.pairs)
        total += pairs[one.pair[:, None], other.pair[None]] * matrix[one.place[:, None], other.place[None]]
    return total


def _sums(
    space: Space, rows: tuple[Array, Array], columns: tuple[Array, Array], terms: Mapping[Term, float]
) -> dict[Change, Array]:
    """Return the variance (n, m) that programs on machines share of each change."""
    kernels: dict[tuple[Change, str], Array] = {}
    for term, variance in terms.items():
        if variance > 0:
            key = term.change, term.machines
            kernels[key] = kernels.get(key, 0.0) + variance * space.programs[term.programs]
    sums: dict[Change, Array] = {}
    for (change, machines), kernel in kernels.items():
        sums[change] = sums.get(change, 0.0) + space.shared(kernel, machines, rows, columns)
    return sums


def equal(values: Sequence[object]) -> Array:
    """Return whether values are equal (n, n), as numbers."""
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
    total = np.zeros((len(sides), len(sides)))
    for name in sorted({name for side in sides for name in side.companions}):
        versions = [side.companions.get(name) for side in sides]
        present = np.array([version is not None for version in versions])
        kernel = np.exp(-_distances([version or "0" for version in versions]) / LENGTH)
        total += kernel * np.outer(present, present)
    return total


def _distances(texts: Sequence[str]) -> Array:
    """Return distances (n, n) of versions: 1 for a minor release, less for a patch release, 1 for another build."""
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
