"""Phrases that several formats of the gate's report share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from advisor.domain.words import (
    count,
    interval_text,
    no_speedup_text,
    operations_text,
    quoted,
    ratio_text,
    size_texts,
    speed_text,
    workload_text,
)
from advisor.gate.check import GateResult, TargetResult
from advisor.gate.comparison import PackageChange, SettingChange
from advisor.gate.findings import Cause, Finding, Place, gate_codes
from advisor.gate.verdict import ChangeVerdict, Recovery
from knowledge.domain.ratio import Ratio
from knowledge.estimate.interface import Effect, Prediction

_SAME_SIZE = 0.01
"""Difference of two downloads, as a fraction, that reports leave out."""


def count_findings(result: GateResult) -> str:
    """Return the number of findings of each level, such as ``1 error, 0 warnings, 2 notes``."""
    counts = Counter(finding.level for finding in result.findings)
    parts = [count(counts[level], level) for level in ("error", "warning", "note")]
    ignored = f", {len(result.ignored)} ignored" if result.ignored else ""
    return ", ".join(parts) + ignored


def equal_findings(findings: Iterable[Finding]) -> list[Sequence[Finding]]:
    """Return findings in groups that say the same of several places, each where the first of them was."""
    groups: dict[Finding, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(replace(finding, place=Place(), subject="", cause=Cause()), []).append(finding)
    return list(groups.values())


def places_and_name(same: Sequence[Finding]) -> str:
    """Return the places of equal findings and their code: ``a.py:2, b.py:7: ADV016 slow-setting (2 places)``."""
    finding = same[0]
    places = ", ".join(dict.fromkeys(str(f.place) for f in same if f.place.path))
    number = f" ({len(same)} places)" if len(same) > 1 else ""
    return f"{places}{': ' if places else ''}{finding.code} {gate_codes()[finding.code].name}{number}"


def target_names(finding: Finding, result: GateResult) -> str:
    """Return the names of a finding's targets; empty if it applies to all targets."""
    names = [name for name in finding.targets if name]
    return ", ".join(names) if names and len(finding.targets) < len(result.targets) else ""


def message_with_targets(finding: Finding, result: GateResult) -> str:
    """Return the message of a finding, with its targets if it does not apply to all."""
    names = target_names(finding, result)
    return f"{finding.message} (target {names})" if names else finding.message


def describe_prediction(prediction: Prediction | None, not_predicted: str = "") -> str:
    """Return a predicted speed-up with its interval, or why there is none."""
    if prediction is None:
        return f"not predicted: {not_predicted}"
    if prediction.is_same:
        return "no significant difference: no package differs"
    if prediction.is_known:
        return f"{speed_text(prediction)}, {workload_text(prediction)}{operations_text(prediction)}"
    return f"not predicted: {no_speedup_text(prediction)}"


def describe_verdict(verdict: ChangeVerdict, prediction: Prediction | None) -> str:
    """Return the verdict on a change with its speed and what that rests on, or why it is not known."""
    names = {"no-difference": "no difference", "not-known": "not known"}
    name = names.get(verdict.outcome, verdict.outcome)
    if verdict.speed is None:
        return f"{name}: {verdict.reason}"
    if verdict.outcome == "no-difference":
        name += f" beyond {100 * verdict.tolerance:g} %"
    times = "" if verdict.outcome == "no-difference" else " times as fast"
    text = f"{name}: {ratio_text(verdict.speed.speedup)}{times} {interval_text(verdict.speed)}"
    if verdict.is_measured:
        return f"{text}; measured here"
    if prediction is not None and prediction.changes:
        text += f", {workload_text(prediction)}{operations_text(prediction)}"
    basis = [count(verdict.rows, "comparison")] if verdict.rows else []
    basis += [count(verdict.reports, "public report")] if verdict.reports else []
    basis += [f"{quoted(verdict.not_compared)} not compared"] if verdict.not_compared else []
    return "; ".join([text, *basis])


def describe_recovery(recovery: Recovery) -> str:
    """Return what recovers a loss, with the predicted speed over the base."""
    if recovery.speed is None:
        return f"work-around: {recovery.what}"
    return f"`{recovery.what}`: {speed_of_base(recovery.speed)}"


