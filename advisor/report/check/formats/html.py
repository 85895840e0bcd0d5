"""The gate's report as one self-contained HTML page, and its content for other pages."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import gate_codes
from advisor.report.check import summary
from advisor.report.formats import Presentation
from advisor.report.html import Interval, TreeNode, evidence_of, fragment, page, plot, tree
from advisor.report.phrases import target_line

SUFFIX = ".html"


def render(result: GateResult, presentation: Presentation) -> str:
    """Return the report as a page."""
    return page(f"gate {result.state}", content(result, presentation))


def content(result: GateResult, _: Presentation) -> Markup:
    """Return the report without the page around it; the template `check.html` has its sections."""
    functions = (target_line, _effects_plot, _evidence_plot, _tree)
    return fragment(
        "check.html",
        result=result,
        codes=gate_codes(),
        summary=summary,
        **{function.__name__.removeprefix("_"): function for function in functions},
    )


def _effects_plot(target_result: TargetResult) -> dict[str, Any] | None:
    comparison = target_result.comparison
    effects = summary.listed_effects(comparison.prediction, comparison.effects) if comparison is not None else ()
    return plot([Interval(label=e.subject, ratio=e.ratio) for e in effects])


def _evidence_plot(target_result: TargetResult) -> dict[str, Any] | None:
    prediction = target_result.recommended_prediction
    return plot(evidence_of(prediction.changes if prediction is not None else ()))


def _tree(target_result: TargetResult) -> tuple[TreeNode, ...]:
    """Return the dependency tree of a lock; empty if the check is not complete."""
    versions = {name: str(version) for name, version in target_result.case.head.lock.versions.items()}
    return () if target_result.failure else tree(target_result.required(), versions)
