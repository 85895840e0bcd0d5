"""The gate's report as one self-contained HTML page."""

from __future__ import annotations

from typing import Any

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import gate_codes
from advisor.report.check.summary import (
    count_findings,
    describe_changes,
    describe_gap,
    describe_prediction,
    describe_setting,
    listed_effects,
    target_names,
)
from advisor.report.formats import Presentation
from advisor.report.html import Interval, evidence_of, page, plot, tree
from advisor.report.phrases import target_line

SUFFIX = ".html"


def render(result: GateResult, _: Presentation) -> str:
    """Return the report as a page."""
    return page(
        "check.html",
        title=f"gate {result.state}",
        state=result.state,
        counts=count_findings(result),
        findings=[(finding, target_names(finding, result)) for finding in result.findings],
        codes=gate_codes(),
        failures=result.failures,
        ignored=result.ignored,
        targets=[_target(target_result) for target_result in result.targets],
    )


def _target(target_result: TargetResult) -> dict[str, Any]:
    case = target_result.case
    versions = {name: str(version) for name, version in case.head.lock.versions.items()}
    context: dict[str, Any] = {
        "name": case.name,
        "line": target_line(case.head.problem.target),
        "lock": str(case.head.lock.path or "the environment"),
        "versions": sorted(versions.items()),
        "gap": describe_gap(target_result),
        "recommended": {},
        "recommended_plot": None,
        "comparison": None,
        "tree": () if target_result.failure else tree(target_result.required(), versions),
    }
    if target_result.recommended is not None:
        context["recommended"] = {n: str(v) for n, v in target_result.recommended.versions.items()}
    if target_result.recommended_prediction is not None and target_result.recommended_prediction.changes:
        context["recommended_plot"] = plot(evidence_of(target_result.recommended_prediction.changes))
    if target_result.comparison is not None:
        comparison = target_result.comparison
        effects = [
            Interval(label=e.subject, ratio=e.ratio) for e in listed_effects(comparison.prediction, comparison.effects)
        ]
        context["comparison"] = {
            "base": comparison.base,
            "changes": comparison.changes,
            "changes_text": describe_changes(comparison.changes),
            "prediction": describe_prediction(comparison.prediction, comparison.not_predicted),
            "plot": plot(effects),
            "settings": [
                (str(change.place), describe_setting(change, comparison.not_predicted))
                for change in comparison.settings
            ],
        }
    return context
