"""Words and numbers that several formats of the gate's report share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.compare import PackageChange
from advisor.gate.findings import Finding
from advisor.report.words import count
from knowledge.estimate.interface import Prediction


def count_findings(result: GateResult) -> str:
    """Say how many findings there are, by level."""
    counts = Counter(finding.level for finding in result.findings)
    told = [count(counts[level], level) for level in ("error", "warning", "note")]
    covered = f", {len(result.ignored)} ignored" if result.ignored else ""
    return ", ".join(told) + covered


def target_names(finding: Finding, result: GateResult) -> str:
    """Name the targets of a finding, where it does not hold for all of several."""
    named = [name for name in finding.targets if name]
    return ", ".join(named) if named and len(finding.targets) < len(result.targets) else ""


def describe_prediction(prediction: Prediction) -> str:
    """Say a predicted speed-up with its interval."""
    if prediction.changes:
        return (
            f"{prediction.speedup:.3f}x [{prediction.low:.3f}, {prediction.high:.3f}] at {prediction.confidence:.0%}, "
            f"workload `{prediction.workload}`"
        )
    if prediction.unmeasured:
        return f"not predicted: {', '.join(f'`{name}`' for name in prediction.unmeasured)} not measured"
    return f"no change for workload `{prediction.workload}`: no measured package differs"


def describe_changes(changes: Iterable[PackageChange]) -> str:
    """Count changes by kind."""
    counts = Counter(change.kind for change in changes)
    told = [f"{counts[kind]} {kind}" for kind in ("upgraded", "downgraded", "added", "removed") if counts[kind]]
    return ", ".join(told) or "no package differs"


def describe_gap(target_result: TargetResult) -> str:
    """Say how a lock stands against the recommended stack."""
    if target_result.recommended is None or target_result.recommended_prediction is None:
        return "not known"
    versions = target_result.case.head.lock.versions
    differing = sum(versions.get(name) != version for name, version in target_result.recommended.versions.items())
    proof = "" if target_result.recommended.proven else " (not proven to be the best)"
    if not differing:
        return f"the lock is the recommended stack{proof}"
    verb = "differs" if differing == 1 else "differ"
    speed = describe_prediction(target_result.recommended_prediction)
    return f"{count(differing, 'package')} {verb}{proof}; its speed over the lock: {speed}"
