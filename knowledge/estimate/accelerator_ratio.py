"""How much faster one accelerator is than another at a workload: a Gaussian process over published pairs.

The log speed of an accelerator at a task is a sum of independent effects. One is linear in the accelerator's rates:
memory bandwidth, operations per second in float32, with TF32 and in 16 bits, generation of the tensor cores. Similar
accelerators share another, and a third is the accelerator's own. All pairs share one part of an effect; other parts
belong to one mode or regime (:data:`knowledge.evidence.accelerator_rows.REGIMES`), or to one architecture or task in a
regime: where float32 became TF32, programs of matrix products gained most. A pair is a difference of two such speeds,
plus an effect of the ratio of its batch sizes. Each row has noise of its own, and so has each configuration of a
publisher: it is not the user's. Rows that are far from what the others predict count less.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeVar

import numpy as np

from knowledge.domain.observation import PUBLISHED
from knowledge.domain.ratio import Ratio, WithRatio
from knowledge.estimate.gain_fit import maximise_likelihood
from knowledge.estimate.gain_model import robust_inverse
from knowledge.estimate.gain_space import Array, half_shared
from knowledge.estimate.programs import program_of_run
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import REGIMES
from knowledge.evidence.contrasts import features_of
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator

EFFECTS = (
    *(("rates", shared) for shared in ("all", "regime", "mode", "architecture", "task")),
    *(("similar", shared) for shared in ("all", "regime", "task")),
    ("model", "all"),
    *(("batch", shared) for shared in ("all", "task")),
)
"""Effects of an accelerator, and of the ratio of batch sizes, and the pairs that share them."""
ROW, CONFIGURATION = "row", "configuration"
"""Keys of the variances of a row, and, followed by a publisher, of a configuration; rare publishers count together."""
_Pair = TypeVar("_Pair")
MOST_PAIRS = 2000
"""Maximum number of pairs that variances are fitted to and a model is conditioned on, to bound time and memory."""
FEWEST = 20
"""Fewest pairs of a publisher with a variance of its own."""
LEAST, LEAST_ROW = 0.003**2, 0.01**2
"""Least variances of an effect, and of a row and a configuration."""
_JITTER = 1e-9
"""What makes the covariance of equal pairs invertible."""
_TYPICAL, _LOOSE = 0.1**2, 2.5
"""Mean and standard deviation, of its logarithm, of the prior of a variance."""
_WITH_TF32 = 3
"""First generation of tensor cores that compute with TF32, at half of the rate of 16-bit floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRatio(WithRatio):
    """A predicted ratio of speed of two accelerators at a program of a workload.

    Attributes:
        regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.
        ratio: How much faster the accelerator is than the reference, at a program of this kind.
        pairs: Published pairs of just these accelerators at the tasks: those of one batch size first, then the newest.
        related: Number of pairs of any accelerators with which the model was conditioned.
    """

    regime: str
    ratio: Ratio
    pairs: tuple[AcceleratorPair, ...]
    related: int


def fit_ratios(pairs: Sequence[AcceleratorPair]) -> dict[str, float]:
    """Return the variance of each effect, and of the noise, that maximise the marginal likelihood."""
    pairs = evenly(pairs, MOST_PAIRS)
    space, noise = _Space(pairs), _Noise(pairs)
    counts = Counter(pair.publisher for pair in pairs)
    publishers = [publisher for publisher, count in counts.items() if count >= FEWEST]
    groups = {name: np.array([pair.publisher == name for pair in pairs]) for name in publishers}
    rare = np.array([pair.publisher not in publishers for pair in pairs])
    groups |= {"": rare} if rare.any() else {}
    every = slice(None)
    parts = np.stack(
        [
            *(space.covariance({effect: 1.0}, every, every) for effect in EFFECTS),
            noise.row,
            *(noise.configuration * np.outer(own, own) for own in groups.values()),
        ]
    )
    least = [LEAST] * len(EFFECTS) + [LEAST_ROW] * (1 + len(groups))
    fitted = maximise_likelihood(
        np.array([pair.mean for pair in pairs]),
        parts,
        _JITTER * np.eye(len(pairs)),
        [_TYPICAL] * len(parts),
        [_LOOSE] * len(parts),
        least,
    )
    names = [*(" ".join(effect) for effect in EFFECTS), ROW, *(f"{CONFIGURATION} {name}" for name in groups)]
    return dict(zip(names, fitted, strict=True))


