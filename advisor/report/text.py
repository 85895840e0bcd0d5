"""The report of `advisor advise` as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from advisor.api.session import AdviceResult
from advisor.domain.words import count, no_speedup_text, operations_text, quoted, range_text, workload_text
from advisor.project.sources import Proposal
from advisor.report.interface import changes, changes_from_current, target_line
from advisor.report.interpreters import interpreters_text
from advisor.report.outputs import output_lines
from advisor.report.score import score_lines
from advisor.report.settings import setting_lines
from advisor.report.sizes import size_lines, startup_lines
from advisor.report.uv_sources import uv_sources
from advisor.resolve.recommended_settings import gain_with_settings
from knowledge.domain.observation import BENCHMARK
from knowledge.estimate.interface import PredictedChange, Prediction

_MAX_LINES = 10
"""Maximum number of changes, or of lines of evidence, that are listed."""


def advice_text(report: AdviceResult) -> str:
    """Return the advice as plain text."""
    return "\n".join(_lines(report))


def summary_lines(report: AdviceResult, *, name: str) -> Iterator[str]:
    """Yield the advice for one of several targets: its stack, its prediction, its findings and its lock.

    Args:
        report: The advice.
        name: Name of the target.
    """
    advice = report.advice
    yield f"target     `{name}`: {target_line(report.target)}"
    yield f"stack      {_size(report)}"
    yield from _labelled("size", islice(size_lines(report.sizes), 1))
    yield f"prediction {_prediction(advice.prediction)}"
    differing = [c for c in changes(report) if _is_listed(report, c)]
    if differing:
        listed = ", ".join(f"`{name}` {before} -> {after}" for name, before, after in differing[:_MAX_LINES])
        yield f"changes    {listed}{' and others' if len(changes(report)) > len(differing[:_MAX_LINES]) else ''}"
    for finding in advice.findings:
        yield f"{finding.severity} {finding.code}: {finding.message}"
    yield from output_lines(report)


def _size(report: AdviceResult) -> str:
    size = count(len(report.advice.optimum.stack), "package")
    return f"{size}, {report.advice.libyears[0]:.1f} libyears behind the newest"


def _lines(report: AdviceResult) -> Iterator[str]:
    advice = report.advice
    yield f"target     {target_line(report.target)}"
    if report.interpreters is not None:
        first, *others = interpreters_text(report.interpreters)
        yield f"python     {first}"
        yield from (f"           {line}" for line in others)
    basis = "" if report.has_upload_times else ", by release counts: the index gives no upload times"
    yield f"stack      {_size(report)}"
    behind = f"{report.advice.libyears[1]:.1f} libyears behind{basis}"
    yield f"baseline   {count(len(advice.baseline), 'package')}, {behind}"
    if advice.current is not None:
        yield f"current    {_current(report)}"
    yield from _labelled("size", size_lines(report.sizes))
    yield from _labelled("startup", startup_lines(report.startup))
    if advice.prediction.workload == BENCHMARK:
        yield f"workload   `{BENCHMARK}`: the project's own, as `advisor pi run --benchmark` measured it"
    elif report.proposal is not None:
        yield f"workload   {_proposal(report.proposal)}"
    yield f"prediction {_prediction(advice.prediction)}"
    if advice.prediction.is_known and not advice.prediction.is_same and advice.prediction.kinds:
        yield f"           {range_text(advice.prediction)}"
    if total := gain_with_settings(advice.prediction, report.settings_gain):
        yield f"           with its settings {total.speedup:.3f}x [{total.low:.3f}, {total.high:.3f}]"
    yield from _labelled("settings", setting_lines(report.setting_effects, report.settings, report.settings_gain))
    yield from _labelled("score", score_lines(advice.basis, advice.prediction))
    yield f"proof      {_proof(report)}"
    yield ""
    yield from _changes(report)
    yield from _evidence(advice.prediction)
    for finding in advice.findings:
        source = f" ({finding.source})" if finding.source else ""
        yield f"{finding.severity} {finding.code}: {finding.message}{source}"
    if advice.findings:
        yield ""
    yield from output_lines(report)
    if report.uses_uv and (tables := uv_sources(report)):
        yield "for uv, add these tables to `pyproject.toml`:"
        yield from (f"  {line}".rstrip() for line in tables.splitlines())
    if not report.outputs:
        reason = "interrupted" if report.advice.optimum.interrupted else "--dry-run"
        yield f"nothing was written ({reason})"


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, the first of them with a label."""
    for line in lines:
        yield f"{label:10} {line}"
        label = ""


