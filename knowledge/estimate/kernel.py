"""How alike two contrasts are expected to be: the covariance as a sum of parts, each with an amplitude to be fitted.

The log speed of a stack with settings, at an indicator, on a machine, is a sum of independent Gaussian processes: one
of the framework's version, one of each companion's, one of each pair of both, one of each setting. Each is the sum of
what all indicators share, what those of one family share, and what is the label's own; the framework's also of what all
machines share and what is the machine's own. Neighbouring versions are alike: k(v, w) = exp(-d(v, w) / length), d
counting minor releases (an Ornstein-Uhlenbeck process; Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, section 4.2). A contrast is a difference of two such speeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from knowledge.estimate.evidence import Machine, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Part = tuple[str, str, str]
PARTS: tuple[Part, ...] = (
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
    ("setting", "label", "all"),
    ("setting", "label", "kind"),
)
"""What varies, over which indicators it is shared, over which machines it is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A stack's side at an indicator, on a machine: where the process has a value."""

    side: Side
    label: str
    family: str
    machine: Machine


class Design:
    """The points of a problem, coded so that covariances between any two sets of them are looked up."""

    def __init__(self, points: Sequence[Point], *, length: float, scales: Mapping[str, float]) -> None:
        """Code the points.

        Args:
            points: All that covariances are wanted of.
            length: Minor releases over which versions are alike.
            scales: How much more than usual, as a standard deviation, versions differ at an indicator, by label.
        """
        import numpy as np

        self._scales = np.array([scales.get(p.label, 1.0) for p in points])
        self._sides = _codes(_side_key(p.side) for p in points)
        self._labels = _codes(p.label for p in points)
        self._families = _codes(p.family for p in points)
        self._kinds = _codes(p.machine.kind for p in points)
        self._machines = _codes(p.machine.identity for p in points)
        unique: dict[object, Side] = {}
        for p in points:
            unique.setdefault(_side_key(p.side), p.side)
        sides = list(unique.values())
        framework = _similar([s.version for s in sides], length)
        names = sorted({name for s in sides for name in s.companions})
        companions = [_similar([s.companions.get(name) for s in sides], length) for name in names]
        none = np.zeros((len(sides), len(sides)))
        self._kernels = {
            "framework": framework,
            "release": _similar([s.version for s in sides], 0.5),
            "companion": sum(companions, none),
            "pair": framework * sum(companions, none),
            "setting": framework * _shared_settings(sides),
        }

    def sums(self, part: Part, heads: Array, row: Array, weights: Array, others: Array) -> Array:
        """Covariance (k, m) of unit amplitude of weighted sums over labels with points.

        Args:
            part: The part.
            heads: Places (k,) of the first point of each sum; all sums run over the same labels, on one machine.
            row: Places (n,) of the points of the first sum.
            weights: Weight (n,) of each label.
            others: Places (m,) of the points.
        """
        shared = self._alike(part, row, others) * self._scales[others]
        weighted = (weights * self._scales[row]) @ shared
        found: Array = self._kernels[part[0]][self._sides[heads][:, None], self._sides[others][None, :]] * weighted
        return found

    def sums_of_sums(self, part: Part, left: Array, right: Array, row: Array, weights: Array) -> Array:
        """Covariances (k,) of unit amplitude of weighted sums over labels, two by two; see :meth:`sums`."""
        scaled = weights * self._scales[row]
        found: Array = self._kernels[part[0]][self._sides[left], self._sides[right]]
        return found * float(scaled @ self._alike(part, row, row) @ scaled)

    def _alike(self, part: Part, left: Array, right: Array) -> Array:
        """Return which points (n, m) share a part, by their indicators and machines: 1 where they do."""
        import numpy as np

        _, indicators, machines = part
        rows, columns = left[:, None], right[None, :]
        found = np.ones((len(left), len(right)))
        if indicators != "all":
            codes = self._families if indicators == "family" else self._labels
            found *= codes[rows] == codes[columns]
        if machines != "all":
            codes = self._kinds if machines == "kind" else self._machines
            found *= codes[rows] == codes[columns]
        return found

    def contrasts(self, slots: Array, references: Array) -> Iterator[Array]:
        """Yield the covariance (n, n) of unit amplitude, of each part, of the differences of slots and references.

        Slot and reference of a contrast are at one indicator on one machine.
        """
        scales = self._scales[slots][:, None] * self._scales[slots][None, :]
        kernels = {what: self._differences(kernel, slots, references) for what, kernel in self._kernels.items()}
        for part in PARTS:
            yield kernels[part[0]] * self._alike(part, slots, slots) * scales

    def _differences(self, kernel: Array, slots: Array, references: Array) -> Array:
        a, r = self._sides[slots], self._sides[references]
        found: Array = (
            kernel[a[:, None], a[None, :]]
            - kernel[a[:, None], r[None, :]]
            - kernel[r[:, None], a[None, :]]
            + kernel[r[:, None], r[None, :]]
        )
        return found


def _side_key(side: Side) -> tuple[object, ...]:
    return side.version, tuple(sorted(side.companions.items())), tuple(sorted(side.settings.items()))


def _codes(values: Iterable[object]) -> Array:
    import numpy as np

    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values])


def _similar(versions: Sequence[str | None], length: float) -> Array:
    """Return how alike versions are (n, n): 1 the same, towards 0 the more releases lie between; absent is its own."""
    import numpy as np

    present = sorted({v for v in versions if v is not None}, key=_version)
    between = np.exp(-distances(tuple(_version(v) for v in present)) / length)
    place = {v: i for i, v in enumerate(present)}
    whole = np.eye(len(present) + 1)
    whole[: len(present), : len(present)] = between
    codes = np.array([len(present) if v is None else place[v] for v in versions])
    found: Array = whole[codes[:, None], codes[None, :]]
    return found


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _shared_settings(sides: Sequence[Side]) -> Array:
    """Return how many settings two sides share (n, n); what is not set has no effect."""
    import numpy as np

    every = sorted({item for s in sides for item in s.settings.items()})
    table = np.array([[float(s.settings.get(name) == value) for name, value in every] for s in sides])
    table = table.reshape(len(sides), len(every))
    shared: Array = table @ table.T
    return shared


@lru_cache(maxsize=64)
def distances(versions: tuple[Version, ...]) -> Array:
    """Distances (n, n) of versions: 1 a minor release, 0.1 a patch release, 1 another build of the same release."""
    import numpy as np

    minors = {release: i for i, release in enumerate(sorted({(v.major, v.minor) for v in versions}))}
    place = np.array([minors[v.major, v.minor] + min(v.micro, 9) / 10 for v in versions])
    builds = np.array([[float(v.local != w.local) for w in versions] for v in versions]).reshape(len(versions), -1)
    found: Array = np.abs(place[:, None] - place[None, :]) + builds
    return found