class RatioModel:
    """The model, conditioned on published pairs."""

    def __init__(self, pairs: Sequence[AcceleratorPair], variances: Mapping[str, float]) -> None:
        """Condition on pairs.

        Args:
            pairs: The known pairs.
            variances: Variances, as :func:`fit_ratios` returns them.
        """
        self.pairs = tuple(pairs)
        self._terms = {effect: variances[" ".join(effect)] for effect in EFFECTS}
        every = slice(None)
        effects = _Space(self.pairs).covariance(self._terms, every, every)
        noise = _Noise(self.pairs).covariance(variances)
        self._means: Array = np.array([pair.mean for pair in self.pairs])
        self._inverse = robust_inverse(effects, noise, self._means, np.ones(len(noise), dtype=bool))

    def predict(self, targets: Sequence[AcceleratorPair]) -> tuple[Array, Array]:
        """Predict the log speed-ups of pairs, without the noise of a row and of a configuration.

        Args:
            targets: Pairs whose means are ignored.

        Returns:
            Means (n,) and covariances (n, n).
        """
        space = _Space((*self.pairs, *targets))
        known, asked = slice(len(self.pairs)), slice(len(self.pairs), None)
        cross = space.covariance(self._terms, asked, known)
        weights = cross @ self._inverse
        means: Array = weights @ self._means
        covariances: Array = space.covariance(self._terms, asked, asked) - weights @ cross.T
        return means, covariances

    def held_out(self, groups: Iterable[Sequence[int]]) -> Iterator[tuple[Sequence[int], Array, Array]]:
        """Predict groups of the known pairs, each from all others (:meth:`GainModel.held_out`).

        Args:
            groups: Numbers of the pairs of each group.

        Yields:
            A group, its predictions (n,), and their standard deviations (n,), with the noise of the rows.
        """
        yield from without_groups(self._inverse, self._means, groups)


def without_groups(
    inverse: Array, values: Array, groups: Iterable[Sequence[int]]
) -> Iterator[tuple[Sequence[int], Array, Array]]:
    """Predict groups of measured values, each from all others.

    Args:
        inverse: Inverse of the covariance of the values (n, n).
        values: The values (n,).
        groups: Numbers of the values of each group.

    Yields:
        A group, its predictions (m,), and their standard deviations (m,), with the noise of the values.
    """
    solved = inverse @ values
    for group in groups:
        spread = np.linalg.inv(inverse[np.ix_(group, group)])
        yield group, values[group] - spread @ solved[group], np.sqrt(np.diag(spread))


def accelerator_ratios(
    pairs: Sequence[AcceleratorPair],
    variances: Mapping[str, float],
    *,
    accelerator: str,
    reference: str,
    tasks: Sequence[tuple[str, str]],
) -> tuple[AcceleratorRatio, ...]:
    """Predict how much faster an accelerator is than another one at a program like some tasks, for each regime.

    Args:
        pairs: The published pairs.
        variances: Variances, as :func:`fit_ratios` returns them.
        accelerator: Name in the catalogue.
        reference: Name in the catalogue.
        tasks: Task and mode of each part of the workload.

    Returns:
        A ratio for each regime in which the two were compared at the tasks; if there is none, for each in which any two
        were.
    """
    direct = [pair for pair in direct_pairs(pairs, accelerator, reference) if (pair.task, pair.mode) in tasks]
    published = {(pair.regime, pair.task, pair.mode) for pair in pairs if (pair.task, pair.mode) in tasks}
    regimes = {pair.regime for pair in direct} or {regime for regime, *_ in published}
    # A name may stand for several variants: any of them is meant.
    variants = [(one, other) for one in variants_of(accelerator) for other in variants_of(reference)]
    model = RatioModel(selected(pairs, {name for names in variants for name in names}), variances)
    ratios = []
    for regime in (name for name in REGIMES if name in regimes):
        targets = [
            _target(one, other, regime, *task)
            for one, other in variants
            for task in tasks
            if (regime, *task) in published
        ]
        own = [pair for pair in direct if pair.regime == regime]
        ratios.append(
            AcceleratorRatio(
                regime=regime,
                ratio=_blend(*model.predict(targets), variances),
                pairs=tuple(sorted(own, key=lambda pair: (not pair.has_one_batch, -pair.year, *astuple(pair)))),
                related=len(model.pairs),
            )
        )
    return tuple(ratios)


