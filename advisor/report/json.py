"""Advice as JSON; the schema is documented in `docs/reference/advice-json.md`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from advisor.report.interface import SCHEMA_VERSION, Report
from advisor.resolve.problem import Candidate


def advice_json(report: Report) -> str:
    """Return the advice as JSON; the same advice gives the same bytes."""
    advice, target = report.advice, report.target
    gpu, driver = target.hardware.gpu, target.hardware.driver
    document = {
        "schema_version": SCHEMA_VERSION,
        "status": "optimal" if advice.optimum.proven else "feasible",
        "target": {
            "python": str(target.python),
            "platform": target.platform,
            "hardware": target.hardware.name,
            "microarchitecture": target.hardware.cpu.microarchitecture,
            "accelerator": gpu.model if gpu else None,
            "compute_capability": gpu.compute_capability if gpu else None,
            "driver": driver.version if driver else None,
        },
        "objective": advice.objective,
        "baseline": {
            "packages": [_package(c, report) for c in advice.baseline],
            "libyears": round(report.advice.behind[1], 3),
        },
        "stack": {
            "packages": [{**_package(c, report), "why": advice.why[c.name]} for c in advice.optimum.stack],
            "libyears": round(report.advice.behind[0], 3),
        },
        "libyears_basis": "upload-times" if report.dated else "release-counts",
        "settings": {},
        "prediction": _rounded(asdict(advice.prediction)),
        "findings": [asdict(f) for f in advice.findings],
        "proof": {
            "bound": {b.objective: b.bound for b in advice.optimum.bounds},
            "value": {b.objective: b.value for b in advice.optimum.bounds},
            "gap": {b.objective: b.gap for b in advice.optimum.bounds},
            "iterations": advice.optimum.iterations,
            "candidates": advice.optimum.candidates,
            "fetched": advice.optimum.fetched,
        },
        "lock": report.written or None,
    }
    return json.dumps(document, indent=2)


def _package(candidate: Candidate, report: Report) -> dict[str, str]:
    return {
        "name": candidate.name,
        "version": str(candidate.version),
        "index": candidate.file.index,
    }


def _rounded(value: Any) -> Any:
    """Round to six digits: what is beyond them differs between linear-algebra libraries."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
