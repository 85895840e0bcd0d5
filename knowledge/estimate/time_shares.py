"""Shares of a workload's time of the sizes and element types of its indicators.

A prediction is a sum over these, so they should depend on the knowledge base as little as possible: sizes that
ship with the program always count equally; other sizes are weighted by the information about them. Names and the order
of blocks have no influence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from knowledge.domain.observation import BENCHMARK
from knowledge.estimate.amplitudes import Amplitudes
from knowledge.estimate.evidence import Contrast, Machine
from knowledge.estimate.kernel import PARTS
from knowledge.estimate.measured_shares import mean_shares, model_key
from knowledge.estimate.workloads import (
    BLOCKS,
    MODELS,
    OPERATIONS,
    PROFILE,
    TASKS,
    TimePart,
    Workload,
    operation_parts,
)

USUAL_TYPE = "float32"
"""Element type of operations of which a trace does not name it."""
_NO_PARAMETERS = ("indicator", "dtype")


class TimeShares(NamedTuple):
    """Shares of a workload's time.

    Attributes:
        basis: List of the workload's parts that they come from, such as ``operations``; empty if nothing was compared.
            In a ``profile``, shares of parts that were not compared are included.
        shares: Share of each indicator, by label and family; they sum to 1, or there are none.
        exact: In a ``profile``, the share of parts that were measured at these sizes.
        related: In a ``profile``, the share of parts that were measured at other sizes.
        refused: Whether there are no shares because what was measured does not predict whole models.
    """

    basis: str
    shares: dict[tuple[str, str], float]
    exact: float = 0.0
    related: float = 0.0
    refused: bool = False


def time_shares(
    contrasts: Sequence[Contrast], workload: Workload, amplitudes: Amplitudes, machine: Machine
) -> TimeShares:
    """Return the shares of the time, by the first list of parts of which versions were compared.

    Lists that do not predict whole models with this framework do not count.

    A part counts only if versions were compared at it. Its share is divided evenly among its sizes and element types
    that ship with the program for this framework and device. If none ships, it is divided among the compared ones in
    proportion to the information about them, so a block of a busy machine has little influence.

    Args:
        contrasts: Contrasts of one framework and device.
        workload: The workload.
        amplitudes: Amplitudes of the framework and device; they have scales for the shipped labels.
        machine: Machine that the prediction is for.
    """
    rows = [
        c
        for c in contrasts
        # A project's own benchmark is no code of a backend: it counts for every workload.
        if (not workload.backends or c.backend in workload.backends or c.family == BENCHMARK)
        and c.side.version != c.reference.version
    ]
    refused = False
    for basis in workload.parts:
        parts = parts_of(workload, basis, amplitudes)
        if basis == TASKS:
            times = published_shares(workload, contrasts)
            return times if times.shares else TimeShares("", {}, refused=refused)
        is_refused = workload.discrepancy(basis) in amplitudes.refused
        if basis == PROFILE:
            times = TimeShares(basis, {}, refused=bool(rows))
            return _profiled_shares(parts, contrasts) if rows and not is_refused else times
        compared = [(part, [c for c in rows if part.matches(c.label, c.family)]) for part in parts]
        total = sum(part.share for part, members in compared if members)
        shares: dict[tuple[str, str], float] = {}
        for part, members in compared:
            if not members:
                continue
            shipped = [
                label
                for label in amplitudes.scales
                if label.startswith(f"{part.indicator}@") and part.matches(label, part.indicator)
            ]
            by_label: dict[str, list[Contrast]] = {}
            for c in members:
                by_label.setdefault(c.label, []).append(c)
            weights = dict.fromkeys(sorted(shipped), 1.0) or {
                label: _information(listed, amplitudes, machine) for label, listed in sorted(by_label.items())
            }
            for label, weight in weights.items():
                key = label, part.indicator
                shares[key] = shares.get(key, 0.0) + part.share / total * weight / sum(weights.values())
        if shares and not is_refused:
            return TimeShares(basis, shares)
        refused = refused or bool(shares)
    return TimeShares("", {}, refused=refused)


def parts_of(workload: Workload, basis: str, amplitudes: Amplitudes) -> tuple[TimePart, ...]:
    """Return the parts of a workload with their shares of the time.

    Operations and blocks have the shares that they take of the workload's models, as measured with the framework.

    Args:
        workload: The workload.
        basis: List of its parts.
        amplitudes: Amplitudes of the framework and device.
    """
    parts, table = workload.parts[basis], amplitudes.shares.get(basis, {})
    models = [p.parameters for p in workload.parts.get(MODELS, ())]
    keys = [model_key(p["model"], p["mode"]) for p in models if "model" in p and "mode" in p]
    measured = [table[key] for key in keys if key in table]
    if not measured:
        return parts
    shares = mean_shares(measured)
    if basis == OPERATIONS:
        return parts or operation_parts(shares)
    if basis == BLOCKS and all(p.parameters["block"] in shares for p in parts):
        total = sum(shares[p.parameters["block"]] for p in parts)
        return tuple(replace(p, share=shares[p.parameters["block"]] / total) for p in parts)
    return parts


def published_shares(workload: Workload, contrasts: Sequence[Contrast]) -> TimeShares:
    """Return the shares of published tasks, each with one label: no batch, number of accelerators or unit of its own.

    The Gaussian process predicts this label from those of the task, with what they differ by as uncertainty. A task
    counts if anything was compared at it: what its settings do is known even if no version was.

    Args:
        workload: The workload.
        contrasts: Contrasts of one framework and device.
    """
    own = [c for c in contrasts if not workload.backends or c.backend in workload.backends]
    shares = {}
    for part in workload.parts.get(TASKS, ()):
        if any(part.matches(c.label, c.family) for c in own):
            words = ",".join(f"{name}={value}" for name, value in sorted(part.parameters.items()))
            shares[f"{part.indicator}@1[{words}]", part.indicator] = part.share
    total = sum(shares.values())
    return TimeShares(TASKS, {key: share / total for key, share in shares.items()})


def share_of_parts(workload: Workload, parts: Sequence[Mapping[str, str]], amplitudes: Amplitudes | None) -> float:
    """Return the share of a workload's time of some parts of it; the largest one, if several lists contain them.

    Args:
        workload: The workload.
        parts: Indicators with their parameters and their ``dtype``. What a part does not name is not compared, except
            that the time of a workload without an element type is of :data:`USUAL_TYPE`.
        amplitudes: Amplitudes of the framework that they run on, with the measured shares of operations; none if it was
            not measured.
    """
    shares = [0.0]
    for basis, listed in workload.parts.items():
        own = parts_of(workload, basis, amplitudes) if amplitudes else listed
        shares.append(sum(part.share for part in own if any(_stands_for(part, other) for other in parts)))
    return min(1.0, max(shares))


def _stands_for(part: TimePart, other: Mapping[str, str]) -> bool:
    if part.indicator != other["indicator"] or other.get("dtype", part.dtype or USUAL_TYPE) != (
        part.dtype or USUAL_TYPE
    ):
        return False
    return all(part.parameters.get(name) == value for name, value in other.items() if name not in _NO_PARAMETERS)


def _profiled_shares(parts: Sequence[TimePart], contrasts: Sequence[Contrast]) -> TimeShares:
    """Return the share of each part of a profile, by its exact label.

    A part that was not compared has a label of its own: the Gaussian process predicts it from other sizes of its
    indicator, from other indicators if there are none, and with the uncertainty of both.
    """
    measured: dict[tuple[str, str, str], str] = {}
    versions: dict[str, str] = {}
    for c in contrasts:
        name, _, rest = c.label.partition("[")
        sizes, _, rest = rest.partition("]")
        words = ",".join(word for word in sizes.split(",") if not word.startswith("algorithm="))
        measured[c.family, words, rest.split()[0]] = c.label
        versions[c.family] = max(versions.get(c.family, name), name, key=lambda text: (len(text), text))
    shares: dict[tuple[str, str], float] = {}
    exact = related = 0.0
    for part in parts:
        words = ",".join(f"{name}={value}" for name, value in sorted(part.parameters.items()))
        name = versions.get(part.indicator, part.indicator)
        # A trace without element types: the usual one, or another one that was measured at this size.
        types = [part.dtype] if part.dtype else sorted(t for i, w, t in measured if (i, w) == (part.indicator, words))
        dtype = USUAL_TYPE if USUAL_TYPE in types or not types else types[0]
        key = part.indicator, words, dtype
        exact += part.share if key in measured else 0.0
        related += part.share if key not in measured and part.indicator in versions else 0.0
        label = measured.get(key, f"{name}[{words}] {dtype}")
        shares[label, part.indicator] = shares.get((label, part.indicator), 0.0) + part.share
    return TimeShares(PROFILE, shares, exact, related)


def _information(contrasts: Iterable[Contrast], amplitudes: Amplitudes, machine: Machine) -> float:
    """Return the information about an indicator: the precision of the best contrast of each block, summed over blocks.

    Only the best contrast counts: many imprecise measurements do not replace a precise one.
    """
    best: dict[str, float] = {}
    for c in contrasts:
        variance = c.error**2 + amplitudes.label + amplitudes.arm + _of_other_machines(c.machine, amplitudes, machine)
        best[c.block] = max(best.get(c.block, 0.0), 1 / variance)
    return sum(best.values())


def _of_other_machines(measured: Machine, amplitudes: Amplitudes, machine: Machine) -> float:
    """Return the variance that a contrast has on another machine than its own."""
    differs = {
        "all": False,
        "kind": measured.kind != machine.kind,
        "similar": (measured.features or measured.kind) != (machine.features or machine.kind),
        "units": measured.has_matrix_units != machine.has_matrix_units,
        "model": measured.name != machine.name,
        "machine": measured.identity != machine.identity,
    }
    effects = ("framework", "release")
    # Effects of both versions of the contrast, on both machines.
    return 4 * sum(
        variance
        for (effect, _, shared), variance in zip(PARTS, amplitudes.parts, strict=True)
        if effect in effects and differs[shared]
    )