def _blend(means: Array, covariances: Array, variances: Mapping[str, float]) -> Ratio:
    """Return the ratio of a program that is like any of some targets.

    The program has a configuration of its own, which two accelerators run differently, too.
    """
    variance = float(covariances.diagonal().mean() + means.var())
    variance += 2 * configuration_variance(variances)
    return Ratio(mean=float(means.mean()), variance=variance)


def relative_speeds(
    model: RatioModel, accelerators: Sequence[str], *, reference: str, tasks: Sequence[tuple[str, str]], regime: str
) -> tuple[Array, Array]:
    """Predict how much faster accelerators are than one of them at some tasks, without the noise of a configuration.

    Args:
        model: The model, conditioned on pairs of the accelerators.
        accelerators: Different names in the catalogue (n,).
        reference: Name of the accelerator that they are compared with.
        tasks: Tasks and their modes (k,).
        regime: One of :data:`knowledge.evidence.accelerator_rows.REGIMES`.

    Returns:
        Means (k, n) and covariances (k, n, k, n) of the log speed-ups. The reference itself has the speed-up 1.
    """
    others = [place for place, name in enumerate(accelerators) if name != reference]
    means = np.zeros((len(tasks), len(accelerators)))
    covariances = np.zeros(means.shape * 2)
    if not others:
        return means, covariances
    # A name may stand for several variants: any of them is meant.
    variants = [
        [(one, other) for one in variants_of(accelerators[place]) for other in variants_of(reference)]
        for place in others
    ]
    owners = [place for place, listed in zip(others, variants, strict=True) for _ in listed]
    average = np.zeros((len(accelerators), len(owners)))
    average[owners, range(len(owners))] = [1 / len(listed) for listed in variants for _ in listed]
    targets = [_target(*pair, regime, *task) for task in tasks for listed in variants for pair in listed]
    each, spread = model.predict(targets)
    each, spread = each.reshape(len(tasks), -1), spread.reshape(len(tasks), len(owners), len(tasks), len(owners))
    means = each @ average.T
    covariances = np.einsum("ai,kilj,bj->kalb", average, spread, average)
    between = (each - means[:, owners]) ** 2 @ average.T
    for task, variances in enumerate(between):
        covariances[task, :, task, :] += np.diag(variances)
    return means, covariances


def configuration_variance(variances: Mapping[str, float]) -> float:
    """Return by how much the log speed of an accelerator differs between programs that are alike.

    Args:
        variances: Variances, as :func:`fit_ratios` returns them.
    """
    return statistics.fmean(_of_publishers(variances).values())


def _target(accelerator: str, reference: str, regime: str, task: str, mode: str) -> AcceleratorPair:
    return AcceleratorPair(
        source="",
        configuration="",
        task=task,
        mode=mode,
        regime=regime,
        accelerator=accelerator,
        reference=reference,
        mean=0.0,
        count=1,
        year=0,
    )


def selected(pairs: Sequence[AcceleratorPair], names: Iterable[str]) -> list[AcceleratorPair]:
    """Return at most :data:`MOST_PAIRS` pairs: those of some accelerators first, then others, evenly selected."""
    models = set(names)
    first = [pair for pair in pairs if models & {*variants_of(pair.accelerator), *variants_of(pair.reference)}]
    identities = set(map(id, first))
    first = evenly(first, MOST_PAIRS)
    return [*first, *evenly([pair for pair in pairs if id(pair) not in identities], MOST_PAIRS - len(first))]