def _prediction(prediction: Prediction) -> str:
    if reason := no_speedup_text(prediction):
        return f"none: {reason}"
    if prediction.is_same:
        return "same speed as the baseline: the stacks are the same"
    ratio = (
        f"{prediction.speedup:.3f}x the speed of the baseline [{prediction.low:.3f}, {prediction.high:.3f}] at "
        f"{prediction.confidence:.0%}, {workload_text(prediction)}"
    )
    return f"{ratio}{operations_text(prediction)}"


def _proposal(proposal: Proposal) -> str:
    first, *others = proposal.signs
    more = f" and {len(others)} more" if others else ""
    return f"{proposal.workload}, because the sources use {first}{more}; choose another with `--workload`"


def _current(report: AdviceResult) -> str:
    assert report.advice.current is not None
    locked, prediction = report.advice.current
    differing = changes_from_current(report)
    if not differing:
        return f"{count(len(locked), 'package')}: the recommended stack itself"
    added = sum(before == "-" for _, before, _ in differing)
    removed = sum(after == "-" for _, _, after in differing)
    changed = [name for name, before, after in differing if "-" not in (before, after)]
    direct = [name for name in changed if name in report.direct]
    more = " and others" if len(changed) > len(direct[:_MAX_LINES]) else ""
    names = f" ({quoted(direct[:_MAX_LINES])}{more})" if direct else ""
    speed = ""
    if prediction.is_known:
        interval = f"[{prediction.low:.3f}, {prediction.high:.3f}] at {prediction.confidence:.0%}"
        speed = f"; predicted speed of the stack {prediction.speedup:.3f}x the current one {interval}"
        speed += operations_text(prediction)
    return f"{count(len(locked), 'package')}: {len(changed)} change{names}, {added} added, {removed} removed{speed}"


def _proof(report: AdviceResult) -> str:
    optimum = report.advice.optimum
    doubts = ", ".join(optimum.doubts)
    state = f"not proven to be optimal for the score ({doubts})," if doubts else "optimal for the score,"
    if optimum.stopped:
        state = f"{optimum.stopped}, the best stack so far: {state}"
    return (
        f"{state} over {optimum.candidates} candidate versions, {optimum.fetched} of them read, "
        f"in {count(optimum.iterations, 'iteration')}; verified by resolvelib"
    )


def _changes(report: AdviceResult) -> Iterator[str]:
    differing = changes(report)
    if not differing:
        yield "the recommended stack is the baseline: the newest versions, as pip would install them"
        yield ""
        return
    listed = [c for c in differing if _is_listed(report, c)]
    width = max((len(name) for name, _, _ in listed), default=0)
    yield "changes from the baseline (newest versions, like pip):"
    for name, before, after in listed:
        yield f"  {name:{width}}  {before} -> {after}  {report.advice.reasons.get(name, 'no longer required')}"
    rest = [c for c in differing if c not in listed]
    if rest:
        added = sum(before == "-" for _, before, _ in rest)
        removed = sum(after == "-" for _, _, after in rest)
        others = len(rest) - added - removed
        yield (
            f"  and {len(rest)} of their dependencies: {added} added, {removed} removed, {others} at another version "
            "(`--format json` lists them)"
        )
    yield ""


def _is_listed(report: AdviceResult, change: tuple[str, str, str]) -> bool:
    """Whether a change is listed: of a package that the project names or that was measured, or one of few changes."""
    name, _, _ = change
    return (
        name in report.direct
        or any(c.package == name for c in report.advice.prediction.changes)
        or len(changes(report)) <= _MAX_LINES
    )


def _evidence(prediction: Prediction) -> Iterator[str]:
    for change in prediction.changes:
        yield f"evidence for `{change.package}`{'' if change.measured else ' (inferred from other versions)'}:"
        yield from _evidence_lines(change)
        yield ""


def _evidence_lines(change: PredictedChange) -> Iterator[str]:
    for e in change.evidence[:_MAX_LINES]:
        if e.source:
            yield (
                f"  {e.version} compared with {e.reference}: {e.speedup:.3f}x on {e.hardware}, published {e.year} "
                f"by {e.source}: {e.indicator}"
            )
            continue
        yield (
            f"  {e.version} compared with {e.reference}: {e.speedup:.3f}x [{e.low:.3f}, {e.high:.3f}], "
            f"{e.rounds} rounds on {e.hardware}: {e.indicator}"
        )
    if len(change.evidence) > _MAX_LINES:
        yield f"  and {len(change.evidence) - _MAX_LINES} more (`--format json` lists them)"
