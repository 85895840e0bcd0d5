"""Writes `knowledge/data/fits.json`: amplitudes fitted to the shipped observations, and the usual ones of the rest.

    python docs/fits.py

The usual amplitudes are the geometric means of the fitted ones; indicators and versions that were not measured have no
scale and no span of their own.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from knowledge.domain.model_part import PartOfModel
from knowledge.estimate.accelerator_pairs import load_pairs
from knowledge.estimate.accelerator_ratio import fit_ratios
from knowledge.estimate.amplitudes import Amplitudes, fit_amplitudes
from knowledge.estimate.discrepancy import (
    BLOCK_OF_MODEL,
    MACHINES,
    WHOLE_MODEL,
    Residual,
    discrepancy,
    misleads,
    of_settings,
    over_releases,
    over_settings,
    predictions_by_blocks,
    predictions_by_machines,
    predictions_by_models,
    predictions_by_operations,
    predictions_by_sizes,
    predictions_by_sizes_elsewhere,
    reference_seconds,
    relative_discrepancy,
)
from knowledge.estimate.evidence import Contrast
from knowledge.estimate.measured_shares import SharesByModel, mean_shares, measured_shares
from knowledge.estimate.model_cache import (
    ACCELERATORS,
    USUAL,
    USUAL_ON_ACCELERATORS,
    framework_contrasts,
    frameworks_of,
)
from knowledge.estimate.stored_evidence import load_evidence
from knowledge.estimate.task_discrepancy import task_discrepancies
from knowledge.estimate.workloads import BLOCKS, MODELS, OPERATIONS, SIZES
from knowledge.store.engine import open_knowledge_base
from pi_runners.model_parts import blocks_of_model, parts_of_run

TARGET = Path(str(files("knowledge.data"))) / "fits.json"


def usual(fitted: Sequence[Amplitudes]) -> Amplitudes:
    """Return the geometric means of amplitudes, and the commonest length."""

    def mean(values: Iterable[float]) -> float:
        logs = [math.log(value) for value in values]
        return math.exp(sum(logs) / len(logs))

    lengths = sorted(a.length for a in fitted)
    return Amplitudes(
        # Parts of the other kind of device are 0 in all of them.
        parts=tuple(mean(column) if all(column) else 0.0 for column in zip(*(a.parts for a in fitted), strict=True)),
        label=mean(a.label for a in fitted),
        arm=mean(a.arm for a in fitted),
        noise=mean(a.noise for a in fitted),
        length=lengths[len(lengths) // 2],
        scales={},
        setting_scales={},
        spans={},
        widening=mean(a.widening for a in fitted),
        setting_widening=mean(a.setting_widening for a in fitted),
        likelihood=0.0,
        discrepancies=usual_discrepancies([a.discrepancies for a in fitted]),
        shares=usual_shares([a.shares for a in fitted]),
    )


def on(device: str, fitted: Mapping[str, Amplitudes]) -> dict[str, Amplitudes]:
    """Return the amplitudes of one kind of device: ``cpu``, or accelerators."""
    return {key: a for key, a in fitted.items() if key.endswith("/cpu") == (device == "cpu")}


def usual_discrepancies(fitted: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the root of the mean square of each discrepancy over the frameworks that have it."""
    bases = sorted({basis for discrepancies in fitted for basis in discrepancies})
    values = {basis: [d[basis] for d in fitted if basis in d] for basis in bases}
    return {basis: math.sqrt(sum(v**2 for v in listed) / len(listed)) for basis, listed in values.items()}


def usual_shares(every: Sequence[Mapping[str, SharesByModel]]) -> dict[str, SharesByModel]:
    """Return the mean shares over the frameworks that have them, by list of parts and by model."""
    means: dict[str, SharesByModel] = {}
    for basis in sorted({basis for shares in every for basis in shares}):
        tables = [shares[basis] for shares in every if basis in shares]
        models = sorted({model for table in tables for model in table})
        means[basis] = {model: mean_shares([table[model] for table in tables if model in table]) for model in models}
    return means


def is_eager(key: str) -> bool:
    """Whether a framework runs each operation when it is called, without compiling a graph of several.

    Args:
        key: Framework and device.
    """
    return not key.startswith(("jax/", "onnxruntime", "tensorflow"))


