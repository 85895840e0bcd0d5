"""Findings about a recommendation, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.domain.words import count, unknown_driver_text, unmeasured_text
from advisor.resolve.build_findings import build_findings
from advisor.resolve.candidates import IndexCandidates, SkippedCandidates
from advisor.resolve.finding_types import AdviceFinding
from advisor.resolve.objectives import CRITERIA
from advisor.resolve.optimum import Optimum
from advisor.resolve.problem import Candidate
from advisor.resolve.slowdowns import slowdown_texts
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Verdict
from knowledge.estimate.interface import Prediction
from pi_runners.vocabulary import FRAMEWORKS

if TYPE_CHECKING:
    from advisor.resolve.request import ResolutionRequest


def violated_rules(versions: Mapping[str, Version], rules: RuleBook) -> list[Verdict]:
    """Return the verdicts of the rules that say why a stack does not run on the target."""
    alone = [verdict for name, version in versions.items() for verdict in rules.judge(name, version)]
    verdicts = [*alone, *(verdict for _, verdict in rules.judge_together(versions))]
    return [verdict for verdict in verdicts if verdict.severity == "forbidden"]


def run_obstacle(label: str, versions: Mapping[str, Version], request: ResolutionRequest) -> str:
    """Return why a stack does not run on the target, by the rules or by observed failures; empty if it does.

    Args:
        label: What to call the stack.
        versions: Its versions.
        request: The request, with the rules and the observations.
    """
    reasons = [verdict.message for verdict in violated_rules(versions, request.rules)]
    for name in sorted(FRAMEWORKS.keys() & versions.keys()):
        if reason := request.estimator.failures(name).get(str(versions[name])):
            reasons.append(f"`{name} {versions[name]}` failed to run on comparable hardware: {reason}")
    return f"{label} does not run on the target: {reasons[0]}" if reasons else ""


def collect_findings(
    request: ResolutionRequest,
    optimum: Optimum,
    prediction: Prediction,
    *,
    current: Mapping[str, Version] | None = None,
) -> tuple[AdviceFinding, ...]:
    """Return the findings about the best stack of a request, sorted by code.

    Args:
        request: The request.
        optimum: Its best stack.
        prediction: Predicted speed-up of the stack over the baseline.
        current: Currently locked versions, by package; none if there is no lock.
    """
    source, rules = request.source, request.rules
    findings = [
        AdviceFinding(
            code="ADV101",
            severity="warning",
            message=f"the newest versions do not run on the target: {v.message}",
            source=v.source,
        )
        for v in violated_rules({str(c.name): c.version for c in request.baseline}, rules)
    ]
    for candidate in optimum.stack:
        for v in rules.judge(candidate.name, candidate.version):
            severity = "note" if v.severity == "note" else "warning"
            code = "ADV120" if severity == "note" and v.about == "vendor" else "ADV102"
            findings.append(
                AdviceFinding(code=code, severity=severity, message=v.message, package=candidate.name, source=v.source)
            )
        if source.variants and (message := source.variants.explain(candidate)):
            findings.append(AdviceFinding(code="ADV113", severity="note", message=message, package=candidate.name))
        if candidate.is_sdist:
            message = f"`{candidate.name} {candidate.version}` has no wheel for the target: installing it builds it"
            findings.append(AdviceFinding(code="ADV103", severity="warning", message=message, package=candidate.name))
    for package, extra in sorted(source.unknown_extras):
        if package in {c.name for c in optimum.stack} and _is_required(request, package, extra):
            message = f"`{package}` does not provide the extra `{extra}`"
            findings.append(AdviceFinding(code="ADV104", severity="warning", message=message, package=package))
    for package in prediction.unmeasured:
        message = f"{unmeasured_text([package])}: its speed is not predicted"
        findings.append(AdviceFinding(code="ADV105", severity="note", message=message, package=package))
    versions = {str(c.name): c.version for c in optimum.stack}
    for package, newest in prediction.newest_measured:
        message = (
            f"`{package} {versions[package]}` is newer than the newest version that was compared on such hardware, "
            f"`{newest}`: what it changed is not known"
        )
        findings.append(AdviceFinding(code="ADV118", severity="note", message=message, package=package))
    findings += _unknown_driver(rules, versions)
    if not optimum.proven:
        message = f"not proven to be optimal for the score: {', '.join(optimum.doubts)}"
        findings.append(AdviceFinding(code="ADV106", severity="warning", message=message))
    elif not optimum.unique:
        message = "optimal for the score, but another stack with the same score may come first by name and version"
        findings.append(AdviceFinding(code="ADV106", severity="warning", message=message))
    findings += (*request.findings, *build_findings(request, optimum.stack))
    findings += _slowdown_findings(request, optimum.stack, current or {})
    findings += _missing_records(optimum, source)
    findings += [_skip_finding(s) for s in source.skipped() if _is_reported(s)]
    return tuple(sorted(findings, key=lambda f: (f.code, f.package, f.message)))


def _unknown_driver(rules: RuleBook, versions: Mapping[str, Version]) -> Iterator[AdviceFinding]:
    """Yield which driver a stack needs, if nobody said which one the target has."""
    if (runtime := rules.runtime_without_driver(versions)) is not None:
        message = unknown_driver_text(runtime)
        yield AdviceFinding(code="ADV119", severity="note", message=message, source=runtime.source)


def _is_required(request: ResolutionRequest, package: str, extra: str) -> bool:
    """Whether an extra is required, and was not only considered for the target's accelerator."""
    name = canonicalize_name(package)
    roots = request.problem.roots_of(name)
    considered = {canonicalize_name(other) for other in request.builds.extra_names(name)}
    required = {canonicalize_name(other) for root in roots for other in root.requirement.extras}
    return extra not in considered or extra in required or not roots


