"""What the user should know about advice: each finding has a stable code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor.resolve.candidates import IndexCandidates, SkippedCandidates
from advisor.resolve.optimise import Optimum
from advisor.resolve.problem import Candidate
from knowledge.estimate.interface import Prediction
from knowledge.rules.engine import RuleBook
from knowledge.rules.model import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFinding:
    """Something the user should know about the advice.

    Attributes:
        code: Stable code, such as ``ADV101``.
        severity: ``warning`` or ``note``.
        message: One sentence.
        package: The package it is about, or empty.
        source: Where the fact comes from, or empty.
    """

    code: str
    severity: str
    message: str
    package: str = ""
    source: str = ""


def broken_rules(stack: Sequence[Candidate], rules: RuleBook) -> list[Verdict]:
    """Return the verdicts of the rules that forbid a stack."""
    versions = {str(c.name): c.version for c in stack}
    return [v for c in stack for v in rules.judge(c.name, c.version) if v.severity == "forbidden"] + [
        verdict for _, verdict in rules.judge_together(versions)
    ]


def find(
    optimum: Optimum,
    baseline: Sequence[Candidate],
    source: IndexCandidates,
    rules: RuleBook,
    prediction: Prediction,
) -> tuple[AdviceFinding, ...]:
    """Return the findings about a stack, in order of code."""
    found = [
        AdviceFinding(
            code="ADV101",
            severity="warning",
            message=f"the newest versions do not run on the target: {v.message}",
            source=v.source,
        )
        for v in broken_rules(baseline, rules)
    ]
    for candidate in optimum.stack:
        for v in rules.judge(candidate.name, candidate.version):
            severity = "note" if v.severity == "note" else "warning"
            found.append(
                AdviceFinding(
                    code="ADV102", severity=severity, message=v.message, package=candidate.name, source=v.source
                )
            )
        if candidate.is_sdist:
            message = f"`{candidate.name} {candidate.version}` has no wheel for the target: installing it builds it"
            found.append(AdviceFinding(code="ADV103", severity="warning", message=message, package=candidate.name))
    for package, extra in sorted(source.unknown_extras):
        if package in {c.name for c in optimum.stack}:
            message = f"`{package}` does not provide the extra `{extra}`"
            found.append(AdviceFinding(code="ADV104", severity="warning", message=message, package=package))
    for package in prediction.unmeasured:
        message = f"no comparable observation bears on `{package}`: its speed is not predicted"
        found.append(AdviceFinding(code="ADV105", severity="note", message=message, package=package))
    if not optimum.proven:
        gaps = ", ".join(f"{b.objective} {b.gap}" for b in optimum.bounds if b.gap)
        found.append(AdviceFinding(code="ADV106", severity="warning", message=f"not proven optimal: the gap is {gaps}"))
    elif not optimum.unique:
        message = "optimal, but not proven to be the first of the equally good stacks within the allowed work"
        found.append(AdviceFinding(code="ADV106", severity="warning", message=message))
    found += _unjudged(optimum, source)
    found += [_skip_finding(s) for s in source.skipped() if _worth_telling(s)]
    return tuple(sorted(found, key=lambda f: (f.code, f.package, f.message)))


def _worth_telling(skipped: SkippedCandidates) -> bool:
    return any(part in skipped.reason for part in ("metadata", "upload time"))


def _skip_finding(skipped: SkippedCandidates) -> AdviceFinding:
    message = f"{skipped.count} file(s) of `{skipped.package}` are no candidates: {skipped.reason}"
    return AdviceFinding(code="ADV107", severity="note", message=message, package=skipped.package)


def _unjudged(optimum: Optimum, source: IndexCandidates) -> list[AdviceFinding]:
    """Say where a criterion of the objective had nothing to go by."""
    asked = {bound.objective for bound in optimum.bounds}
    silent: dict[str, tuple[str, Callable[[Candidate], bool]]] = {
        "vulnerabilities": ("no vulnerability record", lambda c: source.vulnerabilities(c) is None),
        "young": ("no upload time", lambda c: c.file.uploaded is None),
    }
    found = []
    for criterion, (lack, lacks) in silent.items():
        count = sum(map(lacks, optimum.stack)) if criterion in asked else 0
        if count:
            message = f"the index gives {lack} of {count} of {len(optimum.stack)} packages: `{criterion}` ignores them"
            found.append(AdviceFinding(code="ADV108", severity="warning", message=message))
    return found