def are_connected(pairs: Sequence[AcceleratorPair], accelerator: str, reference: str) -> bool:
    """Whether a chain of published pairs leads from one accelerator to another one; a single pair is a chain."""
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from((accelerator, reference))
    for pair in pairs:
        graph.add_edge(pair.accelerator, pair.reference)
    # A published name may stand for several variants.
    graph.add_edges_from((name, variant) for name in list(graph) for variant in variants_of(name) if variant != name)
    return networkx.has_path(graph, accelerator, reference)


def direct_pairs(pairs: Sequence[AcceleratorPair], accelerator: str, reference: str) -> list[AcceleratorPair]:
    """Return the published pairs of two accelerators, or of variants of them, as ratios of the first.

    Rows of a configuration that were compared with the same row may be compared through it. Pairs with one batch size
    come alone; only if there are none, one of different batch sizes is returned.
    """
    groups: dict[tuple[object, ...], list[AcceleratorPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.source, pair.task, pair.mode, pair.configuration, pair.count].append(pair)
    direct = []
    for group in groups.values():
        for one in variants_of(accelerator, with_name=True):
            for other in variants_of(reference, with_name=True):
                if one != other:
                    direct += _through_references(group, one, other)
    return direct


def _through_references(group: Sequence[AcceleratorPair], one: str, other: str) -> list[AcceleratorPair]:
    """Return the pairs of two accelerators in one configuration."""
    stars: dict[tuple[str, str], dict[str, AcceleratorPair]] = defaultdict(dict)
    for pair in group:
        star = stars[pair.reference, pair.reference_batch]
        star[pair.reference] = replace(pair, accelerator=pair.reference, batch=pair.reference_batch, mean=0.0)
        star[pair.accelerator] = pair
    pairs = [
        replace(star[one], reference=other, reference_batch=star[other].batch, mean=star[one].mean - star[other].mean)
        for star in stars.values()
        if one in star and other in star
    ]
    return [pair for pair in pairs if pair.has_one_batch] or pairs


def evenly(pairs: Sequence[_Pair], most: int) -> list[_Pair]:
    """Return at most some number of pairs, evenly selected."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[int(i * len(pairs) / most)] for i in range(most)]


class _Space:
    """Pairs, and how much of each effect any two of them share."""

    def __init__(self, pairs: Sequence[AcceleratorPair]) -> None:
        names = sorted({name for pair in pairs for name in (pair.accelerator, pair.reference)})
        self._kernels = _kernels(names)
        place = {name: number for number, name in enumerate(names)}
        self._sides: Array = np.array([(place[p.accelerator], place[p.reference]) for p in pairs]).reshape(-1, 2)
        self._batch: Array = np.array([pair.log_batch for pair in pairs])
        architecture = {
            (p.task, p.mode): program_of_run(f"[mode={p.mode},task={p.task}]", PUBLISHED).architecture for p in pairs
        }
        self._shared: dict[str, Array] = {
            "all": np.zeros(len(pairs), dtype=int),
            "regime": as_numbers([pair.regime for pair in pairs]),
            "mode": as_numbers([pair.mode for pair in pairs]),
            "architecture": as_numbers([(architecture[pair.task, pair.mode], pair.regime) for pair in pairs]),
            "task": as_numbers([(pair.task, pair.mode, pair.regime) for pair in pairs]),
        }

    def covariance(self, terms: Mapping[tuple[str, str], float], rows: slice, columns: slice) -> Array:
        """Return the covariance of effects with these variances, for some of the pairs with others (n, m)."""
        sums: dict[str, Array] = {}
        for (effect, shared), variance in terms.items():
            numbers = self._shared[shared]
            own = variance * (numbers[rows, None] == numbers[None, columns])
            sums[effect] = sums[effect] + own if effect in sums else own
        total: Array = np.sum([own * self._differences(effect, rows, columns) for effect, own in sums.items()], axis=0)
        return total

    def _differences(self, effect: str, rows: slice, columns: slice) -> Array:
        """Return the covariance (n, m) of unit variance of the effects on pairs."""
        if effect == "batch":
            return np.outer(self._batch[rows], self._batch[columns])
        kernel, (a, r), (b, s) = self._kernels[effect], self._sides[rows].T, self._sides[columns].T
        result: Array = kernel[a[:, None], b] - kernel[a[:, None], s] - kernel[r[:, None], b] + kernel[r[:, None], s]
        return result


def as_numbers(values: Sequence[object]) -> Array:
    """Return values as numbers (n,): equal ones have the same."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=int)


def variants_of(name: str, *, with_name: bool = False) -> tuple[str, ...]:
    """Return the models with known properties that a name of the catalogue stands for; itself if it is one.

    Args:
        name: Name of an entry.
        with_name: Whether the name itself is included: tables use it, too.
    """
    entry = find_accelerator(name)
    listed = tuple(v for v in (entry.variants if entry else ()) if (m := find_accelerator(v)) and features_of(m))
    return tuple(dict.fromkeys((name, *listed))) if with_name else listed or (name,)


def _kernels(names: Sequence[str]) -> dict[str, Array]:
    """Return the covariances (n, n) of unit variance of the effects of accelerators.

    A published name may stand for several variants: their mean.
    """
    variants = {name: variants_of(name) for name in names}
    models = sorted({variant for listed in variants.values() for variant in listed})
    mean = np.array([[(model in variants[name]) / len(variants[name]) for model in models] for name in names])
    rates = np.array([rates_of(model) for name in models if (model := find_accelerator(name)) is not None])
    # Accelerators are similar whose rates differ by a factor of four at most, and whose tensor cores by one generation.
    scaled = rates / (2.0, 2.0, 2.0, 2.0, 1.0)
    distances = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).sum(axis=2)
    kernels = {"rates": rates @ rates.T, "similar": np.exp(-0.5 * distances), "model": np.eye(len(models))}
    return {effect: mean @ kernel @ mean.T for effect, kernel in kernels.items()}


