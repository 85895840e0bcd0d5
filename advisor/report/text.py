"""Advice for people, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api.session import AdviceResult
from advisor.project.sources import Proposal
from advisor.report.interface import changes, changes_from_current, target_line
from advisor.report.words import count
from knowledge.estimate.interface import PredictedChange, Prediction

_FEW = 10
"""So many changes, or lines of evidence, are all listed."""


def advice_text(report: AdviceResult) -> str:
    """Return the advice as plain text."""
    return "\n".join(_lines(report))


def _lines(report: AdviceResult) -> Iterator[str]:
    advice = report.advice
    yield f"target     {target_line(report.target)}"
    basis = "" if report.dated else ", by release counts: the index gives no upload times"
    size, (behind, baseline_behind) = count(len(advice.optimum.stack), "package"), report.advice.libyears
    yield f"stack      {size}, {behind:.1f} libyears behind the newest"
    yield f"baseline   {count(len(advice.baseline), 'package')}, {baseline_behind:.1f} libyears behind{basis}"
    if advice.current is not None:
        yield f"current    {_current(report)}"
    if report.proposal is not None:
        yield f"workload   {_proposal(report.proposal)}"
    yield f"prediction {_prediction(advice.prediction)}"
    yield f"proof      {_proof(report)}"
    yield ""
    yield from _changes(report)
    yield from _evidence(advice.prediction)
    for finding in advice.findings:
        source = f" ({finding.source})" if finding.source else ""
        yield f"{finding.severity} {finding.code}: {finding.message}{source}"
    if advice.findings:
        yield ""
    yield from (f"wrote `{path}`" for path in report.written)
    if not report.written:
        yield "nothing was written (--dry-run)"


def _prediction(prediction: Prediction) -> str:
    if not prediction.changes:
        if prediction.unmeasured:
            return f"none: {', '.join(f'`{name}`' for name in prediction.unmeasured)} not measured on such hardware"
        return f"as fast as the baseline for workload `{prediction.workload}`: no measured package differs"
    return (
        f"{prediction.speedup:.3f}x the baseline [{prediction.low:.3f}, {prediction.high:.3f}] at "
        f"{prediction.confidence:.0%}, workload `{prediction.workload}`"
    )


def _proposal(proposal: Proposal) -> str:
    first, *others = proposal.signs
    more = f" and {len(others)} more" if others else ""
    return f"{proposal.workload}, by the sources' {first}{more}; choose another with `--workload`"


def _current(report: AdviceResult) -> str:
    assert report.advice.current is not None
    locked, prediction = report.advice.current
    found = changes_from_current(report)
    if not found:
        return f"{count(len(locked), 'package')}: the recommended stack itself"
    added = sum(before == "-" for _, before, _ in found)
    removed = sum(after == "-" for _, _, after in found)
    moved = [name for name, before, after in found if "-" not in (before, after)]
    named = [name for name in moved if name in report.direct]
    also = f" (`{'`, `'.join(named[:_FEW])}`{' and others' if len(moved) > len(named[:_FEW]) else ''})" if named else ""
    speed = f"; the stack is predicted {prediction.speedup:.3f}x as fast" if prediction.changes else ""
    return (
        f"{count(len(locked), 'package')}: {len(moved)} would move{also}, {added} be added, {removed} be removed{speed}"
    )


def _proof(report: AdviceResult) -> str:
    optimum = report.advice.optimum
    gaps = ", ".join(f"{b.objective} gap {b.gap}" for b in optimum.bounds if b.gap)
    state = "optimal" if optimum.proven else f"feasible, not proven optimal ({gaps})"
    return (
        f"{state} over {optimum.candidates} candidate versions, {optimum.fetched} of them read, "
        f"in {count(optimum.iterations, 'iteration')}; verified by resolvelib"
    )


def _changes(report: AdviceResult) -> Iterator[str]:
    found = changes(report)
    if not found:
        yield "the recommended stack is the baseline: what pip would install, newest first"
        yield ""
        return
    told = [c for c in found if _worth_a_line(report, c)]
    width = max((len(name) for name, _, _ in told), default=0)
    yield "against the baseline (newest first, as pip):"
    for name, before, after in told:
        yield f"  {name:{width}}  {before} -> {after}  {report.advice.reasons.get(name, 'not needed any more')}"
    rest = [c for c in found if c not in told]
    if rest:
        added = sum(before == "-" for _, before, _ in rest)
        removed = sum(after == "-" for _, _, after in rest)
        others = len(rest) - added - removed
        yield (
            f"  and with them {len(rest)} of their dependencies: {added} added, {removed} removed, {others} at another "
            "version (`--format json` lists them)"
        )
    yield ""


def _worth_a_line(report: AdviceResult, change: tuple[str, str, str]) -> bool:
    """Whether a change is of a package that the user asked for, or that was measured; or there are few of them."""
    name, _, _ = change
    return (
        name in report.direct
        or any(c.package == name for c in report.advice.prediction.changes)
        or len(changes(report)) <= _FEW
    )


def _evidence(prediction: Prediction) -> Iterator[str]:
    for change in prediction.changes:
        yield f"evidence for `{change.package}`{'' if change.measured else ' (inferred from neighbouring versions)'}:"
        yield from _evidence_lines(change)
        yield ""


def _evidence_lines(change: PredictedChange) -> Iterator[str]:
    for e in change.evidence[:_FEW]:
        yield (
            f"  {e.version} against {e.reference}: {e.speedup:.3f}x [{e.low:.3f}, {e.high:.3f}], {e.rounds} rounds on "
            f"{e.hardware}: {e.indicator}"
        )
    if len(change.evidence) > _FEW:
        yield f"  and {len(change.evidence) - _FEW} more (`--format json` lists them)"
