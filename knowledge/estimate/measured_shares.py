"""Shares of a whole model's time that its operations and its blocks take, as measured alone at the reference."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from knowledge.domain.model_part import PartOfModel
from knowledge.domain.observation import words_of
from knowledge.estimate.discrepancy import BLOCK_OF_MODEL, LEAST_COVERED, MODES, model_and_mode
from knowledge.estimate.workloads import BLOCKS, OPERATIONS

Seconds = Mapping[tuple[str, str], float]
"""Seconds per call at the reference of each block of observations, by block and label."""
SharesByModel = Mapping[str, Mapping[str, float]]
"""Share of the time of each part of a model, by its model and mode (:func:`model_key`) and by name."""


def model_key(model: str, mode: str) -> str:
    """Return the key of a whole model in one mode, such as ``gpt2 decode``."""
    return f"{model} {mode}"


def measured_shares(
    labels: Iterable[str],
    seconds: Seconds,
    parts_of: Callable[[str], Sequence[PartOfModel]],
    blocks_of: Callable[[str], Mapping[str, int]],
) -> dict[str, SharesByModel]:
    """Return the shares of the operations and of the blocks of whole models, by list of parts.

    Args:
        labels: Labels of runs of whole models with one framework and device.
        seconds: Seconds at the references, of the same framework and device.
        parts_of: Returns the operations of a whole model by the label of its run.
        blocks_of: Returns the number of each block of a model, by its name.
    """
    every = sorted(labels)
    names = sorted({model_and_mode(label) for label in every})
    tables = {
        OPERATIONS: _shares_of_operations(every, seconds, parts_of),
        BLOCKS: {
            model_key(model, mode): shares
            for model, mode in names
            if (shares := _shares_of_blocks(blocks_of(model), MODES.get(mode, mode), seconds))
        },
    }
    return {basis: shares for basis, shares in tables.items() if shares}


def mean_shares(every: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean share of each part; a part that is absent has none of the time.

    Args:
        every: Shares of which each sums to 1; at least one.
    """
    names = sorted({name for shares in every for name in shares})
    return {name: statistics.fmean(shares.get(name, 0.0) for shares in every) for name in names}


def _shares_of_operations(
    labels: Sequence[str], seconds: Seconds, parts_of: Callable[[str], Sequence[PartOfModel]]
) -> dict[str, dict[str, float]]:
    """Return the mean share of each indicator over the sizes of a model, and the blocks that measured it.

    Operations with few FLOP and bytes were not measured alone. Together they have what the measured ones leave of the
    model's time; that is nothing where a compiler merges operations, so that alone they take longer than the model.
    """
    measured: dict[str, set[str]] = defaultdict(set)
    for block, label in seconds:
        measured[label].add(block)
    listed: dict[str, list[dict[str, float]]] = defaultdict(list)
    for label in labels:
        parts = parts_of(label)
        for block in sorted(set().union(*(measured[part.label] for part in parts))):
            timed = [part for part in parts if (block, part.label) in seconds]
            covered = sum(part.calls * part.flops for part in timed)
            if covered >= LEAST_COVERED * sum(part.calls * part.flops for part in parts):
                times: dict[str, float] = defaultdict(float)
                for part in timed:
                    times[part.indicator] += part.calls * seconds[block, part.label]
                # The rest of the model's time is that of the other operations, by their bytes: they are memory-bound.
                rest = max(0.0, seconds.get((block, label), 0.0) - sum(times.values()))
                others = [part for part in parts if (block, part.label) not in seconds]
                total = sum(part.calls * part.bytes for part in others)
                for part in others:
                    times[part.indicator] += rest * part.calls * part.bytes / total if total else 0.0
                listed[model_key(*model_and_mode(label))].append(_normalised(times))
    return {key: mean_shares(every) for key, every in sorted(listed.items())}


def _shares_of_blocks(counts: Mapping[str, int], mode: str, seconds: Seconds) -> dict[str, float]:
    """Return the share of each block of a model, from the mean time of its sizes; none if one was not measured."""
    times: dict[str, list[float]] = {name: [] for name in counts}
    for (_, label), value in seconds.items():
        words = words_of(label)
        if label.startswith(f"{BLOCK_OF_MODEL}@") and words["mode"] == mode and words["block"] in counts:
            times[words["block"]].append(value)
    if not all(times.values()):
        return {}
    return _normalised({name: counts[name] * statistics.fmean(values) for name, values in times.items()})


def _normalised(times: Mapping[str, float]) -> dict[str, float]:
    total = sum(times.values())
    return {name: time / total for name, time in sorted(times.items())} if total else {}
