"""The gate's report as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain.words import count
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.codes import gate_codes
from advisor.gate.findings import Finding
from advisor.report.check.summary import (
    count_findings,
    describe_changes,
    describe_gap,
    describe_prediction,
    describe_setting,
    listed_effects,
    target_names,
)
from advisor.report.interface import target_line

_MAX_LINES = 12


def check_text(result: GateResult) -> str:
    """Return the report as plain text: a line for each finding, then the comparisons, then a summary."""
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
        yield "`advisor rule CODE` explains a finding; `advisor advise --update` resolves it with the smallest change"


def _finding(finding: Finding, result: GateResult) -> str:
    place = f"{finding.place}: " if finding.place.path else ""
    only = f" (target {targets})" if (targets := target_names(finding, result)) else ""
    source = f" ({finding.source})" if finding.source else ""
    name = gate_codes()[finding.code].name
    return f"{place}{finding.level}: {finding.code} {name}: {finding.message}{only}{source}"


def _target(target_result: TargetResult) -> Iterator[str]:
    case = target_result.case
    lock = case.head.lock
    lock_name = f"`{lock.path}`" if lock.path else "the environment"
    name = f"target {case.name}: " if case.name else ""
    yield f"{name}{lock_name}, {count(len(lock.packages), 'package')}, for {target_line(case.head.problem.target)}"
    if target_result.comparison is not None:
        comparison = target_result.comparison
        yield f"  compared with {comparison.base}: {describe_changes(comparison.changes)}"
        for change in comparison.changes[:_MAX_LINES]:
            yield f"    {change.package} {change.before or '-'} -> {change.after or '-'}"
        if len(comparison.changes) > _MAX_LINES:
            yield f"    and {len(comparison.changes) - _MAX_LINES} more (`--format json` lists them)"
        yield f"  predicted effect: {describe_prediction(comparison.prediction, comparison.not_predicted)}"
        effects = listed_effects(comparison.prediction, comparison.effects)
        for effect in effects[:_MAX_LINES]:
            yield f"    {effect.speedup:.3f}x [{effect.low:.3f}, {effect.high:.3f}]  {effect.subject}"
        if len(effects) > _MAX_LINES:
            yield f"    and {len(effects) - _MAX_LINES} more (`--format json` lists them)"
        for setting in comparison.settings[:_MAX_LINES]:
            yield f"  {setting.place}: {describe_setting(setting, comparison.not_predicted)}"
        if len(comparison.settings) > _MAX_LINES:
            yield f"  and {len(comparison.settings) - _MAX_LINES} more settings (`--format json` lists them)"
    if target_result.recommended is not None:
        yield f"  compared with the recommended stack: {describe_gap(target_result)}"
    yield ""