def rates_of(model: AcceleratorModel) -> tuple[float, ...]:
    """Return the rates of an accelerator as logarithms to the base 2, and the generation of its tensor cores.

    The rates are those of memory, float32, float32 with TF32 where the accelerator has it, and 16-bit floats.
    """
    generation, short, plain, bandwidth = features_of(model)
    short, plain, bandwidth = 2 * (short + bandwidth), 2 * (plain + bandwidth), 2 * bandwidth
    stated = model.flops.get("tfloat32")
    tf32 = math.log2(stated) if stated else short - 1 if generation >= _WITH_TF32 else plain
    return bandwidth, plain, max(plain, tf32), short, generation


class _Noise:
    """Noise of rows and of configurations: pairs share that of a common reference."""

    def __init__(self, pairs: Sequence[AcceleratorPair]) -> None:
        keys = [(pair.source, pair.task, pair.mode, pair.configuration) for pair in pairs]
        rows, configurations = [], []
        for key, pair in zip(keys, pairs, strict=True):
            rows += [
                (key, pair.count, pair.accelerator, pair.batch),
                (key, pair.count, pair.reference, pair.reference_batch),
            ]
            configurations += [(key, pair.accelerator), (key, pair.reference)]
        self.row = 2 * half_shared(rows)
        self.configuration = 2 * half_shared(configurations)
        self._publishers = [pair.publisher for pair in pairs]

    def covariance(self, variances: Mapping[str, float]) -> Array:
        """Return the covariance (n, n) of the noise."""
        of_publishers = _of_publishers(variances)
        # Nobody knows how an unknown publisher measures: it has the largest variance.
        own = np.sqrt([of_publishers.get(publisher, max(of_publishers.values())) for publisher in self._publishers])
        total: Array = variances[ROW] * self.row + self.configuration * np.outer(own, own)
        return total + _JITTER * np.eye(len(own))


def _of_publishers(variances: Mapping[str, float]) -> dict[str, float]:
    """Return the variance of a configuration by publisher."""
    prefix = f"{CONFIGURATION} "
    return {name.removeprefix(prefix): value for name, value in variances.items() if name.startswith(prefix)}
