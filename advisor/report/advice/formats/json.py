"""The report of `advisor advise` as JSON; the schema is documented in `docs/reference/advice-json.md`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from advisor.api.session import AdviceResult
from advisor.domain.target import Target
from advisor.report.advice.experiment import experiment_record
from advisor.report.advice.interpreters import interpreters_document
from advisor.report.advice.sizes import sizes_document
from advisor.report.formats import Presentation
from advisor.report.phrases import SCHEMA_VERSION, changes_from_current, prediction_document, rounded_record
from advisor.resolve.candidates.problem import Candidate
from advisor.resolve.explanation.advice import ScoreBasis
from advisor.resolve.explanation.recommended_settings import gain_with_settings
from advisor.resolve.optimum.result import Optimum
from knowledge.domain.stack import carried_cuda

SUFFIX = ".json"


def render(report: AdviceResult, _: Presentation) -> str:
    """Return the recommendation as JSON; the same recommendation gives the same bytes."""
    return json.dumps(advice_document(report), indent=2)


def advice_document(report: AdviceResult) -> dict[str, Any]:
    """Return the recommendation as JSON-ready values."""
    advice = report.advice
    cuda, cudnn = carried_cuda((c.name, c.version) for c in advice.optimum.stack)
    total = gain_with_settings(advice.prediction, report.settings_gain)
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "optimal" if advice.optimum.proven else "feasible",
        "target": _target(report.target),
        "interpreters": interpreters_document(report.interpreters),
        "objective": advice.objective,
        "workload": {
            "name": advice.prediction.workload,
            "proposed_by": list(report.proposal.signs) if report.proposal else [],
        },
        "baseline": {
            "packages": [_package(c, report) for c in advice.baseline],
            "libyears": round(report.advice.libyears[1], 3),
        },
        "stack": {
            "packages": [{**_package(c, report), "why": advice.reasons[c.name]} for c in advice.optimum.stack],
            "libyears": round(report.advice.libyears[0], 3),
            "cuda": cuda,
            "cudnn": cudnn,
        },
        "sizes": sizes_document(report.sizes),
        "startup": rounded_record(report.startup),
        "score": _score(advice.basis, advice.prediction.workload),
        "current": _current(report),
        "libyears_basis": "upload-times" if report.has_upload_times else "release-counts",
        "settings": rounded_record(report.settings),
        "settings_gain": rounded_record(report.settings_gain) if report.settings_gain else None,
        "gain_with_settings": rounded_record(total) if total else None,
        "setting_effects": rounded_record(report.setting_effects),
        "present_settings": [
            {"package": package, "setting": setting, "present": text}
            for (package, setting), text in sorted(report.present_settings.items())
        ],
        "prediction": prediction_document(advice.prediction),
        "experiment": experiment_record(report.experiment) if report.experiment else None,
        "findings": [asdict(f) for f in advice.findings],
        "proof": _proof(advice.optimum),
        "newest": _newest(advice.optimum),
        "locks": list(report.outputs),
    }


def _target(target: Target) -> dict[str, Any]:
    hardware = target.hardware
    device, driver = hardware.gpu or next(iter(hardware.accelerators), None), hardware.driver
    return {
        "python": str(target.python),
        "platform": target.platform,
        "hardware": hardware.name,
        "microarchitecture": hardware.cpu.microarchitecture,
        "accelerator": device.model if device else None,
        "compute_capability": device.compute_capability if device else None,
        "driver": driver.version if driver else None,
    }


def _score(basis: ScoreBasis, workload: str) -> dict[str, Any]:
    names = ("measured", "unmeasured", "not_in_workload", "without_measurements")
    packages = {name: list(getattr(basis, name)) for name in names}
    return {"criteria": list(basis.criteria), "workload": workload, "min_gain": basis.min_gain, **packages}


def _proof(optimum: Optimum) -> dict[str, Any]:
    names = ("bound", "value", "gap")
    values = {name: {b.objective: getattr(b, name) for b in optimum.bounds} for name in names}
    return {**values, **{name: getattr(optimum, name) for name in ("iterations", "candidates", "fetched", "stopped")}}


def _package(candidate: Candidate, report: AdviceResult) -> dict[str, str]:
    return {"name": candidate.name, "version": str(candidate.version), "index": candidate.file.index}


def _newest(optimum: Optimum) -> dict[str, Any]:
    """Return the newest stack that runs on the target, and the gain over it; empty without speed in the score."""
    if not optimum.newest:
        return {}
    return {
        "packages": [{"name": c.name, "version": str(c.version)} for c in optimum.newest],
        "gain": rounded_record(optimum.gain),
    }


def _current(report: AdviceResult) -> dict[str, Any] | None:
    if report.advice.current is None:
        return None
    locked, prediction = report.advice.current
    return {
        "packages": [{"name": name, "version": str(version)} for name, version in sorted(locked.items())],
        "changes": [{"name": n, "before": before, "after": after} for n, before, after in changes_from_current(report)],
        "prediction": prediction_document(prediction),
    }
