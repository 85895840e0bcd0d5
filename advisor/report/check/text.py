"""The gate's report for people, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.check import Examined, GateResult
from advisor.gate.codes import gate_codes
from advisor.gate.findings import Finding
from advisor.report.check.summary import behind_words, change_words, counted, speed_words, targets_of
from advisor.report.interface import target_line
from advisor.report.words import count

_FEW = 12


def check_text(judgement: GateResult) -> str:
    """Return the report as plain text: a line a finding, then what was compared, then a summary."""
    return "\n".join(_lines(judgement))


def _lines(judgement: GateResult) -> Iterator[str]:
    for finding in judgement.findings:
        yield _finding(finding, judgement)
    if judgement.findings:
        yield ""
    for examined in judgement.targets:
        yield from _target(examined)
    for finding, ignore in judgement.covered:
        until = f", until {ignore.expires}" if ignore.expires else ""
        yield f"ignored {finding.code}: {finding.message} ({ignore.reason}{until})"
    yield f"{judgement.state}: {counted(judgement)}"
    if judgement.unreadable is not None:
        yield "`advisor rule CODE` explains a finding"
    elif any(finding.fails for finding in judgement.findings):
        yield "`advisor rule CODE` explains a finding; `advisor advise --update` clears it with the least change"


def _finding(finding: Finding, judgement: GateResult) -> str:
    place = f"{finding.place}: " if finding.place.path else ""
    only = f" (target {targets})" if (targets := targets_of(finding, judgement)) else ""
    source = f" ({finding.source})" if finding.source else ""
    name = gate_codes()[finding.code].name
    return f"{place}{finding.level}: {finding.code} {name}: {finding.message}{only}{source}"


def _target(examined: Examined) -> Iterator[str]:
    case = examined.case
    lock = case.head.lock
    what = f"`{lock.path}`" if lock.path else "the environment"
    name = f"target {case.name}: " if case.name else ""
    yield f"{name}{what}, {count(len(lock.packages), 'package')}, for {target_line(case.head.problem.target)}"
    if examined.comparison is not None:
        comparison = examined.comparison
        yield f"  against {comparison.base}: {change_words(comparison.changes)}"
        for change in comparison.changes[:_FEW]:
            yield f"    {change.package} {change.before or '-'} -> {change.after or '-'}"
        if len(comparison.changes) > _FEW:
            yield f"    and {len(comparison.changes) - _FEW} more (`--format json` lists them)"
        yield f"  predicted effect: {speed_words(comparison.prediction)}"
        for effect in comparison.effects[:_FEW]:
            yield f"    {effect.speedup:.3f}x [{effect.low:.3f}, {effect.high:.3f}]  {effect.subject}"
        if len(comparison.effects) > _FEW:
            yield f"    and {len(comparison.effects) - _FEW} more (`--format json` lists them)"
    if examined.recommended is not None:
        yield f"  against the recommended stack: {behind_words(examined)}"
    yield ""
