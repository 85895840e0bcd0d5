"""The gate's report for people, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.codes import gate_codes
from advisor.gate.findings import Finding
from advisor.report.check.summary import (
    count_findings,
    describe_changes,
    describe_gap,
    describe_prediction,
    target_names,
)
from advisor.report.interface import target_line
from advisor.report.words import count

_FEW = 12


def check_text(result: GateResult) -> str:
    """Return the report as plain text: a line a finding, then what was compared, then a summary."""
    return "\n".join(_lines(result))


def _lines(result: GateResult) -> Iterator[str]:
    for finding in result.findings:
        yield _finding(finding, result)
    if result.findings:
        yield ""
    for target_result in result.targets:
        yield from _target(target_result)
    for finding, ignore in result.ignored:
        until = f", until {ignore.expires}" if ignore.expires else ""
        yield f"ignored {finding.code}: {finding.message} ({ignore.reason}{until})"
    yield f"{result.state}: {count_findings(result)}"
    if result.unreadable is not None:
        yield "`advisor rule CODE` explains a finding"
    elif any(finding.fails for finding in result.findings):
        yield "`advisor rule CODE` explains a finding; `advisor advise --update` clears it with the least change"


def _finding(finding: Finding, result: GateResult) -> str:
    place = f"{finding.place}: " if finding.place.path else ""
    only = f" (target {targets})" if (targets := target_names(finding, result)) else ""
    source = f" ({finding.source})" if finding.source else ""
    name = gate_codes()[finding.code].name
    return f"{place}{finding.level}: {finding.code} {name}: {finding.message}{only}{source}"


def _target(target_result: TargetResult) -> Iterator[str]:
    case = target_result.case
    lock = case.head.lock
    what = f"`{lock.path}`" if lock.path else "the environment"
    name = f"target {case.name}: " if case.name else ""
    yield f"{name}{what}, {count(len(lock.packages), 'package')}, for {target_line(case.head.problem.target)}"
    if target_result.comparison is not None:
        comparison = target_result.comparison
        yield f"  against {comparison.base}: {describe_changes(comparison.changes)}"
        for change in comparison.changes[:_FEW]:
            yield f"    {change.package} {change.before or '-'} -> {change.after or '-'}"
        if len(comparison.changes) > _FEW:
            yield f"    and {len(comparison.changes) - _FEW} more (`--format json` lists them)"
        yield f"  predicted effect: {describe_prediction(comparison.prediction)}"
        for effect in comparison.effects[:_FEW]:
            yield f"    {effect.speedup:.3f}x [{effect.low:.3f}, {effect.high:.3f}]  {effect.subject}"
        if len(comparison.effects) > _FEW:
            yield f"    and {len(comparison.effects) - _FEW} more (`--format json` lists them)"
    if target_result.recommended is not None:
        yield f"  against the recommended stack: {describe_gap(target_result)}"
    yield ""
