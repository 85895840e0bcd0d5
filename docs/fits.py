"""Writes `knowledge/data/fits.json`: amplitudes fitted to the shipped observations, so that first use need not fit.

python docs/fits.py
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from knowledge.estimate.evidence import gather
from knowledge.estimate.fits import fit_record, frameworks_of, of_framework
from knowledge.store.engine import open_knowledge_base

TARGET = Path(str(files("knowledge.data"))) / "fits.json"


def shipped_fits() -> dict[str, object]:
    """Return the amplitudes of every framework that the shipped observations compare versions of, by what they saw."""
    with open_knowledge_base("sqlite://") as store:
        evidence = gather(store)
    found = {}
    for framework, device in frameworks_of(evidence):
        record = fit_record(of_framework(evidence, framework, device), known={})
        if record["amplitudes"] is not None:
            found[record["seen"]] = {**record["amplitudes"], "of": f"{framework}/{device}"}
    return found


if __name__ == "__main__":
    TARGET.write_text(json.dumps(shipped_fits(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {TARGET}")
