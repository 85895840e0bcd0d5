"""The gate's report as Markdown: for the comment on a change and for a platform's summary page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain.words import ends_text, ratio_text
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import Finding, gate_codes
from advisor.gate.verdict import ChangeVerdict
from advisor.report.check.summary import (
    count_findings,
    describe_changes,
    describe_gap,
    describe_prediction,
    describe_setting,
    describe_verdict,
    listed_effects,
    message_with_targets,
    verdict_items,
)
from advisor.report.formats import Presentation
from advisor.report.phrases import target_line
from advisor.report.tables import folded, table_lines
from knowledge.estimate.interface import Effect, Prediction

SUFFIX = ".md"
MARKER = "<!-- advisor: the verdict on a change -->"
"""First line of the report, by which a comment is found again, to be replaced."""
_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def render(result: GateResult, _: Presentation) -> str:
    """Return the report as Markdown, for GitHub's and GitLab's dialects."""
    lines = [MARKER, *_lines(result)]
    # The last table of a report ends without an empty line.
    return "\n".join(lines[:-1] if result.ignored else lines) + "\n"


def _lines(result: GateResult) -> Iterator[str]:
    mark = {"passed": "✅", "failed": "❌"}.get(result.state, "⚠️")
    yield from (f"## {mark} Dependency stack: {result.state}", "", f"{count_findings(result)}.", "")
    for name, error in result.failures:
        yield from (f"**Not complete{f' for {name}' if name else ''}:** {error.message}. {error.hint}", "")
    if result.findings:
        yield from table_lines(("", "finding", "place", "message"), [_cells(f, result) for f in result.findings])
        yield ""
    for target_result in result.targets:
        yield from _target(target_result)
    rows = [(f.code, f.message, i.reason, str(i.expires or "")) for f, i in result.ignored]
    yield from folded("Ignored findings", ("finding", "message", "reason", "until"), rows)


def _cells(finding: Finding, result: GateResult) -> tuple[str, ...]:
    name = f"{finding.code} {gate_codes()[finding.code].name}"
    place = f"`{finding.place}`" if finding.place.path else ""
    return _MARKS[finding.level], name, place, f"{message_with_targets(finding, result)}{_link(finding.source)}"


def _target(target_result: TargetResult) -> Iterator[str]:
    case, comparison = target_result.case, target_result.comparison
    title = f"{case.name}: " if case.name else ""
    yield from (f"### {title}{target_line(case.head.problem.target)}", "")
    if target_result.recommended is not None:
        yield from (f"Compared with the recommended stack: {describe_gap(target_result)}.", "")
    if comparison is None:
        return
    yield f"Compared with {comparison.base}: {describe_changes(comparison.changes)}."
    if (verdict := target_result.verdict) is None:
        yield f"Predicted effect: {describe_prediction(comparison.prediction, comparison.not_predicted)}."
    else:
        yield from _verdict(verdict, comparison.prediction)
    yield ""
    rows = [(c.package, str(c.before or ""), str(c.after or ""), c.kind) for c in comparison.changes]
    yield from folded("Packages", ("package", "before", "after", ""), rows)
    if comparison.settings:
        reason = comparison.not_predicted
        settings = [(f"`{change.place}`", describe_setting(change, reason)) for change in comparison.settings]
        yield from table_lines(("changed setting in", "predicted effect"), settings)
        yield ""
    yield from effect_lines(listed_effects(comparison.prediction, comparison.effects))


def _verdict(verdict: ChangeVerdict, prediction: Prediction | None) -> Iterator[str]:
    """Yield the verdict, what recovers a loss, the size of the download, and the findings that the change resolves."""
    mark = {"better": "🟢", "worse": "🔴", "no-difference": "⚪", "not-known": "❔"}[verdict.outcome]
    yield from ("", f"**{mark} Verdict: {describe_verdict(verdict, prediction)}.**")
    items = verdict_items(verdict)
    if items:
        yield ""
    yield from (f"- {text}{_link(source)}" for text, source in items)


def _link(source: str) -> str:
    addresses = [address for address in source.split(" and ") if address.startswith("https://")]
    return f" ({', '.join(f'[source]({address})' for address in addresses)})" if addresses else ""


def effect_lines(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield a collapsible table of predicted effects; nothing if there are none."""
    rows = [(e.subject, f"{ratio_text(e.speedup, 'exact')}x", ends_text(e, "exact")) for e in effects]
    yield from folded("Predicted effect at each indicator", ("indicator", "speed", "95 % interval"), rows)
