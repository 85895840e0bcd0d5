"""How much less work an accelerator does together with others than alone: a Gaussian process over published pairs.

The log efficiency of many accelerators is a sum of losses for each doubling of their number, inside of a machine and
beyond it. All pairs share one part of a loss; other parts belong to trainings to a required quality (whose larger total
batch needs more items), to a task, to the connection of the accelerators in a machine, or to a model of accelerators.
The loss of trainings to a quality grows as they become short, along a smooth curve.
Each configuration of a publisher has a part of its own, and so has the user's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from knowledge.estimate.accelerator_ratio import as_numbers, evenly, without_groups
from knowledge.estimate.gain_fit import maximise_likelihood
from knowledge.estimate.gain_space import Array, half_shared
from knowledge.evidence.accelerator_rows import AcceleratorRow
from knowledge.evidence.scaling_pairs import ScalingPair
from knowledge.hardware.accelerators import find_accelerator

INSIDE, ACROSS, SHORT = "inside", "across", "short"
EFFECTS = (
    *((INSIDE, shared) for shared in ("all", "quality", "task", "link", "model", "configuration")),
    *((ACROSS, shared) for shared in ("all", "quality", "task", "model", "configuration")),
    *((SHORT, shared) for shared in ("quality", "task")),
)
"""Losses for a doubling inside of a machine and beyond it, how they grow as trainings become short, and the pairs that
share them."""
ROW = "row"
MOST_PAIRS = 1500
"""Maximum number of pairs that variances are fitted to and a model is conditioned on."""
MACHINE = 8
"""Usual number of accelerators of a machine, where the source does not state it."""
LONG = 1e5
"""Seconds of a training to a quality beyond which the loss does not depend on them; longer ones are rare."""
_LEAST, _LEAST_ROW = 0.002**2, 0.01**2
_JITTER = 1e-9
_TYPICAL, _LOOSE = 0.05**2, 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlargement:
    """A number of accelerators in place of a smaller one, for a program.

    Attributes:
        task: The whole model.
        mode: ``training`` or ``inference``.
        is_to_quality: Whether it trains to a required quality; else the work is a fixed number of items.
        accelerator: Name of the model in the catalogue.
        few: The smaller number.
        many: The larger number.
        machine: Number of accelerators of one machine.
        seconds: Time of a training to a quality on the few; ``None`` for a fixed number of items.
        configuration: What a publisher's configuration is called; empty for one that nobody published.
    """

    task: str
    mode: str
    is_to_quality: bool
    accelerator: str
    few: int
    many: int
    machine: int = MACHINE
    seconds: float | None = None
    configuration: tuple[str, ...] = ()


def fit_scaling(pairs: Sequence[ScalingPair]) -> dict[str, float]:
    """Return the variance of each effect and of the noise that maximise the marginal likelihood."""
    pairs = _selected(pairs)
    space = _Space([_enlargement(pair) for pair in pairs])
    parts = np.stack([*(space.covariance({effect: 1.0}) for effect in EFFECTS), _row_noise(pairs)])
    fitted = maximise_likelihood(
        np.array([pair.mean for pair in pairs]),
        parts,
        _JITTER * np.eye(len(pairs)),
        [_TYPICAL] * len(parts),
        [_LOOSE] * len(parts),
        [*[_LEAST] * len(EFFECTS), _LEAST_ROW],
    )
    return dict(zip([*map(" ".join, EFFECTS), ROW], fitted, strict=True))


class ScalingModel:
    """The model, conditioned on published pairs."""

    def __init__(self, pairs: Sequence[ScalingPair], variances: Mapping[str, float]) -> None:
        """Condition on pairs.

        Args:
            pairs: The published pairs.
            variances: Variances, as :func:`fit_scaling` returns them.
        """
        self.pairs = _selected(pairs)
        self._terms = {effect: variances[" ".join(effect)] for effect in EFFECTS}
        self._known = [_enlargement(pair) for pair in self.pairs]
        noise = variances[ROW] * _row_noise(self.pairs) + _JITTER * np.eye(len(self.pairs))
        effects = _Space(self._known).covariance(self._terms)
        self._inverse: Array = np.linalg.inv(effects + noise)
        self._means: Array = np.array([pair.mean for pair in self.pairs])

    def predict(self, targets: Sequence[Enlargement]) -> tuple[Array, Array]:
        """Predict log efficiencies.

        Args:
            targets: What to predict; all without a published configuration are of one.

        Returns:
            Means (n,) and covariances (n, n).
        """
        count = len(self.pairs)
        space = _Space([*self._known, *targets])
        covariance = space.covariance(self._terms, slice(count, None))
        cross = covariance[:, :count]
        weights = cross @ self._inverse
        means: Array = weights @ self._means
        covariances: Array = covariance[:, count:] - weights @ cross.T
        return means, covariances

    def held_out(self, groups: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], Array, Array]]:
        """Predict groups of :attr:`pairs`, each from all others; see :func:`without_groups`."""
        yield from without_groups(self._inverse, self._means, groups)


def _selected(pairs: Sequence[ScalingPair]) -> list[ScalingPair]:
    """Return at most :data:`MOST_PAIRS` pairs: those of trainings to a quality, which are few, and others evenly."""
    to_quality = [pair for pair in pairs if pair.is_to_quality][:MOST_PAIRS]
    return [*to_quality, *evenly([pair for pair in pairs if not pair.is_to_quality], MOST_PAIRS - len(to_quality))]


def _enlargement(pair: ScalingPair) -> Enlargement:
    return Enlargement(
        task=pair.task,
        mode=pair.mode,
        is_to_quality=pair.is_to_quality,
        accelerator=pair.accelerator,
        few=pair.few,
        many=pair.many,
        seconds=pair.seconds if pair.is_to_quality else None,
        configuration=configuration_of(pair),
    )


def _row_noise(pairs: Sequence[ScalingPair]) -> Array:
    """Return the covariance (n, n) of the noise of rows of unit variance; pairs share that of a common row."""
    keys = [(*configuration_of(pair), pair.accelerator, pair.batch) for pair in pairs]
    every: list[object] = []
    for key, pair in zip(keys, pairs, strict=True):
        every += [(key, pair.few), (key, pair.many)]
    return 2 * half_shared(every)


class _Space:
    """Enlargements, and how much of each effect any two of them share."""

    def __init__(self, targets: Sequence[Enlargement]) -> None:
        self._doublings = {
            INSIDE: np.array([_doublings(min(t.few, t.machine), min(t.many, t.machine)) for t in targets]),
            ACROSS: np.array([_doublings(max(t.few, t.machine), max(t.many, t.machine)) for t in targets]),
        }
        # How short a training would be without a loss: on the few, and on the many.
        few = np.array([math.log(LONG / (t.seconds or LONG)) for t in targets])
        ratios = np.array([math.log(t.many / t.few) * (t.seconds is not None) for t in targets])
        self._few, self._many = np.maximum(few, 0.0), np.maximum(few + ratios, 0.0)
        self._shared = {
            "all": as_numbers([True for _ in targets]),
            "quality": as_numbers([t.is_to_quality for t in targets]),
            "task": as_numbers([(t.task, t.mode, t.is_to_quality) for t in targets]),
            "link": as_numbers([link_of(t.accelerator) for t in targets]),
            "model": as_numbers([t.accelerator for t in targets]),
            "configuration": as_numbers([(*t.configuration, t.accelerator) for t in targets]),
        }

    def covariance(self, terms: Mapping[tuple[str, str], float], rows: slice = slice(None)) -> Array:
        """Return the covariance (m, n) of effects with these variances, for some of the enlargements with all."""
        total: Array = np.sum(
            [
                variance * (self._shared[shared][rows, None] == self._shared[shared]) * self._losses(where, rows)
                for (where, shared), variance in terms.items()
            ],
            axis=0,
        )
        return total

    def _losses(self, where: str, rows: slice) -> Array:
        """Return the covariance (m, n) of unit variance of the effects on enlargements."""
        if where != SHORT:
            return np.outer(self._doublings[where][rows], self._doublings[where])
        few, many = self._few, self._many
        result: Array = (
            _bend(many[rows], many) - _bend(many[rows], few) - _bend(few[rows], many) + _bend(few[rows], few)
        )
        return result


def _bend(one: Array, other: Array) -> Array:
    """Return the covariance (m, n) of an integrated Wiener process: a smooth curve that starts at 0 with slope 0."""
    least, most = np.minimum(one[:, None], other), np.maximum(one[:, None], other)
    result: Array = least**2 * (3 * most - least) / 6
    return result


def configuration_of(published: ScalingPair | AcceleratorRow) -> tuple[str, ...]:
    """Return what a publisher's configuration is called, for :class:`Enlargement`."""
    return published.source, published.configuration, published.regime, published.task, published.mode


def _doublings(few: int, many: int) -> float:
    return math.log2(many / few)


def link_of(accelerator: str) -> str:
    """Return how accelerators of a model are connected in a machine: by NVLink or another fabric, or by PCIe."""
    model = find_accelerator(accelerator)
    if model is None or model.kind != "data-centre" or model.form.startswith("pcie"):
        return "pcie"
    return model.interconnect or "pcie"
