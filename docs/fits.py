"""Writes `knowledge/data/fits.json`: variances fitted to the shipped observations, and the usual ones of the rest.

    python docs/fits.py

Each framework has variances of whole programs, and of single operations, on each kind of device with enough ratios. The
usual ones are geometric means of the fitted ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.domain.observation import PUBLISHED
from knowledge.estimate.accelerator_ratio import fit_ratios
from knowledge.estimate.cases import is_program
from knowledge.estimate.gain_fit import fit_variances
from knowledge.estimate.gain_terms import Variances
from knowledge.estimate.machine_times import PublishedTimes
from knowledge.estimate.model_cache import (
    ACCELERATORS,
    LEVELS,
    OPERATIONS,
    SCALING,
    USUAL,
    framework_contrasts,
    frameworks_of,
    merged,
    variances_record,
)
from knowledge.estimate.programs import Program, program_of_run
from knowledge.estimate.scaling_model import ScalingModel, fit_scaling
from knowledge.estimate.time_levels import fit_levels
from knowledge.evidence.accelerator_pairs import accelerator_pairs
from knowledge.evidence.accelerator_rows import AcceleratorRow, load_rows
from knowledge.evidence.block_evidence import BlockEvidence, load_evidence
from knowledge.evidence.contrasts import Contrast
from knowledge.evidence.scaling_pairs import scaling_pairs
from knowledge.evidence.timm import TIMM_FAMILY, timm_contrasts, timm_tables
from knowledge.store.engine import open_knowledge_base

TARGET = Path(str(files("knowledge.data"))) / "fits.json"
FEWEST = 40
"""Fewest ratios to which variances are fitted."""
Ratio = TypeVar("Ratio")
MOST = 800
"""Most ratios to which they are fitted, evenly selected: the time grows with the third power."""


def program_of(c: Contrast) -> Program:
    """Return the program of a ratio."""
    return program_of_run(c.label, c.family, flops=c.flops, bytes=c.bytes)


def chosen(evidence: BlockEvidence, framework: str, device: str, *, of_operations: bool) -> list[Contrast]:
    """Return the ratios that variances are fitted to; of timm, those of single models: medians hide how they differ."""
    contrasts = framework_contrasts(evidence, framework, device)
    listed = merged(c for c in contrasts if is_program(c) != of_operations)
    rest = [c for c in listed if TIMM_FAMILY not in c.label]
    return [*_evenly(rest, MOST), *(_single_models(device, MOST - len(rest)) if len(rest) < len(listed) else ())]


def _single_models(device: str, count: int) -> list[Contrast]:
    """Return about a number of ratios of evenly selected models of timm."""
    by_model = [[c for c in timm_contrasts(name) if c.label.endswith(device)] for name in timm_tables().models]
    models = max(1, count * len(by_model) // max(1, sum(map(len, by_model))))
    return [c for ratios in _evenly([ratios for ratios in by_model if ratios], models) for c in ratios]


def _evenly(listed: Sequence[Ratio], count: int) -> list[Ratio]:
    step = max(1.0, len(listed) / max(1, count))
    return [listed[int(i * step)] for i in range(min(len(listed), count))]


def usual(fitted: Sequence[Variances]) -> Variances:
    """Return the geometric means of variances; settings have no scales, and publishers no variances of their own."""

    def mean(values: Sequence[float]) -> float:
        return math.exp(sum(map(math.log, values)) / len(values))

    terms = {term: mean([own.terms[term] for own in fitted]) for term in fitted[0].terms}
    sources, software = (
        {"": max(variance for own in every for variance in own.values())} if any(every) else {}
        for every in ([own.sources for own in fitted], [own.software for own in fitted])
    )
    return Variances(
        terms=terms,
        label=mean([own.label for own in fitted]),
        arm=mean([own.arm for own in fitted]),
        noise=mean([own.noise for own in fitted]),
        sources=sources,
        software=software,
    )


def times_variances(rows: Sequence[AcceleratorRow]) -> dict[str, dict[str, float]]:
    """Return the variances of the models of times of machines: of accelerators, of their numbers, and of levels."""
    pairs, numbers = accelerator_pairs(rows), scaling_pairs(rows)
    ratios, scaling = fit_ratios(pairs), fit_scaling(numbers)
    published = PublishedTimes(
        rows=rows, pairs=pairs, scaling=ScalingModel(numbers, scaling), variances=ratios, levels={}
    )
    return {ACCELERATORS: ratios, SCALING: scaling, LEVELS: fit_levels(published.quality_priors())}


def main() -> None:
    """Fit and write."""
    with open_knowledge_base("sqlite://") as store:
        evidence, rows = load_evidence(store), load_rows(store)
    records: dict[str, Any] = {}
    every = frameworks_of(evidence)
    for of_operations, suffix in ((False, ""), (True, f"/{OPERATIONS}")):
        for device in ("cpu", "cuda"):
            fitted = {}
            for framework in (name for name, where in every if where == device):
                contrasts = chosen(evidence, framework, device, of_operations=of_operations)
                if len(contrasts) >= FEWEST and any(c.side.version != c.reference.version for c in contrasts):
                    fitted[framework] = fit_variances(contrasts, program_of, device=device)
                    published = sum(c.family == PUBLISHED for c in contrasts)
                    print(f"{framework}/{device}{suffix}: {len(contrasts)} ratios, {published} published", flush=True)
            records |= {f"{name}/{device}{suffix}": variances_record(own) for name, own in fitted.items()}
            if fitted:
                records[f"{USUAL}/{device}{suffix}"] = variances_record(usual(list(fitted.values())))
    # Nobody measured single operations on accelerators with several releases.
    records.setdefault(f"{USUAL}/cuda/{OPERATIONS}", records[f"{USUAL}/cuda"])
    records |= times_variances(rows)
    rounded = json.loads(json.dumps(records), parse_float=lambda text: float(f"{float(text):.6g}"))
    TARGET.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(records)} entries")


if __name__ == "__main__":
    main()
