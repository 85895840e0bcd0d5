"""How much faster one accelerator is than another at a workload: a Gaussian process over published pairs.

The log speed of an accelerator at a task is a sum of independent effects: one that is linear in each of its properties
(memory bandwidth, operations per byte with and without tensor cores), one that similar accelerators share, and one of
its own; each has a part that all tasks share, one for training and inference, and one for each task. A pair is a
difference of two such speeds. Each row has noise of its own, and a pair of rows with different batch sizes more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from knowledge.estimate.accelerator_pairs import AcceleratorPair
from knowledge.estimate.evidence import features_of
from knowledge.estimate.gain_model import equal, half_shared
from knowledge.estimate.interface import NORMAL_QUANTILE
from knowledge.hardware.accelerators import find_accelerator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

EFFECTS = tuple((effect, shared) for effect in ("linear", "similar", "model") for shared in ("all", "mode", "task"))
"""Effects of an accelerator, and the tasks that share them."""
NOISE, BATCH = "row", "batch"
_TYPICAL = 0.1**2
_LOOSE = 2.5
MOST_PAIRS = 800
"""Maximum number of pairs, evenly selected, that variances are fitted to; predictions use all pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorRatio:
    """A predicted ratio of speed of two accelerators.

    Attributes:
        speedup: How much faster the accelerator is than the reference.
        low: Lower end of the interval.
        high: Upper end.
        pairs: Published pairs of just these accelerators at the tasks: those of one batch size first, then the newest.
        related: Number of pairs of any accelerators with which the model was conditioned.
    """

    speedup: float
    low: float
    high: float
    pairs: tuple[AcceleratorPair, ...]
    related: int


def fit_ratios(pairs: Sequence[AcceleratorPair]) -> dict[str, float]:
    """Return the variance of each effect, and of the noise, that maximise the marginal likelihood."""
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    pairs = _evenly(pairs)
    parts = np.stack([*(_covariance(pairs, pairs, effect) for effect in EFFECTS), _noise(pairs), _batch_noise(pairs)])
    means = np.array([pair.mean for pair in pairs])

    def objective(logs: Array) -> tuple[float, Array]:
        amplitudes = np.exp(logs)
        total = np.tensordot(amplitudes, parts, axes=1) + 1e-9 * np.eye(len(means))
        factor = cho_factor(total, lower=True, check_finite=False)
        weights = cho_solve(factor, means, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(means)), check_finite=False) - np.outer(weights, weights)
        value = 0.5 * means @ weights + np.log(np.diag(factor[0])).sum()
        away = (logs - math.log(_TYPICAL)) / _LOOSE
        gradient = 0.5 * amplitudes * np.einsum("kij,ij->k", parts, inverse) + away / _LOOSE
        return float(value + 0.5 * away @ away), gradient

    start = np.full(len(parts), math.log(_TYPICAL))
    bounds = [(-16.0, 3.0)] * len(EFFECTS) + [(math.log(0.01**2), 0.0), (-16.0, 0.0)]
    fitted = np.exp(minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x)
    names = [*(" ".join(effect) for effect in EFFECTS), NOISE, BATCH]
    return {name: float(value) for name, value in zip(names, fitted, strict=True)}


def predict_ratio(
    pairs: Sequence[AcceleratorPair], variances: Mapping[str, float], targets: Sequence[AcceleratorPair]
) -> tuple[Array, Array]:
    """Predict the log speed-ups of pairs from others, without the noise of a single row.

    Args:
        pairs: The known pairs.
        variances: Variances, as :func:`fit_ratios` returns them.
        targets: Pairs whose means are ignored.

    Returns:
        Means (n,) and covariances (n, n).
    """
    import numpy as np

    def total(rows: Sequence[AcceleratorPair], columns: Sequence[AcceleratorPair]) -> Array:
        parts = [variances[" ".join(effect)] * _covariance(rows, columns, effect) for effect in EFFECTS]
        result: Array = np.sum(parts, axis=0)
        return result

    own = total(pairs, pairs) + variances[NOISE] * _noise(pairs) + variances[BATCH] * _batch_noise(pairs)
    own += 1e-9 * np.eye(len(pairs))
    cross = total(targets, pairs)
    solved = np.linalg.solve(own, np.column_stack([[pair.mean for pair in pairs], cross.T]))
    means: Array = cross @ solved[:, 0]
    covariances: Array = total(targets, targets) - cross @ solved[:, 1:]
    return means, covariances


