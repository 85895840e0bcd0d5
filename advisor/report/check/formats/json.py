"""The gate's report as JSON; the schema is documented in `docs/reference/check-json.md`."""

from __future__ import annotations

import json
from typing import Any

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.comparison import SettingChange
from advisor.gate.findings import Finding, gate_codes, unique_fingerprints
from advisor.gate.verdict import ChangeVerdict
from advisor.report.check.summary import change_document
from advisor.report.formats import Presentation
from advisor.report.phrases import prediction_document, rounded_record
from knowledge.domain.ratio import Ratio
from knowledge.estimate.interface import Effect, Prediction

SUFFIX = ".json"
SCHEMA_VERSION = 3
_PREDICTION_KEYS = (
    *("workload", "speedup", "low", "high", "confidence", "unmeasured", "newest_measured"),
    *("operations_only", "kinds", "sizes", "not_predicted"),
)


def render(result: GateResult, _: Presentation) -> str:
    """Return the report as JSON; the same findings give the same bytes."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": result.exit_code,
        "findings": [
            _finding(finding, fingerprint)
            for finding, fingerprint in zip(result.findings, unique_fingerprints(result.findings), strict=True)
        ],
        "ignored": [
            {**_finding(f, f.fingerprint), "reason": i.reason, "expires": str(i.expires) if i.expires else None}
            for f, i in result.ignored
        ],
        "failures": [
            {"target": name, "code": error.code, "message": error.message, "hint": error.hint}
            for name, error in result.failures
        ],
        "targets": [_target(target_result) for target_result in result.targets],
    }
    return json.dumps(rounded_record(document), indent=2)


def _finding(finding: Finding, fingerprint: str) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": gate_codes()[finding.code].name,
        "level": finding.level,
        "message": finding.message,
        "path": finding.place.path or None,
        "line": finding.place.line or None,
        "package": finding.package or None,
        "subject": finding.subject or None,
        "targets": list(finding.targets),
        "source": finding.source or None,
        "fingerprint": fingerprint,
    }


def _target(target_result: TargetResult) -> dict[str, Any]:
    case, target = target_result.case, target_result.case.head.problem.target
    comparison = target_result.comparison
    return {
        "name": case.name or None,
        "python": str(target.python),
        "platform": target.platform,
        "hardware": target.hardware.name,
        "accelerator": next((a.model for a in target.hardware.accelerators), None),
        "lock": str(case.head.lock.path) if case.head.lock.path else None,
        "packages": {name: str(version) for name, version in sorted(case.head.lock.versions.items())},
        "base": None
        if comparison is None
        else {
            "name": comparison.base,
            "changes": list(map(change_document, comparison.changes)),
            "prediction": _prediction(comparison.prediction),
            "not_predicted": comparison.not_predicted or None,
            "effects": [{"indicator": effect.subject, **_effect(effect)} for effect in comparison.effects],
            "settings": [_setting(change) for change in comparison.settings],
            "verdict": None if target_result.verdict is None else verdict_document(target_result.verdict),
        },
        "recommended": None
        if target_result.recommended is None
        else {
            "packages": {name: str(version) for name, version in sorted(target_result.recommended.versions.items())},
            "proven": target_result.recommended.proven,
            "prediction": _prediction(target_result.recommended_prediction),
            "gain_with_settings": rounded_record(total) if (total := target_result.gain_with_settings) else None,
            "not_predicted": target_result.not_predicted or None,
        },
    }


def verdict_document(verdict: ChangeVerdict) -> dict[str, Any]:
    """Return a verdict as JSON-ready values."""
    before, after = verdict.sizes or (None, None)
    return {
        "outcome": verdict.outcome,
        "tolerance": verdict.tolerance,
        **_speed(verdict.speed),
        "reason": verdict.reason or None,
        "comparisons": verdict.rows,
        "reports": verdict.reports,
        "not_compared": list(verdict.not_compared),
        "measured": verdict.is_measured,
        "minutes": verdict.minutes,
        "bytes_before": before,
        "bytes_after": after,
        "resolved": [_finding(finding, finding.fingerprint) for finding in verdict.resolved],
        "recoveries": [
            {"kind": r.kind, "what": r.what, **_speed(r.speed), "source": r.source or None} for r in verdict.recoveries
        ],
    }


def _speed(speed: Ratio | None) -> dict[str, float | None]:
    return {name: getattr(speed, name) if speed else None for name in ("speedup", "low", "high")}


def _setting(change: SettingChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "kind": change.kind,
        "before": list(change.before),
        "after": list(change.after),
        "frameworks": list(change.backends),
        "path": change.place.path,
        "line": change.place.line or None,
        "effects": list(map(_effect, change.effects)),
    }


def _prediction(prediction: Prediction | None) -> dict[str, Any] | None:
    """Return a prediction without its evidence."""
    document = prediction_document(prediction)
    return document and {key: value for key, value in document.items() if key in _PREDICTION_KEYS}


def _effect(effect: Effect) -> dict[str, Any]:
    return {"package": effect.package, "speedup": effect.speedup, "low": effect.low, "high": effect.high}
