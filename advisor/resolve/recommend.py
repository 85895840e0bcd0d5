"""From a problem to verified advice: baseline, rules, score, optimum, verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.resolve.baseline import Impossible, resolve_baseline
from advisor.resolve.candidates import IndexCandidates, Skipped
from advisor.resolve.explain import explain_stack
from advisor.resolve.objectives import Criteria, ObjectiveName
from advisor.resolve.optimise import NoSolution, Optimum, optimise
from advisor.resolve.problem import Candidate, Problem
from advisor.resolve.verify import verify
from knowledge.estimate.interface import Estimator, Prediction
from knowledge.rules.engine import RuleBook
from knowledge.rules.model import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended stack with everything that supports it.

    Attributes:
        objective: What was optimised.
        baseline: What a plain resolver would choose, or empty where it found nothing.
        optimum: The recommended stack and its proof.
        prediction: Predicted speed-up over the baseline.
        findings: In order of code.
        why: One sentence for each package of the stack.
        behind: Years behind the newest candidates: of the stack, and of the baseline.
    """

    objective: ObjectiveName
    baseline: tuple[Candidate, ...]
    optimum: Optimum
    prediction: Prediction
    findings: tuple[Finding, ...]
    why: dict[str, str]
    behind: tuple[float, float]


def recommend(
    problem: Problem,
    source: IndexCandidates,
    *,
    rules: RuleBook,
    estimator: Estimator,
    objective: ObjectiveName,
) -> Advice:
    """Resolve a problem into the best stack.

    Raises:
        InputError: If a package of the user's own is not on any index.
        Impossible: If no stack satisfies the requirements, or none that the rules allow.
        UnavailableError: If the index cannot be read.
        VerificationError: If the independent resolver rejects the optimum.
    """
    _check_roots(problem, source)
    baseline = resolve_baseline(problem, source)
    direct = {root.name for root in problem.roots if not root.constraint}
    criteria = Criteria(rules=rules, estimator=estimator, objective=objective, direct=direct, baseline=baseline)
    try:
        optimum = optimise(problem, source, objectives=criteria.objectives, limits=criteria.limits, start=baseline)
    except NoSolution:
        raise Impossible(
            "no set of versions satisfies both the requirements and the rules for the target",
            details=tuple(f"rule `{v.rule}`: {v.message} ({v.source})" for v in _against(baseline, rules)),
            hint="relax the requirement on the named package, or choose another target with `--hardware`",
        ) from None
    verify(problem, source, optimum.stack)
    prediction = estimator.predict(
        {str(c.name): c.version for c in optimum.stack}, {str(c.name): c.version for c in baseline}
    )
    return Advice(
        objective=objective,
        baseline=baseline,
        optimum=optimum,
        prediction=prediction,
        findings=_findings(optimum, baseline, source, rules, prediction),
        why=explain_stack(problem, source, stack=optimum.stack, baseline=baseline, rules=rules, prediction=prediction),
        behind=(criteria.libyears(optimum.stack, source), criteria.libyears(baseline, source)),
    )


def _check_roots(problem: Problem, source: IndexCandidates) -> None:
    source.prefetch(root.name for root in problem.roots if not root.constraint)
    for root in problem.roots:
        if root.constraint or not problem.applies(root.requirement):
            continue
        if not source.knows(root.name):
            raise Impossible(
                f"package `{root.name}`, required by {root.origin}, is not on any configured index",
                hint="check the spelling, or name the index with `--index-url` or `--extra-index-url`",
            )
        if not source.candidates(root.name):
            reasons = "; ".join(f"{s.count} {s.reason}" for s in source.skipped() if s.package == root.name)
            raise Impossible(
                f"no version of `{root.name}`, required by {root.origin}, can be installed on the target: {reasons}",
                hint="choose another `--python` or `--platform`",
            )


def _against(stack: Sequence[Candidate], rules: RuleBook) -> list[Verdict]:
    return [v for c in stack for v in rules.judge(c.name, c.version) if v.severity == "forbidden"] + [
        Verdict(rule=rule.id, severity=rule.severity, message=rule.message, source=rule.source)
        for rule in rules.conflicts
        if any(c.name == rule.package and rules.admits(rule.versions, c.version) for c in stack)
        and any(c.name == rule.other and rules.admits(rule.other_versions, c.version) for c in stack)
    ]


def _findings(
    optimum: Optimum,
    baseline: Sequence[Candidate],
    source: IndexCandidates,
    rules: RuleBook,
    prediction: Prediction,
) -> tuple[Finding, ...]:
    found = [
        Finding(
            code="ADV101",
            severity="warning",
            message=f"the newest versions do not run on the target: {v.message}",
            source=v.source,
        )
        for v in _against(baseline, rules)
    ]
    for candidate in optimum.stack:
        for v in rules.judge(candidate.name, candidate.version):
            severity = "note" if v.severity == "note" else "warning"
            found.append(
                Finding(code="ADV102", severity=severity, message=v.message, package=candidate.name, source=v.source)
            )
        if candidate.is_sdist:
            message = f"`{candidate.name} {candidate.version}` has no wheel for the target: installing it builds it"
            found.append(Finding(code="ADV103", severity="warning", message=message, package=candidate.name))
    for package, extra in sorted(source.unknown_extras):
        if package in {c.name for c in optimum.stack}:
            message = f"`{package}` does not provide the extra `{extra}`"
            found.append(Finding(code="ADV104", severity="warning", message=message, package=package))
    for package in prediction.unmeasured:
        message = f"no comparable observation bears on `{package}`: its speed is not predicted"
        found.append(Finding(code="ADV105", severity="note", message=message, package=package))
    if not optimum.proven:
        gaps = ", ".join(f"{b.objective} {b.gap}" for b in optimum.bounds if b.gap)
        found.append(Finding(code="ADV106", severity="warning", message=f"not proven optimal: the gap is {gaps}"))
    found += [_skip_finding(s) for s in source.skipped() if _worth_telling(s)]
    return tuple(sorted(found, key=lambda f: (f.code, f.package, f.message)))


def _worth_telling(skipped: Skipped) -> bool:
    return "metadata" in skipped.reason or "upload time" in skipped.reason


def _skip_finding(skipped: Skipped) -> Finding:
    message = f"{skipped.count} file(s) of `{skipped.package}` are no candidates: {skipped.reason}"
    return Finding(code="ADV107", severity="note", message=message, package=skipped.package)
