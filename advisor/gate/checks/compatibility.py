"""Checks that a locked stack runs on the target, and that its speed there has been measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain.words import unknown_driver_text, unmeasured_text
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.resolve.score.slowdowns import slowdown_texts
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Subject, Verdict, shipped_rules
from knowledge.domain.frameworks import FRAMEWORKS

_CODES: dict[Subject, str] = {
    "abi": "ADV006",
    "combination": "ADV002",
    "driver": "ADV003",
    "capability": "ADV004",
    "vendor": "ADV004",
    "cpu-only": "ADV018",
    "tested": "ADV018",
}


def check_compatibility(scope: Scope) -> Iterator[Finding]:
    """Yield what rules say about the locked versions on the target, one by one and together."""
    rules, versions = _rules(scope), scope.lock.versions
    for name in versions:
        for verdict in rules.judge(name, versions[name]):
            if verdict.severity != "note":
                yield _verdict_finding(scope, verdict, verdict.message, [name])
    for rule, verdict in rules.judge_together(versions):
        pair = [rule.package, rule.other]
        message = f"{' together with '.join(f'`{name} {versions[name]}`' for name in pair)}: {verdict.message}"
        yield _verdict_finding(scope, verdict, message, pair)


def _verdict_finding(scope: Scope, verdict: Verdict, message: str, packages: Sequence[str]) -> Finding:
    """Return the finding about a verdict on packages, the last of which could change."""
    return scope.finding(
        _CODES[verdict.about] if verdict.severity == "forbidden" else "ADV018",
        message,
        package=packages[-1],
        subject=verdict.rule,
        source=verdict.source,
        cause=_cause(scope, packages),
    )


def check_slowdowns(scope: Scope) -> Iterator[Finding]:
    """Yield documented slow-downs of the locked versions, and a runtime whose driver is not known."""
    rules, versions = _rules(scope), scope.lock.versions
    for slow, name, text in slowdown_texts(versions, rules):
        cause = _cause(scope, (name, slow.other) if slow.other else (name,))
        yield scope.finding("ADV033", text, package=name, subject=slow.id, source=slow.source, cause=cause)
    if (runtime := rules.runtime_without_driver(versions)) is not None:
        yield scope.finding("ADV039", unknown_driver_text(runtime), source=runtime.source)


def check_observations(scope: Scope) -> Iterator[Finding]:
    """Yield the locked frameworks that failed to run on comparable hardware, and those that nobody measured there."""
    predictor, measured = scope.case.predictor, {n: v for n, v in scope.lock.versions.items() if n in FRAMEWORKS}
    for name, version in measured.items():
        reason = predictor.failures(name).get(str(version))
        if reason is not None:
            message = f"`{name} {version}` failed to run on comparable hardware: {reason}"
            yield scope.finding("ADV005", message, package=name, cause=_cause(scope, [name]))
    for name in predictor.predict(measured, measured).unmeasured if measured else ():
        message = f"{unmeasured_text([name])}: its speed is not predicted"
        yield scope.finding("ADV017", message, package=name)


def _cause(scope: Scope, packages: Sequence[str]) -> Cause:
    return Cause.of({name: scope.lock.versions[name] for name in packages})


def _rules(scope: Scope) -> RuleBook:
    return RuleBook(shipped_rules(), scope.problem.target.hardware)


STATE_CHECKS = (check_compatibility, check_slowdowns, check_observations)