def speed_of_base(speed: Ratio) -> str:
    """Return a speed over that of the base in a few words."""
    return f"{ratio_text(speed.speedup)} times as fast as the base {interval_text(speed)}"


def describe_measurement(verdict: ChangeVerdict) -> str:
    """Return how long a measurement would take that settles a verdict; empty if it is settled or that is not known."""
    if verdict.minutes is None:
        is_open = verdict.outcome == "not-known" and verdict.has_frameworks and not verdict.is_measured
        hint = "`--measure TIME` on the target decides it, with a benchmark of the project or a `--workload`"
        return hint if is_open and not verdict.is_obstructed else ""
    minutes = count(verdict.minutes, "more minute" if verdict.is_measured else "minute")
    return f"about {minutes} on the target decide it: add `--measure {verdict.minutes}m` to `advisor verdict`"


def verdict_items(verdict: ChangeVerdict) -> list[tuple[str, str]]:
    """Return what recovers a loss, what would decide the verdict, the download, and what is resolved, with sources."""
    return [
        *((f"Recovery: {describe_recovery(recovery)}", recovery.source) for recovery in verdict.recoveries),
        *((f"Measurement: {text}", "") for text in filter(None, [describe_measurement(verdict)])),
        *((f"Size: {text}", "") for text in filter(None, [describe_sizes(verdict)])),
        *((f"Resolves {f.code} {gate_codes()[f.code].name}: {f.message}", f.source) for f in verdict.resolved),
    ]


def describe_sizes(verdict: ChangeVerdict) -> str:
    """Return the download before and after a change; empty if it is not known, or about the same."""
    if verdict.sizes is None or abs(verdict.sizes[0] - verdict.sizes[1]) <= _SAME_SIZE * verdict.sizes[0]:
        return ""
    before, after = size_texts(*verdict.sizes)
    return f"{before} -> {after} to download"


def listed_effects(prediction: Prediction | None, effects: Sequence[Effect]) -> Sequence[Effect]:
    """Return the effects of a change to list: all of them if one is significant, otherwise none."""
    if prediction is None or not prediction.changes or not any(e.is_significant for e in effects):
        return ()
    return effects


def describe_changes(changes: Iterable[PackageChange]) -> str:
    """Return the number of changes of each kind, such as ``2 upgraded, 1 added``."""
    counts = Counter(change.kind for change in changes)
    parts = [f"{counts[kind]} {kind}" for kind in ("upgraded", "downgraded", "added", "removed") if counts[kind]]
    return ", ".join(parts) or "no package differs"


def change_document(change: PackageChange) -> dict[str, str | None]:
    """Return a changed package as JSON-ready values."""
    before, after = (None if version is None else str(version) for version in (change.before, change.after))
    return {"package": change.package, "kind": change.kind, "before": before, "after": after}


def describe_setting(change: SettingChange, not_predicted: str = "") -> str:
    """Return a changed setting with its predicted effects, or why there is none."""
    effects = [f"{effect.package} {speed_text(effect)}" for effect in change.effects]
    reason = "not predicted" if not_predicted else "effect not measured"
    return f"{change.text}: {', '.join(effects) or reason}"


def describe_gap(target_result: TargetResult) -> str:
    """Return how a lock compares with the recommended stack."""
    if target_result.recommended is None:
        return "not known"
    lock = target_result.case.head.lock
    # Locks record no version of a directory, and some none of a repository.
    unversioned = {source.name for source in lock.sources} - lock.versions.keys()
    differing = sum(
        lock.versions.get(name) != version
        for name, version in target_result.recommended.versions.items()
        if name not in unversioned
    )
    proof = "" if target_result.recommended.proven else " (not proven to be optimal for the score)"
    if not differing:
        but = f", but {target_result.not_predicted}" if target_result.not_predicted else ""
        return f"no version differs from the recommended stack{proof}{but}"
    verb = "differs" if differing == 1 else "differ"
    speed = describe_prediction(target_result.recommended_prediction, target_result.not_predicted)
    if total := target_result.gain_with_settings:
        speed += f"; with its settings {speed_text(total)}"
    return f"{count(differing, 'package')} {verb}{proof}; speed of the recommended stack over the lock: {speed}"