def with_discrepancies(
    amplitudes: Amplitudes,
    contrasts: Sequence[Contrast],
    seconds: Mapping[tuple[str, str], float],
    parts: Mapping[str, Sequence[PartOfModel]],
) -> Amplitudes:
    """Return amplitudes with what whole models say of their framework: the discrepancies and the measured shares."""
    residuals = {
        OPERATIONS: predictions_by_operations(contrasts, seconds, parts.__getitem__),
        BLOCKS: predictions_by_blocks(contrasts, seconds, blocks_of_model),
        MODELS: predictions_by_models(contrasts),
        SIZES: residuals_of_sizes(contrasts),
    }
    elsewhere = over_settings(predictions_by_machines(contrasts))
    measured = {(c.block, c.label) for c in contrasts}
    shares = measured_shares(
        {c.label for c in contrasts if c.family == WHOLE_MODEL},
        {key: value for key, value in seconds.items() if key in measured},
        parts.__getitem__,
        blocks_of_model,
    )
    return replace(
        amplitudes,
        discrepancies={
            **{basis: discrepancy(over_releases(listed)) for basis, listed in residuals.items() if listed},
            **{
                of_settings(basis): relative_discrepancy(listed)
                for basis, every in residuals.items()
                if (listed := over_settings(every))
            },
            **({of_settings(MACHINES): relative_discrepancy(elsewhere)} if elsewhere else {}),
            **task_discrepancies(contrasts),
        },
        # A model that was measured is evidence for itself, however wide the interval is.
        refused=tuple(
            basis
            for basis, listed in residuals.items()
            if basis != SIZES and listed and misleads(over_releases(listed))
        ),
        shares=shares,
    )


def residuals_of_sizes(contrasts: Sequence[Contrast]) -> list[Residual]:
    """Return the residuals of models at other sizes.

    They are from one machine if releases were measured at two sizes there; else the difference of two machines is a
    part of them.
    """
    residuals = predictions_by_sizes(contrasts)
    has_releases = any(r.contrast.side.version != r.contrast.reference.version for r in residuals)
    return residuals if has_releases else [*residuals, *predictions_by_sizes_elsewhere(contrasts)]


def main() -> None:
    """Fit and write."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        evidence = load_evidence(store)
        models = list(store.observations(indicator=WHOLE_MODEL))
        blocks = {o.block for o in (*models, *store.observations(indicator=BLOCK_OF_MODEL))}
        pairs = load_pairs(store)
        seconds = reference_seconds(o for block in sorted(blocks) for o in store.observations(block=block))
    parts = {o.indicator.label: parts_of_run(o.indicator) for o in models}
    fitted: dict[str, Amplitudes] = {}
    for framework, device in frameworks_of(evidence):
        contrasts = framework_contrasts(evidence, framework, device)
        if any(c.side.version != c.reference.version for c in contrasts):
            fitted[f"{framework}/{device}"] = with_discrepancies(fit_amplitudes(contrasts), contrasts, seconds, parts)
    records: dict[str, Any] = {}
    for device, name in (("cpu", USUAL), ("accelerators", USUAL_ON_ACCELERATORS)):
        group = on(device, fitted)
        typical = usual(list(group.values()))
        if device == "cpu":
            everywhere = typical
        # Whole models were measured with this program on processors only: what they say holds for accelerators, too.
        typical = replace(
            typical,
            discrepancies={**everywhere.discrepancies, **typical.discrepancies},
            shares=everywhere.shares,
        )
        records[name] = asdict(typical)
        # A framework without whole models has the usual discrepancies of those that run operations in the same way.
        for key, a in group.items():
            alike = [o.discrepancies for other, o in group.items() if is_eager(other) == is_eager(key)]
            discrepancies = {**typical.discrepancies, **usual_discrepancies(alike), **a.discrepancies}
            shares = {basis: {**table, **a.shares.get(basis, {})} for basis, table in typical.shares.items()}
            records[key] = asdict(replace(a, discrepancies=discrepancies, shares=shares))
    records[ACCELERATORS] = fit_ratios(pairs)
    TARGET.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{TARGET}: {', '.join(records)}")


if __name__ == "__main__":
    main()
