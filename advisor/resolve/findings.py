"""Findings about a recommendation, each with a stable code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.domain.words import count, quoted, unmeasured_text
from advisor.index.configuration import without_credentials
from advisor.resolve.builds import TargetBuilds
from advisor.resolve.candidates import IndexCandidates, SkippedCandidates
from advisor.resolve.optimise import Optimum
from advisor.resolve.problem import Candidate
from knowledge.estimate.interface import Prediction
from knowledge.rules.engine import RuleBook
from knowledge.rules.model import Verdict

_CUDA_LIBRARIES = ("nvidia-", "cuda-")
"""First parts of the names of packages with NVIDIA's libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFinding:
    """A warning or a note about the recommendation.

    Attributes:
        code: Stable code, such as ``ADV101``.
        severity: ``warning`` or ``note``.
        message: One sentence.
        package: The package that it is about, or empty.
        source: Where the fact comes from, or empty.
    """

    code: str
    severity: str
    message: str
    package: str = ""
    source: str = ""


def violated_rules(stack: Sequence[Candidate], rules: RuleBook) -> list[Verdict]:
    """Return the verdicts of the rules that a stack violates."""
    versions = {str(c.name): c.version for c in stack}
    return [v for c in stack for v in rules.judge(c.name, c.version) if v.severity == "forbidden"] + [
        verdict for _, verdict in rules.judge_together(versions)
    ]


def collect_findings(
    optimum: Optimum,
    baseline: Sequence[Candidate],
    source: IndexCandidates,
    *,
    rules: RuleBook,
    builds: TargetBuilds,
    prediction: Prediction,
) -> tuple[AdviceFinding, ...]:
    """Return the findings about a stack, sorted by code."""
    findings = [
        AdviceFinding(
            code="ADV101",
            severity="warning",
            message=f"the newest versions do not run on the target: {v.message}",
            source=v.source,
        )
        for v in violated_rules(baseline, rules)
    ]
    for candidate in optimum.stack:
        for v in rules.judge(candidate.name, candidate.version):
            severity = "note" if v.severity == "note" else "warning"
            findings.append(
                AdviceFinding(
                    code="ADV102", severity=severity, message=v.message, package=candidate.name, source=v.source
                )
            )
        if source.variants and (message := source.variants.explain(candidate)):
            findings.append(AdviceFinding(code="ADV113", severity="note", message=message, package=candidate.name))
        if candidate.is_sdist:
            message = f"`{candidate.name} {candidate.version}` has no wheel for the target: installing it builds it"
            findings.append(AdviceFinding(code="ADV103", severity="warning", message=message, package=candidate.name))
    for package, extra in sorted(source.unknown_extras):
        if package in {c.name for c in optimum.stack}:
            message = f"`{package}` does not provide the extra `{extra}`"
            findings.append(AdviceFinding(code="ADV104", severity="warning", message=message, package=package))
    for package in prediction.unmeasured:
        message = f"{unmeasured_text([package], prediction.refused)}: its speed is not predicted"
        findings.append(AdviceFinding(code="ADV105", severity="note", message=message, package=package))
    if not optimum.proven:
        gaps = ", ".join(f"{b.objective} {b.gap}" for b in optimum.bounds if b.gap)
        findings.append(
            AdviceFinding(
                code="ADV106", severity="warning", message=f"not proven to be optimal for the score: the gap is {gaps}"
            )
        )
    elif not optimum.unique:
        message = "optimal for the score, but another stack with the same score may come first by name and version"
        findings.append(AdviceFinding(code="ADV106", severity="warning", message=message))
    findings += _build_findings(optimum.stack, source, builds)
    findings += _missing_records(optimum, source)
    findings += [_skip_finding(s) for s in source.skipped() if _is_reported(s)]
    return tuple(sorted(findings, key=lambda f: (f.code, f.package, f.message)))


def _build_findings(
    stack: Sequence[Candidate], source: IndexCandidates, builds: TargetBuilds
) -> Iterator[AdviceFinding]:
    """Yield the findings about the builds of a stack."""
    libraries = sum(candidate.name.startswith(_CUDA_LIBRARIES) for candidate in stack)
    for candidate in stack:
        build = builds.build_of(candidate.name, candidate.version)
        if build is None:
            continue
        text = f"`{candidate.name} {candidate.version}` is a build for {build}"
        if not builds.has_device(build):
            further = "" if source.has_further_builds else builds.publisher_hint(candidate.name)
            needs_libraries = build.runtime == "cuda" and libraries
            required = f"; it requires {count(libraries, 'package')} for CUDA" if needs_libraries else ""
            message = f"{text}, {builds.why(build)}{required}{further}"
            yield AdviceFinding(code="ADV110", severity="warning", message=message, package=candidate.name)
        elif len(builds.alternatives(candidate, source.candidates(candidate.name))) > 1:
            message = f"{text}, {builds.why(build)}; from `{without_credentials(candidate.file.index)}`"
            yield AdviceFinding(code="ADV109", severity="note", message=message, package=candidate.name)
    if failed := sorted(source.failed_builds.items()):
        names = quoted([without_credentials(base) for base, _ in failed])
        message = f"no build on {names} was considered: {failed[0][1].message}"
        yield AdviceFinding(code="ADV111", severity="warning", message=message)


def _is_reported(skipped: SkippedCandidates) -> bool:
    return any(part in skipped.reason for part in ("metadata", "upload time"))


def _skip_finding(skipped: SkippedCandidates) -> AdviceFinding:
    message = f"{skipped.count} file(s) of `{skipped.package}` cannot be candidates: {skipped.reason}"
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
