"""The gate's report as one self-contained page."""

from __future__ import annotations

from typing import Any

from advisor.gate.check import Examined, GateResult
from advisor.gate.codes import gate_codes
from advisor.report.check.summary import behind_words, change_words, counted, speed_words, targets_of
from advisor.report.html import Interval, evidence_of, plot, render, tree
from advisor.report.interface import target_line


def check_html(judgement: GateResult) -> str:
    """Return the report as a page."""
    return render(
        "check.html",
        title=f"gate {judgement.state}",
        state=judgement.state,
        counted=counted(judgement),
        findings=[(finding, targets_of(finding, judgement)) for finding in judgement.findings],
        codes=gate_codes(),
        failures=judgement.failures,
        covered=judgement.covered,
        targets=[_target(examined) for examined in judgement.targets],
    )


def _target(examined: Examined) -> dict[str, Any]:
    case = examined.case
    versions = {name: str(version) for name, version in case.head.lock.versions.items()}
    told: dict[str, Any] = {
        "name": case.name,
        "line": target_line(case.head.problem.target),
        "lock": str(case.head.lock.path or "the environment"),
        "versions": sorted(versions.items()),
        "behind": behind_words(examined),
        "recommended": {},
        "prospect": None,
        "comparison": None,
        "tree": () if examined.failure else tree(examined.required(), versions),
    }
    if examined.recommended is not None and examined.prospect is not None:
        told["recommended"] = {n: str(v) for n, v in examined.recommended.versions.items()}
        if examined.prospect.changes:
            told["prospect"] = plot(evidence_of(examined.prospect.changes))
    if examined.comparison is not None:
        found = examined.comparison
        effects = [Interval(label=e.subject, value=e.speedup, low=e.low, high=e.high) for e in found.effects]
        told["comparison"] = {
            "base": found.base,
            "changes": found.changes,
            "counted": change_words(found.changes),
            "speed": speed_words(found.prediction),
            "plot": plot(effects),
        }
    return told
