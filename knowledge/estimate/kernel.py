"""How alike two contrasts are expected to be: the covariance as a sum of parts, each with an amplitude to be fitted.

The log speed of a stack with settings, at an indicator, on a machine, is a sum of independent Gaussian processes: one
of the framework's version, one of each companion's, one of each pair of both, one of each setting. Each is the sum of
what all indicators share, what those of one family share, and what is the label's own; the framework's also of what all
machines share and what is the machine's own. Neighbouring versions are alike: k(v, w) = exp(-d(v, w) / length), d
counting minor releases (an Ornstein-Uhlenbeck process; Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, section 4.2). A companion that is absent has no effect. A contrast is a difference of two such speeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


_RELEASE_LENGTH = 0.5
"""Minor releases over which what is one release's own is alike."""
_USUAL_SPAN = 20
_YEARLY_SPAN = 4
_FIRST_YEAR = 1900

Spans = Mapping[str, Mapping[int, int]]
"""By package: how many minor releases each major one had, where that is known; the framework's own under ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A stack's side at an indicator, on a machine: where the process has a value."""

    side: Side
    label: str
    family: str
    machine: Machine


class Design:
    """The points of a problem, coded so that covariances between any two sets of them are looked up."""

    def __init__(self, points: Sequence[Point], *, length: float, scales: Mapping[str, float], spans: Spans) -> None:
        """Code the points. How alike two of them are depends on no other point.

        Args:
            points: All that covariances are wanted of.
            length: Minor releases over which versions are alike.
            scales: How much more than usual, as a standard deviation, versions differ at an indicator, by label.
            spans: How many minor releases major ones had.
        """
        import numpy as np

        self._scales = np.array([scales.get(p.label, 1.0) for p in points])
        self._sides = codes(_side_key(p.side) for p in points)
        self._labels = codes(p.label for p in points)
        # Versions of one indicator measure different things: they are no family.
        self._families = codes((p.family, p.label.partition("[")[0]) for p in points)
        self._kinds = codes(p.machine.kind for p in points)
        self._machines = codes(p.machine.identity for p in points)
        sides = list({_side_key(p.side): p.side for p in points}.values())
        own = [s.version for s in sides]
        self._framework = _VersionSimilarity(own, spans.get("", {}), length)
        self._release = _VersionSimilarity(own, spans.get("", {}), _RELEASE_LENGTH)
        self._companions = [
            _VersionSimilarity([s.companions.get(name) for s in sides], spans.get(name, {}), length)
            for name in sorted({name for s in sides for name in s.companions})
        ]
        settings = [tuple(sorted(s.settings.items())) for s in sides]
        self._settings = codes(settings)
        self._shared_settings = _shared(list(dict.fromkeys(settings)))

    def _kernel(self, what: str, left: Array, right: Array) -> Array:
        """Return how alike the stacks of points are in one effect; places broadcast against each other."""
        a, b = self._sides[left], self._sides[right]
        found: Array
        if what == "release":
            return self._release.between(a, b)
        if what == "framework":
            return self._framework.between(a, b)
        if what == "setting":
            found = self._framework.between(a, b)
            found *= self._shared_settings[self._settings[a], self._settings[b]]
            return found
        found = 0.0 * (a + b)
        for alike in self._companions:
            found += alike.between(a, b)
        if what == "pair":
            found *= self._framework.between(a, b)
        return found

    def distinct(self, arms: Array, references: Array) -> tuple[Array, Array]:
        """Return the places of the first contrast (k,) of each kind, and the kind of each (n,).

        Contrasts are of one kind where stacks, indicator and machine are the same.
        """
        import numpy as np

        kinds = codes(
            zip(self._sides[arms], self._sides[references], self._labels[arms], self._machines[arms], strict=True)
        )
        _, first = np.unique(kinds, return_index=True)
        return first, kinds

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
        found: Array = self._kernel(part[0], heads[:, None], others[None, :]) * weighted
        return found

    def sums_of_sums(self, part: Part, left: Array, right: Array, row: Array, weights: Array) -> Array:
        """Covariances (k,) of unit amplitude of weighted sums over labels, two by two; see :meth:`sums`."""
        scaled = weights * self._scales[row]
        return self._kernel(part[0], left, right) * float(scaled @ self._alike(part, row, row) @ scaled)

    def _alike(self, part: Part, left: Array, right: Array) -> Array:
        """Return which points (n, m) share a part, by their indicators and machines: 1 where they do."""
        import numpy as np

        _, indicators, machines = part
        rows, columns = left[:, None], right[None, :]
        found = np.ones((len(left), len(right)))
        if indicators != "all":
            shared = self._families if indicators == "family" else self._labels
            found *= shared[rows] == shared[columns]
        if machines != "all":
            shared = self._kinds if machines == "kind" else self._machines
            found *= shared[rows] == shared[columns]
        return found

    def contrasts(self, arms: Array, references: Array) -> Iterator[Array]:
        """Yield the covariance (n, n) of unit amplitude, of each part, of the differences of arms and references.

        Arm and reference of a contrast are at one indicator on one machine.
        """
        scales = self._scales[arms][:, None] * self._scales[arms][None, :]
        kernels = {what: self._differences(what, arms, references) for what in sorted({what for what, *_ in PARTS})}
        for part in PARTS:
            yield kernels[part[0]] * self._alike(part, arms, arms) * scales

    def _differences(self, what: str, arms: Array, references: Array) -> Array:
        a, r = arms[:, None], references[:, None]
        return (
            self._kernel(what, a, a.T)
            - self._kernel(what, a, r.T)
            - self._kernel(what, r, a.T)
            + self._kernel(what, r, r.T)
        )


