"""The gate's report as Markdown: for the comment on a change and for a platform's summary page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain.words import ends_text, ratio_text
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import Finding, gate_codes
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
from advisor.report.phrases import target_line
from advisor.report.tables import table_lines
from knowledge.estimate.interface import Effect

SUFFIX = ".md"
_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def render(result: GateResult, _: Presentation) -> str:
    """Return the report as Markdown, for GitHub's and GitLab's dialects."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: GateResult) -> Iterator[str]:
    mark = {"passed": "✅", "failed": "❌"}.get(result.state, "⚠️")
    yield f"## {mark} Dependency stack: {result.state}"
    yield ""
    yield f"{count_findings(result)}."
    yield ""
    for name, error in result.failures:
        yield f"**Not complete{f' for {name}' if name else ''}:** {error.message}. {error.hint}"
        yield ""
    if result.findings:
        rows = [_finding_row(finding, result) for finding in result.findings]
        yield from table_lines(("", "finding", "place", "message"), rows)
        yield ""
    for target_result in result.targets:
        yield from _target(target_result)
    if result.ignored:
        yield "<details><summary>Ignored findings</summary>"
        yield ""
        rows = [(f.code, f.message, i.reason, str(i.expires or "")) for f, i in result.ignored]
        yield from table_lines(("finding", "message", "reason", "until"), rows)
        yield ""
        yield "</details>"


def _finding_row(finding: Finding, result: GateResult) -> tuple[str, ...]:
    only = f" (target {targets})" if (targets := target_names(finding, result)) else ""
    source = f" ([source]({finding.source}))" if finding.source.startswith("https://") else ""
    name = f"{finding.code} {gate_codes()[finding.code].name}"
    place = f"`{finding.place}`" if finding.place.path else ""
    return _MARKS[finding.level], name, place, f"{finding.message}{only}{source}"


def _target(target_result: TargetResult) -> Iterator[str]:
    case = target_result.case
    title = f"{case.name}: " if case.name else ""
    yield f"### {title}{target_line(case.head.problem.target)}"
    yield ""
    if target_result.recommended is not None:
        yield f"Compared with the recommended stack: {describe_gap(target_result)}."
        yield ""
    comparison = target_result.comparison
    if comparison is None:
        return
    yield f"Compared with {comparison.base}: {describe_changes(comparison.changes)}."
    yield f"Predicted effect: {describe_prediction(comparison.prediction, comparison.not_predicted)}."
    yield ""
    if comparison.changes:
        yield "<details><summary>Packages</summary>"
        yield ""
        rows = [(c.package, str(c.before or ""), str(c.after or ""), c.kind) for c in comparison.changes]
        yield from table_lines(("package", "before", "after", ""), rows)
        yield ""
        yield "</details>"
        yield ""
    if comparison.settings:
        reason = comparison.not_predicted
        settings = [(f"`{change.place}`", describe_setting(change, reason)) for change in comparison.settings]
        yield from table_lines(("changed setting in", "predicted effect"), settings)
        yield ""
    yield from effect_lines(listed_effects(comparison.prediction, comparison.effects))


def effect_lines(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield a collapsible table of predicted effects; nothing if there are none."""
    if effects:
        yield "<details><summary>Predicted effect at each indicator</summary>"
        yield ""
        rows = [(e.subject, f"{ratio_text(e.speedup, 'exact')}x", ends_text(e, "exact")) for e in effects]
        yield from table_lines(("indicator", "speed", "95 % interval"), rows)
        yield ""
        yield "</details>"
        yield ""
