"""Prior covariance of contrasts: a sum of parts, each with an amplitude that is fitted.

The log speed of a stack with settings, at an indicator, on a machine, is a sum of independent Gaussian processes: one
of the framework's version, one of each companion's, one of each pair of both, one of each setting. Each is the sum of
an effect on all indicators, an effect on those of one family, and an effect on one label; for the framework, also of
effects on all machines and on one machine. On processors, a setting of a reduced precision is another setting for each
feature that multiplies such matrices (:func:`knowledge.estimate.similarity.side_on`). On accelerators, settings have an
effect that no version changes, and machines are similar by the properties of their accelerators (a squared
exponential); what a setting does with tensor cores says nothing about accelerators without them. Neighbouring versions
have similar speed: k(v, w) = exp(-d(v, w) / length), d counting minor releases (an Ornstein-Uhlenbeck process;
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 4.2). A companion that is absent has no
effect. A contrast is a difference of two such speeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from knowledge.domain.observation import words_of
from knowledge.estimate.discrepancy import architecture_of, program_of_label
from knowledge.estimate.evidence import Machine, Side
from knowledge.estimate.similarity import (
    Settings,
    similarity_of_machines,
    similarity_of_setting_pairs,
    similarity_of_settings,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Part = tuple[str, str, str]
CPU_PARTS: tuple[Part, ...] = (
    ("framework", "all", "all"),
    ("framework", "family", "all"),
    ("framework", "label", "all"),
    ("framework", "label", "kind"),
    ("framework", "all", "machine"),
    ("framework", "label", "machine"),
    ("release", "all", "all"),
    ("release", "family", "all"),
    ("release", "label", "all"),
    ("release", "label", "machine"),
    ("companion", "all", "all"),
    ("companion", "label", "all"),
    ("pair", "label", "all"),
    ("setting", "all", "all"),
    ("setting", "family", "all"),
    ("setting", "architecture", "all"),
    ("setting", "program", "all"),
    ("setting", "label", "all"),
    ("setting", "label", "kind"),
    ("steady setting", "all", "all"),
    ("steady setting", "architecture", "all"),
    ("steady setting", "program", "all"),
    ("setting pair", "all", "all"),
    ("setting pair", "architecture", "all"),
    ("setting pair", "program", "all"),
    ("setting pair", "label", "all"),
)
"""Parts for processors: effect, indicators that share it, and machines that share it."""
ACCELERATOR_PARTS: tuple[Part, ...] = (
    ("framework", "all", "all"),
    ("framework", "family", "all"),
    ("framework", "label", "all"),
    ("framework", "family", "similar"),
    ("companion", "all", "all"),
    ("companion", "family", "all"),
    ("setting", "all", "similar"),
    ("setting", "family", "similar"),
    ("steady setting", "all", "units"),
    ("steady setting", "mode", "units"),
    ("steady setting", "family", "units"),
    ("steady setting", "label", "units"),
    ("steady setting", "all", "similar"),
    ("steady setting", "mode", "similar"),
    ("steady setting", "family", "similar"),
    ("steady setting", "label", "similar"),
    ("steady setting", "family", "model"),
)
"""Parts for accelerators, most of whose measurements are published ones, of whole models on many accelerators."""
PARTS: tuple[Part, ...] = tuple(dict.fromkeys([*CPU_PARTS, *ACCELERATOR_PARTS]))
"""All parts: those of one kind of device have the variance 0 for the other."""


def parts_of(device: str) -> tuple[Part, ...]:
    """Return the parts of the covariance for a device: ``cpu``, or another one."""
    return CPU_PARTS if device == "cpu" else ACCELERATOR_PARTS


SETTING_EFFECTS = frozenset({"setting", "steady setting", "setting pair"})
"""Effects that do not differ more where versions differ more."""
ROWS_AT_ONCE = 256
"""Number of rows of a large covariance that are computed at once, to bound the memory."""
LAST_PATCH = 9
"""Later patch releases of a minor release are at the same place."""
_RELEASE_LENGTH = 0.5
"""Correlation length of effects of single releases, in minor releases."""
_USUAL_SPAN = 20
_YEARLY_SPAN = 4
_FIRST_YEAR = 1900

Spans = Mapping[str, Mapping[int, int]]
"""Number of minor releases of each major release, if known, by package; the framework is ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A stack at an indicator on a machine: an input of the Gaussian process."""

    side: Side
    label: str
    family: str
    machine: Machine


class Design:
    """Points of a problem, encoded so that covariances between any two sets of them are table look-ups."""

    def __init__(
        self,
        points: Sequence[Point],
        *,
        length: float,
        scales: Mapping[str, float],
        setting_scales: Mapping[str, float],
        spans: Spans,
        base: Design | None = None,
    ) -> None:
        """Encode points. The covariance of two points does not depend on other points.

        Args:
            points: All points whose covariances are needed.
            length: Correlation length of versions, in minor releases.
            scales: Standard deviation of the differences between versions relative to the usual one, by label.
            setting_scales: The same of the effects of settings, by ``name=value``.
            spans: Number of minor releases of each major release, by package.
            base: Encoded points that come before these; the other arguments must be the same.
        """
        import numpy as np

        own_scales = np.array([scales.get(p.label, 1.0) for p in points])
        self._scales: Array = own_scales if base is None else np.concatenate([base._scales, own_scales])
        # Many points share a side; usually it is one object.
        objects = {id(p.side): p.side for p in points}
        keys = {identity: side_key(side) for identity, side in objects.items()}
        columns: dict[str, Iterable[object]] = {
            "side": (keys[id(p.side)] for p in points),
            "label": (p.label for p in points),
            # Versions of one indicator measure different things, so they are different families. So are training and
            # inference of whole models and blocks, and published tasks.
            "family": (
                (p.family, p.label.partition("[")[0], "mode=training" in p.label, task_of(p.label)) for p in points
            ),
            "architecture": (architecture_of(p.label, p.family) for p in points),
            "program": (program_of_label(p.label, p.family) for p in points),
            "mode": ("mode=training" in p.label for p in points),
            "kind": (p.machine.kind for p in points),
            "machine": (p.machine.identity for p in points),
            "model": (p.machine.name for p in points),
            "units": (p.machine.has_matrix_units for p in points),
            "similar": (p.machine.features or p.machine.kind for p in points),
        }
        self._columns: dict[str, _Codes] = {
            name: _Codes(column, base._columns[name] if base is not None else None) for name, column in columns.items()
        }
        self._codes: dict[str, Array] = {name: column.array for name, column in self._columns.items()}
        self._sides = self._codes["side"]
        self._distinct_sides: dict[object, Side] = {} if base is None else dict(base._distinct_sides)
        self._distinct_sides.update((keys[identity], side) for identity, side in objects.items())
        self._length = length
        self._spans = spans
        self._setting_scales = setting_scales

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._scales)

    # A design whose machines or stacks are not compared needs no similarities of them.
    @cached_property
    def _similarity(self) -> Array:
        return similarity_of_machines(list(self._columns["similar"].numbers))

    @cached_property
    def _framework(self) -> _VersionSimilarity:
        return self._similarity_of_frameworks(self._length)

    @cached_property
    def _release(self) -> _VersionSimilarity:
        return self._similarity_of_frameworks(_RELEASE_LENGTH)

    def _similarity_of_frameworks(self, length: float) -> _VersionSimilarity:
        versions = [side.version for side in self._distinct_sides.values()]
        return _VersionSimilarity(versions, self._spans.get("", {}), length)

    @cached_property
    def _companions(self) -> list[_VersionSimilarity]:
        sides = self._distinct_sides.values()
        return [
            _VersionSimilarity([s.companions.get(name) for s in sides], self._spans.get(name, {}), self._length)
            for name in sorted({name for s in sides for name in s.companions})
        ]

    @cached_property
    def _settings(self) -> list[Settings]:
        return [tuple(sorted(side.settings.items())) for side in self._distinct_sides.values()]

    @cached_property
    def _setting_codes(self) -> Array:
        return codes(self._settings)

    @cached_property
    def _shared_settings(self) -> Array:
        return similarity_of_settings(list(dict.fromkeys(self._settings)), self._setting_scales)

    @cached_property
    def _shared_pairs(self) -> Array:
        return similarity_of_setting_pairs(list(dict.fromkeys(self._settings)), self._setting_scales)

    def correlation(self, effect: str, left: Array, right: Array) -> Array:
        """Return the correlation of stacks in one effect; the arrays of point indices broadcast."""
        a, b = self._sides[left], self._sides[right]
        correlation: Array
        if effect == "release":
            return self._release.between(a, b)
        if effect == "framework":
            return self._framework.between(a, b)
        if effect in ("setting", "steady setting"):
            correlation = self._shared_settings[self._setting_codes[a], self._setting_codes[b]]
            return correlation if effect == "steady setting" else correlation * self._framework.between(a, b)
        if effect == "setting pair":
            correlation = self._shared_pairs[self._setting_codes[a], self._setting_codes[b]]
            return correlation * self._framework.between(a, b)
        correlation = 0.0 * (a + b)
        for companion in self._companions:
            correlation += companion.between(a, b)
        if effect == "pair":
            correlation *= self._framework.between(a, b)
        return correlation

    def pairs(self, arms: Array, references: Array) -> tuple[Array, Array]:
        """Return the pair of stacks of each contrast (n,), and the first contrast of each pair (pairs,)."""
        import numpy as np

        pairs = codes(zip(self._sides[arms], self._sides[references], strict=True))
        _, first = np.unique(pairs, return_index=True)
        return pairs, first

    def sharing(self, part: Part, left: Array, right: Array) -> Array:
        """Return the product of the scales of points (n, m) if their indicators and machines share a part, else 0."""
        import numpy as np

        effect, indicators, machines = part
        rows, columns = left[:, None], right[None, :]
        sharing = np.ones((len(left), len(right)))
        for shared in (indicators, machines):
            if shared == "similar":
                sharing *= self._similarity[self._codes[shared][rows], self._codes[shared][columns]]
            elif shared != "all":
                sharing *= self._codes[shared][rows] == self._codes[shared][columns]
        if effect not in SETTING_EFFECTS:
            sharing *= self._scales[rows] * self._scales[columns]
        return sharing

    def contrasts(self, arms: Array, references: Array, parts: Sequence[Part]) -> Iterator[Array]:
        """Yield the covariance (n, n) of unit amplitude of contrasts, for each part.

        Arm and reference of a contrast are at the same indicator on the same machine.

        Args:
            arms: Indices of the arms (n,).
            references: Indices of the references (n,).
            parts: The parts.
        """
        pairs, kernels = self._pair_kernels(arms, references)
        for part in parts:
            yield kernels[part[0]][pairs[:, None], pairs[None, :]] * self.sharing(part, arms, arms)

    def covariance(self, arms: Array, references: Array, variances: Sequence[float]) -> Array:
        """Return the lower triangle of the covariance (n, n) of contrasts, for a variance of each part."""
        import numpy as np

        pairs, kernels = self._pair_kernels(arms, references)
        # Effects that are shared by the same indicators and machines are added up before they are looked up.
        shared: dict[Part, Array] = {}
        for part, variance in zip(PARTS, variances, strict=True):
            if variance > 0:
                key = ("setting" if part[0] in SETTING_EFFECTS else "", *part[1:])
                shared[key] = shared.get(key, 0.0) + variance * kernels[part[0]]
        total = np.zeros((len(arms), len(arms)))
        for start in range(0, len(arms), ROWS_AT_ONCE):
            rows, columns = slice(start, start + ROWS_AT_ONCE), slice(0, start + ROWS_AT_ONCE)
            for part, kernel in shared.items():
                sharing = self.sharing(part, arms[rows], arms[columns])
                sharing *= kernel[pairs[rows, None], pairs[None, columns]]
                total[rows, columns] += sharing
        return total

    def _pair_kernels(self, arms: Array, references: Array) -> tuple[Array, dict[str, Array]]:
        """Return the pair of stacks of each contrast (n,), and the kernel of each effect between pairs.

        There are few pairs: it is faster to compute the kernels for them than for each contrast.
        """
        pairs, first = self.pairs(arms, references)
        effects = sorted({part[0] for part in PARTS})
        return pairs, {effect: self._differences(effect, arms[first], references[first]) for effect in effects}

    def _differences(self, effect: str, arms: Array, references: Array) -> Array:
        a, r = arms[:, None], references[:, None]
        return (
            self.correlation(effect, a, a.T)
            - self.correlation(effect, a, r.T)
            - self.correlation(effect, r, a.T)
            + self.correlation(effect, r, r.T)
        )


class _VersionSimilarity:
    """Correlation of versions: 1 for equal ones, decreasing with distance; an absent package has no effect."""

    def __init__(self, versions: Sequence[str | None], spans: Mapping[int, int], length: float) -> None:
        import numpy as np

        present = sorted({v for v in versions if v is not None})
        code = {v: i for i, v in enumerate(present)}
        self._codes = np.array([len(present) if v is None else code[v] for v in versions])
        self._correlation = np.zeros((len(present) + 1, len(present) + 1))
        correlation = np.exp(-distances([_version(v) for v in present], spans) / length)
        self._correlation[: len(present), : len(present)] = correlation

    def between(self, left: Array, right: Array) -> Array:
        """Return the correlation of the versions of stacks, which are given by their indices."""
        correlation: Array = self._correlation[self._codes[left], self._codes[right]]
        return correlation


def side_key(side: Side) -> tuple[object, ...]:
    """Return what distinguishes a stack from others."""
    return side.version, tuple(sorted(side.companions.items())), tuple(sorted(side.settings.items()))


class _Codes:
    """Integer codes of values: equal values have equal codes; more values can be added in another object.

    Attributes:
        array: The codes (n,).
        numbers: Code of each distinct value.
    """

    def __init__(self, values: Iterable[object], base: _Codes | None = None) -> None:
        import numpy as np

        self.numbers: dict[object, int] = {} if base is None else dict(base.numbers)
        numbers = self.numbers
        own = np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=int)
        self.array: Array = own if base is None else np.concatenate([base.array, own])


def codes(values: Iterable[object]) -> Array:
    """Return an integer code for each value (n,): equal values have equal codes."""
    return _Codes(values).array


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def task_of(label: str) -> str:
    """Return the task in the label of a published measurement; empty if there is none."""
    return words_of(label).get("task", "")


def spans_of(sides: Iterable[Side]) -> dict[str, dict[int, int]]:
    """Return the number of minor releases of each major release that stacks contain, by package."""
    by_package: dict[str, dict[int, int]] = {}
    for side in sides:
        for name, text in [("", side.version), *side.companions.items()]:
            version, spans = _version(text), by_package.setdefault(name, {})
            spans[version.major] = max(spans.get(version.major, 0), version.minor + 1)
    return by_package


def distances(versions: Sequence[Version], spans: Mapping[int, int]) -> Array:
    """Return distances (n, n) of versions: 1 per minor release, 0.1 per patch release, 1 for another build.

    Args:
        versions: The versions.
        spans: Number of minor releases of each major release. If unknown: 20, or 4 if the major number is a year.
    """
    import numpy as np

    place = np.array([_place(v, spans) + v.minor + min(v.micro, LAST_PATCH) / 10 for v in versions])
    builds = codes(v.local for v in versions)
    result: Array = np.abs(place[:, None] - place[None, :]) + (builds[:, None] != builds[None, :])
    return result


def _place(version: Version, spans: Mapping[int, int]) -> float:
    """Return the number of minor releases before a major one; it does not depend on other versions."""
    if version.major < _FIRST_YEAR:
        return sum(spans.get(major, _USUAL_SPAN) for major in range(version.major))
    return sum(spans.get(year, _YEARLY_SPAN) for year in range(_FIRST_YEAR, version.major))