class _VersionSimilarity:
    """How alike versions are: 1 the same, towards 0 the more releases lie between; what is absent has no effect."""

    def __init__(self, versions: Sequence[str | None], spans: Mapping[int, int], length: float) -> None:
        import numpy as np

        present = sorted({v for v in versions if v is not None})
        code = {v: i for i, v in enumerate(present)}
        self._codes = np.array([len(present) if v is None else code[v] for v in versions])
        self._alike = np.zeros((len(present) + 1, len(present) + 1))
        found = np.exp(-distances([_version(v) for v in present], spans) / length)
        self._alike[: len(present), : len(present)] = found

    def between(self, left: Array, right: Array) -> Array:
        """Return how alike the versions of stacks are, named by their places."""
        found: Array = self._alike[self._codes[left], self._codes[right]]
        return found


def _side_key(side: Side) -> tuple[object, ...]:
    return side.version, tuple(sorted(side.companions.items())), tuple(sorted(side.settings.items()))


def codes(values: Iterable[object]) -> Array:
    """Return a number for each value (n,): the same for the same."""
    import numpy as np

    seen: dict[object, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values])


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _shared(settings: Sequence[tuple[tuple[str, str], ...]]) -> Array:
    """Return how many settings two sets share (n, n); what is not set has no effect."""
    import numpy as np

    return np.array([[float(len(set(a) & set(b))) for b in settings] for a in settings])


def spans_of(sides: Iterable[Side]) -> dict[str, dict[int, int]]:
    """Return how many minor releases each major one has, by package, as far as stacks tell."""
    found: dict[str, dict[int, int]] = {}
    for side in sides:
        for name, text in [("", side.version), *side.companions.items()]:
            version, spans = _version(text), found.setdefault(name, {})
            spans[version.major] = max(spans.get(version.major, 0), version.minor + 1)
    return found


def distances(versions: Sequence[Version], spans: Mapping[int, int]) -> Array:
    """Distances (n, n) of versions: 1 a minor release, 0.1 a patch release, 1 another build of the same release.

    Args:
        versions: The versions.
        spans: How many minor releases each major one has. Of one that is not known: 20, or 4 where the major number is
            a year.
    """
    import numpy as np

    place = np.array([_place(v, spans) + v.minor + min(v.micro, 9) / 10 for v in versions])
    builds = np.array([[float(v.local != w.local) for w in versions] for v in versions]).reshape(len(versions), -1)
    found: Array = np.abs(place[:, None] - place[None, :]) + builds
    return found


def _place(version: Version, spans: Mapping[int, int]) -> float:
    """Return how many minor releases lie before a major one, whatever other versions are asked for."""
    if version.major < _FIRST_YEAR:
        return sum(spans.get(major, _USUAL_SPAN) for major in range(version.major))
    return sum(spans.get(year, _YEARLY_SPAN) for year in range(_FIRST_YEAR, version.major))
