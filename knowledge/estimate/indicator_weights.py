"""Which sizes and element types of its indicators a workload counts, and how much each.

A prediction is of these, so what a knowledge base holds must not decide about them more than it knows: sizes that ship
with the program count whatever else was measured, and of others each counts by what is known of it. Names and the order
of blocks have no part in it.
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
    """Return the weight of each indicator that counts, by label and family; they sum to 1, or there are none.

    Only families count of which versions were compared. A family's weight is shared evenly by its sizes and element
    types that ship with the program for this framework and device. Where none ships, each that was compared has a
    weight in proportion to the information on it: a block of a busy machine takes little from what is known better.

    Args:
        contrasts: What was compared, of one framework and device.
        workload: Weights of families.
        amplitudes: Of the framework and device; labels that ship have a scale.
        machine: Where the prediction is for.
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
            label: _information(found, amplitudes, machine) for label, found in sorted(labels.items())
        }
        shares |= {
            (label, family): workload.weights[family] / total * weight / sum(weights.values())
            for label, weight in weights.items()
        }
    return shares


def _information(contrasts: Iterable[Contrast], amplitudes: Amplitudes, machine: Machine) -> float:
    """Return what is known of an indicator: the precision of the best contrast of each block, summed over blocks.

    Not of all contrasts: many versions that were measured badly do not add up to one that was measured well.
    """
    best: dict[str, float] = {}
    for c in contrasts:
        variance = c.error**2 + amplitudes.label + amplitudes.arm + _of_other_machines(c.machine, amplitudes, machine)
        best[c.block] = max(best.get(c.block, 0.0), 1 / variance)
    return sum(best.values())


def _of_other_machines(measured: Machine, amplitudes: Amplitudes, machine: Machine) -> float:
    """Return the variance of what a contrast of one machine does not tell of another one."""
    differs = {
        "all": False,
        "kind": measured.kind != machine.kind,
        "machine": measured.identity != machine.identity,
    }
    effects = ("framework", "release")
    # What is a version's own, at both ends of a contrast and on both machines.
    return 4 * sum(
        variance
        for (effect, _, shared), variance in zip(PARTS, amplitudes.parts, strict=True)
        if effect in effects and differs[shared]
    )
