"""The report of `advisor advise` as plain text: what changes, why, what to do, what is not known; then the details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from advisor.api.session import AdviceResult
from advisor.domain.words import count, indicator_text, interval_text, range_text, ratio_text
from advisor.report.advice.experiment import arm_rows
from advisor.report.advice.interpreters import measured_lines
from advisor.report.advice.settings import combined_line, setting_lines, setting_rows
from advisor.report.advice.sizes import size_lines, startup_lines
from advisor.report.advice.summary import (
    alike_lines,
    facts,
    listed_changes,
    listed_findings,
    replaceable_line,
    score_lines,
    uv_sources,
)
from advisor.report.environment import settings_code
from advisor.report.formats import Presentation
from advisor.report.layout import Block, Style, TextRow, labelled, rendered
from advisor.report.phrases import changes, target_line, version_change
from advisor.resolve.explanation.findings import AdviceFinding
from knowledge.estimate.interface import Evidence, PredictedChange

SUFFIX = ".txt"
_MOST_EVIDENCE = 10
"""Lines of evidence of a package in the details."""


def render(report: AdviceResult, presentation: Presentation) -> str:
    """Return the advice as plain text; details are what the advice rests on."""
    details, sections = presentation.details, facts(report)
    blocks = [
        _facts(sections, "target", "python", "workload", "lock", "current", "speed", "measured"),
        labelled("arms", ((name, ": ".join(filter(None, rest))) for name, *rest in arm_rows(report, details=details))),
        _changes(report),
        _findings(report),
        _settings(report),
        _facts(sections, "unknown", "proof"),
        *(_details(report) if details else ()),
        _outputs(report, sections["wrote"], details=details),
    ]
    text = rendered(blocks, presentation.layout)
    return f"{text}\n\n{settings_code(report.setting_values)}" if presentation.show_code else text


def summary_block(report: AdviceResult, *, name: str) -> Block:
    """Return the advice for one of several targets: its stack, its prediction, its findings and its lock."""
    sections = facts(report)
    return [
        *labelled("target", [f"{name}: {target_line(report.target)}"]),
        *_facts(sections, "lock", "speed"),
        *_changes(report),
        *_findings(report),
        *_facts(sections, "unknown"),
        *labelled("wrote", sections["wrote"] if report.outputs else ()),
    ]


def _facts(sections: Mapping[str, Sequence[str]], *labels: str) -> Iterator[TextRow]:
    for label in labels:
        yield from labelled(label, sections[label])


def _changes(report: AdviceResult) -> Block:
    listed, groups = listed_changes(report)
    return labelled("changes", [*listed, *groups])


def _findings(report: AdviceResult) -> Iterator[TextRow]:
    listed, _ = listed_findings(report)
    for finding in listed:
        yield _finding(finding)
    yield from labelled("", alike_lines(report.advice.findings, listed))
    yield from labelled("note", filter(None, [replaceable_line(report)]))


def _finding(finding: AdviceFinding, *, source: bool = False) -> TextRow:
    notes = (finding.source,) if source and finding.source else ()
    style: Style = "warning" if finding.severity == "warning" else "strong"
    return TextRow(label=finding.severity, cells=(f"{finding.message} [{finding.code}]",), notes=notes, style=style)


def _settings(report: AdviceResult) -> Block:
    if report.experiment is not None:
        measured = [f"{s.name}={s.value}" for s in report.settings]
        return labelled("settings", [("set", text, "`advisor run` applies it") for text in dict.fromkeys(measured)])
    listed, others = setting_rows(report)
    rows = [TextRow(cells=(row.verdict, row.setting, row.effect), notes=row.notes) for row in listed]
    together = combined_line(report.settings, report.settings_gain)
    number = f"{others} {'more settings' if listed else 'settings'}"
    hidden = [("open", number, "no clear gain; `--details` lists them")] if others else []
    return labelled("settings", [*rows, *filter(None, [together]), *hidden])


def _outputs(report: AdviceResult, written: Sequence[str], *, details: bool) -> Iterator[TextRow]:
    yield from labelled("wrote", written, "good" if report.outputs else "strong")
    if report.uses_uv and (tables := uv_sources(report)):
        yield from labelled("for uv", ["add these tables to `pyproject.toml`:", *filter(None, tables.splitlines())])
    if not details:
        _, hidden = listed_findings(report)
        notes = f"{count(hidden, 'more finding')}, " if hidden else ""
        text = f"{notes}evidence, sizes: `--details`; `advisor explain NAME`"
        yield TextRow(label="more", cells=(text,), style="quiet")


def _details(report: AdviceResult) -> Iterator[Block]:
    advice, target = report.advice, report.target
    basis = "" if report.has_upload_times else ", by release counts: the index gives no upload times"
    stack, baseline = advice.libyears
    platform = f"Python {target.python}, {target.platform}, {target.hardware.cpu.microarchitecture}"
    search = f"{advice.optimum.fetched} versions read, {count(advice.optimum.iterations, 'iteration')}"
    yield [
        *labelled("platform", [platform]),
        *labelled("age", [f"{stack:.1f} libyears behind the newest; baseline: {baseline:.1f} libyears behind{basis}"]),
        *labelled("size", size_lines(report.sizes)),
        *labelled("startup", startup_lines(report.startup)),
        *labelled("measured", measured_lines(report.interpreters) if report.interpreters else ()),
        *labelled("score", score_lines(advice.basis, advice.prediction)),
        *labelled("range", filter(None, [range_text(advice.prediction)])),
        *labelled("search", [search]),
    ]
    why = {name: advice.reasons.get(name, "no longer required") for name, _, _ in changes(report)}
    yield labelled("packages", [(name, version_change(old, new), why[name]) for name, old, new in changes(report)])
    yield labelled("settings", setting_lines(report.setting_effects, report.settings, report.settings_gain))
    for change in advice.prediction.changes:
        yield labelled("evidence", evidence_lines(change))
    yield [_finding(finding, source=True) for finding in advice.findings]


def evidence_lines(change: PredictedChange, most: int = _MOST_EVIDENCE) -> Iterator[str]:
    """Yield the measurements that a prediction for a package rests on, in words."""
    yield f"{change.package}{'' if change.measured else ', inferred from other versions'}:"
    yield from map(evidence_text, change.evidence[:most])
    if len(change.evidence) > most:
        yield f"and {len(change.evidence) - most} more (`--format json` lists them)"
    if change.left_out:
        yield f"{count(change.left_out, 'comparison')} of yours not used: too many, and these are the least exact"


def evidence_text(evidence: Evidence) -> str:
    """Return one measured comparison in words."""
    e = evidence
    compared = f"{e.version} against {e.reference}: {ratio_text(e.speedup)}"
    if e.source:
        return f"{compared}; {indicator_text(e.indicator)}, on {e.hardware}, published {e.year} by {e.source}"
    rounds = count(e.rounds, "round")
    return f"{compared} {interval_text(e)}; {indicator_text(e.indicator)}, {rounds} on {e.hardware}"
