"""Writes `knowledge/data/fits.json`: amplitudes fitted to the shipped observations, and the usual ones of the rest.

    python docs/fits.py

The usual amplitudes are the geometric means of the fitted ones; indicators and versions that were not measured have no
scale and no span of their own.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from knowledge.estimate.amplitudes import Amplitudes, fit_amplitudes
from knowledge.estimate.evidence import load_evidence
from knowledge.estimate.model_cache import USUAL, framework_contrasts, frameworks_of
from knowledge.store.engine import open_knowledge_base

TARGET = Path(str(files("knowledge.data"))) / "fits.json"


def usual(fitted: Sequence[Amplitudes]) -> Amplitudes:
    """Return the geometric means of amplitudes, and the commonest length."""

    def mean(values: Iterable[float]) -> float:
        logs = [math.log(value) for value in values]
        return math.exp(sum(logs) / len(logs))

    lengths = sorted(a.length for a in fitted)
    return Amplitudes(
        parts=tuple(mean(column) for column in zip(*(a.parts for a in fitted), strict=True)),
        label=mean(a.label for a in fitted),
        arm=mean(a.arm for a in fitted),
        noise=mean(a.noise for a in fitted),
        length=lengths[len(lengths) // 2],
        scales={},
        spans={},
        widening=mean(a.widening for a in fitted),
        likelihood=0.0,
    )


def main() -> None:
    """Fit and write."""
    with tempfile.TemporaryDirectory() as folder, open_knowledge_base(str(Path(folder) / "k.sqlite")) as store:
        evidence = load_evidence(store)
    fitted: dict[str, Amplitudes] = {}
    for framework, device in frameworks_of(evidence):
        contrasts = framework_contrasts(evidence, framework, device)
        if any(c.side.version != c.reference.version for c in contrasts):
            fitted[f"{framework}/{device}"] = fit_amplitudes(contrasts)
    records: dict[str, Any] = {key: asdict(a) for key, a in fitted.items()}
    records[USUAL] = asdict(usual(list(fitted.values())))
    TARGET.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{TARGET}: {', '.join(records)}")


if __name__ == "__main__":
    main()
