"""The gate's report as plain text: the findings, what changes and what it does to speed, the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from advisor.domain.words import count, indicator_text, interval_text, ratio_text
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.comparison import LockComparison
from advisor.gate.findings import Finding
from advisor.gate.policy import Ignore
from advisor.gate.update import lock_again, may_resolve, needs_tool
from advisor.gate.verdict import ChangeVerdict, Outcome, Recovery
from advisor.locks.lock import Lock
from advisor.report.check.summary import (
    count_findings,
    describe_changes,
    describe_gap,
    describe_measurement,
    describe_prediction,
    describe_recovery,
    describe_setting,
    describe_sizes,
    describe_verdict,
    equal_findings,
    listed_effects,
    places_and_name,
    target_names,
)
from advisor.report.formats import Presentation
from advisor.report.layout import Block, Style, TextRow, labelled, rendered
from advisor.report.phrases import change_groups, target_line, version_change

SUFFIX = ".txt"
_MOST_LINES = 12
_MOST_ALIKE = 5
"""Findings with the same code and level, and dependencies that change, that are listed."""
_OUTCOME_STYLES: dict[Outcome, Style] = {
    "better": "good",
    "worse": "bad",
    "no-difference": "good",
    "not-known": "warning",
}
_STYLES: dict[str, Style] = {"error": "bad", "warning": "warning", "note": "strong"}


def render(result: GateResult, presentation: Presentation) -> str:
    """Return the report as plain text; details are every finding with its source, every change and every effect."""
    return rendered(_blocks(result, details=presentation.details), presentation.layout)


def _blocks(result: GateResult, *, details: bool) -> Iterator[Block]:
    yield _findings(result, details=details)
    for target_result in result.targets:
        yield _target(target_result, details=details)
    yield [
        TextRow(label="ignored", cells=(f"{f.message} [{f.code}]",), notes=(_reason(ignore),), style="quiet")
        for f, ignore in result.ignored
    ]
    yield _state(result)


def _reason(ignore: Ignore) -> str:
    return f"{ignore.reason}, until {ignore.expires}" if ignore.expires else ignore.reason


def _state(result: GateResult) -> Iterator[TextRow]:
    """Yield the result and what to do next."""
    style: Style = "good" if result.state == "passed" else "bad"
    yield TextRow(label=result.state, cells=(count_findings(result),), style=style)
    failing = [finding for finding in result.findings if finding.fails]
    if failing:
        again = {lock_again(lock): None for f in failing for lock in _locks_of(f, result) if needs_tool(f, lock)}
        steps = [*filter(None, [_update(failing, result)]), *again]
        explain = "`advisor rule CODE` explains a finding"
        yield from labelled("next", [*steps, explain if steps else f"{explain}, and what to do"])


def _update(failing: Sequence[Finding], result: GateResult) -> str:
    """Return what `advisor advise --update` can do about findings; empty if it can resolve none of them."""
    number = sum(any(may_resolve(finding, lock) for lock in _locks_of(finding, result)) for finding in failing)
    several_targets = len(result.targets) > 1
    command = f"`advisor advise --update{' --target NAME' if several_targets else ''}`"
    if number == len(failing):
        return f"{command} makes the smallest change that passes, if there is one"
    return f"{command} can resolve {number} of {count(len(failing), 'error')}" if number else ""


def _locks_of(finding: Finding, result: GateResult) -> list[Lock]:
    return [target.case.head.lock for target in result.targets if target.case.name in finding.targets]


def _findings(result: GateResult, *, details: bool) -> Iterator[TextRow]:
    """Yield each finding with its places and code; of many of one code, the first ones."""
    alike: Counter[tuple[str, str]] = Counter()
    folded: Counter[tuple[str, str]] = Counter()
    for same in equal_findings(result.findings):
        key = same[0].code, same[0].level
        alike[key] += 1
        if details or alike[key] <= _MOST_ALIKE:
            yield _finding(same, result, details=details)
        else:
            folded[key] += len(same)
    for (code, level), number in folded.items():
        yield TextRow(cells=(f"{count(number, f'more {level}')} [{code}]: `--details` lists them",))


def _finding(same: Sequence[Finding], result: GateResult, *, details: bool) -> TextRow:
    """Return the row of equal findings at one or several places."""
    finding = same[0]
    only = f", target {targets}" if (targets := target_names(finding, result)) else ""
    notes = [f"{places_and_name(same)}{only}"]
    if details and finding.source:
        notes.append(finding.source)
    return TextRow(label=finding.level, cells=(finding.message,), notes=notes, style=_STYLES[finding.level])


def _target(target_result: TargetResult, *, details: bool) -> Iterator[TextRow]:
    case = target_result.case
    lock = case.head.lock
    name = f"{case.name}, " if case.name else ""
    yield TextRow(label="target", cells=(f"{name}{target_line(case.head.problem.target)}",))
    yield TextRow(
        label="lock",
        cells=(f"{case.change or lock.path or 'the environment'}, {count(len(lock.packages), 'package')}",),
    )
    if target_result.comparison is not None:
        yield from _comparison(target_result.comparison, target_result.verdict, details=details)
    if target_result.recommended is not None:
        yield TextRow(label="advice", cells=(describe_gap(target_result),))


def _comparison(comparison: LockComparison, verdict: ChangeVerdict | None, *, details: bool) -> Iterator[TextRow]:
    most = 0 if details else _MOST_LINES
    yield TextRow(label="changes", cells=(f"{describe_changes(comparison.changes)}, compared with {comparison.base}",))
    changes = [change.texts for change in comparison.changes]
    others = [c for c in changes if c[0] not in comparison.listed]
    groups = change_groups(others) if most and len(others) > _MOST_ALIKE else ()
    listed = [c for c in changes if not groups or c not in others]
    yield from _first("", [(name, version_change(before, after)) for name, before, after in listed], most)
    yield from labelled("", groups)
    if verdict is None:
        yield TextRow(label="speed", cells=(describe_prediction(comparison.prediction, comparison.not_predicted),))
    else:
        text = describe_verdict(verdict, comparison.prediction)
        yield TextRow(label="verdict", cells=(text,), style=_OUTCOME_STYLES[verdict.outcome])
    effects = listed_effects(comparison.prediction, comparison.effects)
    cells = [(ratio_text(e.speedup), interval_text(e), indicator_text(e.subject)) for e in effects]
    yield from _first("", cells, most)
    settings = [(str(s.place), describe_setting(s, comparison.not_predicted)) for s in comparison.settings]
    yield from _first("settings", settings, most)
    if verdict is not None:
        yield from labelled("recovery", [_recovery_text(recovery, details=details) for recovery in verdict.recoveries])
        yield from labelled("measure", filter(None, [describe_measurement(verdict)]))
        yield from labelled("size", filter(None, [describe_sizes(verdict)]))
        yield from _first("resolves", [(f"{f.message} [{f.code}]",) for f in verdict.resolved], most)


def _recovery_text(recovery: Recovery, *, details: bool) -> str:
    return f"{describe_recovery(recovery)}{f' ({recovery.source})' if details and recovery.source else ''}"


def _first(label: str, rows: Sequence[tuple[str, ...]], most: int) -> Block:
    """Return the first rows, and how many there are more; all of them if ``most`` is 0."""
    hidden = len(rows) - most if most else 0
    more = [f"and {hidden} more: `--details` lists them"] if hidden > 0 else []
    return labelled(label, [*rows[: most or None], *more])
