"""Weights of the sizes and element types of a workload's indicators.

A prediction is an average over these, so they should depend on the knowledge base as little as possible: sizes that
ship with the program always count equally; other sizes are weighted by the information about them. Names and the order
of blocks have no influence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from knowledge.estimate.amplitudes import Amplitudes
from knowledge.estimate.evidence import Contrast, Machine
from knowledge.estimate.kernel import PARTS
from knowledge.estimate.workloads import Workload


def label_shares(
    contrasts: Sequence[Contrast], workload: Workload, amplitudes: Amplitudes, machine: Machine
) -> dict[tuple[str, str], float]:
    """Return the weight of each indicator, by label and family; they sum to 1, or there are none.

    A family counts only if versions were compared at it. Its weight is divided evenly among its sizes and element types
    that ship with the program for this framework and device. If none ships, it is divided among the compared ones in
    proportion to the information about them, so a block of a busy machine has little influence.

    Args:
        contrasts: Contrasts of one framework and device.
        workload: Weights of families.
        amplitudes: Amplitudes of the framework and device; they have scales for the shipped labels.
        machine: Machine that the prediction is for.
    """
    compared: dict[str, dict[str, list[Contrast]]] = {}
    for c in contrasts:
        counts = not workload.backends or c.backend in workload.backends
        if counts and c.side.version != c.reference.version and workload.weight_of(c.label, c.family) > 0:
            compared.setdefault(c.family, {}).setdefault(c.label, []).append(c)
    total = sum(workload.weights[family] for family in compared)
    shares: dict[tuple[str, str], float] = {}
    for family, labels in sorted(compared.items()):
        shipped = [la for la in amplitudes.scales if la.startswith(f"{family}@") and workload.weight_of(la, family) > 0]
        weights = dict.fromkeys(sorted(shipped), 1.0) or {
            label: _information(members, amplitudes, machine) for label, members in sorted(labels.items())
        }
        shares |= {
            (label, family): workload.weights[family] / total * weight / sum(weights.values())
            for label, weight in weights.items()
        }
    return shares


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
        "machine": measured.identity != machine.identity,
    }
    effects = ("framework", "release")
    # Effects of both versions of the contrast, on both machines.
    return 4 * sum(
        variance
        for (effect, _, shared), variance in zip(PARTS, amplitudes.parts, strict=True)
        if effect in effects and differs[shared]
    )