def accelerator_ratio(
    pairs: Sequence[AcceleratorPair],
    variances: Mapping[str, float],
    *,
    accelerator: str,
    reference: str,
    tasks: Sequence[tuple[str, str]],
) -> AcceleratorRatio:
    """Predict how much faster an accelerator is than another one, on the mean of some tasks.

    Args:
        pairs: The published pairs.
        variances: Variances, as :func:`fit_ratios` returns them.
        accelerator: Name in the catalogue.
        reference: Name in the catalogue.
        tasks: Task and mode of each part of the workload.
    """
    import numpy as np

    # A name may stand for several variants: any of them is meant.
    variants = [(one, other) for one in variants_of(accelerator) for other in variants_of(reference)]
    targets = [
        AcceleratorPair(
            source="",
            configuration="",
            task=task,
            mode=mode,
            accelerator=one,
            reference=other,
            mean=0.0,
            count=1,
            year=0,
        )
        for one, other in variants
        for task, mode in tasks
    ]
    means, covariance = predict_ratio(pairs, variances, targets)
    weights = np.kron(np.eye(len(variants)), np.full((1, len(tasks)), 1 / len(tasks)))
    by_variant = weights @ means
    mean = float(by_variant.mean())
    variance = float(np.diag(weights @ covariance @ weights.T).mean()) + float(by_variant.var())
    half = NORMAL_QUANTILE * math.sqrt(max(0.0, variance))
    direct = [pair for pair in direct_pairs(pairs, accelerator, reference) if (pair.task, pair.mode) in tasks]
    return AcceleratorRatio(
        speedup=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        pairs=tuple(sorted(direct, key=lambda pair: (not pair.has_one_batch, -pair.year, *astuple(pair)))),
        related=len(pairs),
    )


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


def _evenly(pairs: Sequence[AcceleratorPair]) -> Sequence[AcceleratorPair]:
    step = len(pairs) / MOST_PAIRS
    return pairs if step <= 1 else [pairs[int(i * step)] for i in range(MOST_PAIRS)]


def _covariance(rows: Sequence[AcceleratorPair], columns: Sequence[AcceleratorPair], effect: tuple[str, str]) -> Array:
    """Return the covariance (rows, columns) of unit variance of an effect."""
    import numpy as np

    kind, shared = effect
    names = sorted({name for pair in (*rows, *columns) for name in (pair.accelerator, pair.reference)})
    place = {name: number for number, name in enumerate(names)}
    # A published name may stand for several variants: their mean.
    variants = {name: variants_of(name) for name in names}
    models = sorted({variant for listed in variants.values() for variant in listed})
    mean = np.array([[(model in variants[name]) / len(variants[name]) for model in models] for name in names])
    kernel = mean @ _kernel(models, kind) @ mean.T

    def difference(pairs: Sequence[AcceleratorPair]) -> Array:
        signs = np.zeros((len(pairs), len(names)))
        for number, pair in enumerate(pairs):
            signs[number, place[pair.accelerator]] += 1.0
            signs[number, place[pair.reference]] -= 1.0
        return signs

    total: Array = difference(rows) @ kernel @ difference(columns).T
    if shared != "all":
        keys = [p.mode if shared == "mode" else f"{p.task} {p.mode}" for p in (*rows, *columns)]
        total *= equal(keys)[: len(rows), len(rows) :]
    return total


def variants_of(name: str, *, with_name: bool = False) -> tuple[str, ...]:
    """Return the models with known properties that a name of the catalogue stands for; itself if it is one.

    Args:
        name: Name of an entry.
        with_name: Whether the name itself is included: tables use it, too.
    """
    entry = find_accelerator(name)
    listed = tuple(v for v in (entry.variants if entry else ()) if (m := find_accelerator(v)) and features_of(m))
    return tuple(dict.fromkeys((name, *listed))) if with_name else listed or (name,)


def _kernel(names: Sequence[str], kind: str) -> Array:
    """Return the covariance (n, n) of unit variance of an effect of accelerators."""
    import numpy as np

    if kind == "model":
        return np.eye(len(names))
    models = [find_accelerator(name) for name in names]
    features = np.array([features_of(model) if model is not None else () for model in models])
    if kind == "linear":
        centred: Array = features - features.mean(axis=0)
        return centred @ centred.T
    distances = ((features[:, None, :] - features[None, :, :]) ** 2).sum(axis=2)
    similar: Array = np.exp(-0.5 * distances)
    return similar


def _noise(pairs: Sequence[AcceleratorPair]) -> Array:
    """Return the covariance (n, n) of the noise of rows; pairs of one configuration share that of the reference."""
    keys = [(pair.source, pair.task, pair.mode, pair.configuration, pair.count) for pair in pairs]
    effects = [
        (key, *effect)
        for key, pair in zip(keys, pairs, strict=True)
        for effect in ((pair.accelerator, pair.batch), (pair.reference, pair.reference_batch))
    ]
    return 2 * half_shared(effects)


def _batch_noise(pairs: Sequence[AcceleratorPair]) -> Array:
    """Return the covariance (n, n) of what different batch sizes do to a pair."""
    import numpy as np

    return np.diag([0.0 if pair.has_one_batch else 1.0 for pair in pairs])