def _slowdown_findings(
    request: ResolutionRequest, stack: Sequence[Candidate], current: Mapping[str, Version]
) -> Iterator[AdviceFinding]:
    """Yield the documented slow-downs of a stack, and those of the baseline and the current lock that it avoids."""
    estimator = request.estimator if "speed" in CRITERIA[request.objective] else None
    versions = {str(c.name): c.version for c in stack}
    remaining = set()
    for rule, name, text in slowdown_texts(
        versions, request.rules, estimator=estimator, min_gain=request.criteria.min_gain
    ):
        remaining.add(rule.id)
        yield AdviceFinding(code="ADV116", severity="warning", message=text, package=name, source=rule.source)
    for label, before in (
        (
            "the newest versions, not the recommended ones, have",
            {str(c.name): c.version for c in request.baseline},
        ),
        ("the current lock, not the recommended one, has", current),
    ):
        for rule, name, text in slowdown_texts(before, request.rules):
            if rule.id not in remaining:
                message = f"{label} a documented slow-down: {text}"
                yield AdviceFinding(code="ADV117", severity="note", message=message, package=name, source=rule.source)


def _is_reported(skipped: SkippedCandidates) -> bool:
    return any(part in skipped.reason for part in ("metadata", "upload time"))


def _skip_finding(skipped: SkippedCandidates) -> AdviceFinding:
    message = (
        f"{count(skipped.count, 'file')} of `{skipped.package}` cannot be used: {skipped.reason} (`{skipped.example}`)"
    )
    return AdviceFinding(code="ADV107", severity="note", message=message, package=skipped.package)


def _missing_records(optimum: Optimum, source: IndexCandidates) -> list[AdviceFinding]:
    """Return findings about criteria of the objective for which the index has no data."""
    criteria = {bound.objective for bound in optimum.bounds}
    record_checks: dict[str, tuple[str, Callable[[Candidate], bool]]] = {
        "vulnerabilities": ("no vulnerability record", lambda c: source.vulnerabilities(c) is None),
        "young": ("no upload time", lambda c: c.file.uploaded is None),
    }
    findings = []
    for criterion, (missing, is_missing) in record_checks.items():
        number = sum(map(is_missing, optimum.stack)) if criterion in criteria else 0
        if number:
            message = f"there is {missing} for {number} of {len(optimum.stack)} packages: `{criterion}` ignores them"
            findings.append(AdviceFinding(code="ADV108", severity="warning", message=message))
    return findings
