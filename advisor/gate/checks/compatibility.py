"""Checks that a locked stack runs on the target, and that its speed there has been measured."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain.words import unknown_driver_text, unmeasured_text
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.resolve.score.slowdowns import slowdown_texts
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Subject, shipped_rules
from knowledge.domain.frameworks import FRAMEWORKS

CODES = ("ADV002", "ADV003", "ADV004", "ADV005", "ADV006", "ADV017", "ADV018", "ADV033", "ADV039")
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
    rules = _rules(scope)
    versions = scope.lock.versions
    for name, version in versions.items():
        for verdict in rules.judge(name, version):
            if verdict.severity == "note":
                continue
            code = _CODES[verdict.about] if verdict.severity == "forbidden" else "ADV018"
            yield scope.finding(
                code,
                verdict.message,
                package=name,
                subject=verdict.rule,
                source=verdict.source,
                cause=Cause.of({name: version}),
            )
    for rule, verdict in rules.judge_together(versions):
        yield scope.finding(
            _CODES[verdict.about] if verdict.severity == "forbidden" else "ADV018",
            f"`{rule.package} {versions[rule.package]}` together with `{rule.other} {versions[rule.other]}`: "
            f"{verdict.message}",
            package=rule.other,
            subject=verdict.rule,
            source=verdict.source,
            cause=Cause.of({rule.package: versions[rule.package], rule.other: versions[rule.other]}),
        )


def check_slowdowns(scope: Scope) -> Iterator[Finding]:
    """Yield documented slow-downs of the locked versions, and a runtime whose driver is not known."""
    rules, versions = _rules(scope), scope.lock.versions
    for slow, name, text in slowdown_texts(versions, rules):
        involved = (name, slow.other) if slow.other else (name,)
        yield scope.finding(
            "ADV033",
            text,
            package=name,
            subject=slow.id,
            source=slow.source,
            cause=Cause.of({package: versions[package] for package in involved}),
        )
    if (runtime := rules.runtime_without_driver(versions)) is not None:
        yield scope.finding("ADV039", unknown_driver_text(runtime), source=runtime.source)


def check_observations(scope: Scope) -> Iterator[Finding]:
    """Yield the locked frameworks that failed to run on comparable hardware, and those that nobody measured there."""
    predictor, measured = scope.predictor, {n: v for n, v in scope.lock.versions.items() if n in FRAMEWORKS}
    for name, version in measured.items():
        reason = predictor.failures(name).get(str(version))
        if reason is not None:
            yield scope.finding(
                "ADV005",
                f"`{name} {version}` failed to run on comparable hardware: {reason}",
                package=name,
                cause=Cause.of({name: version}),
            )
    if measured:
        prediction = predictor.predict(measured, measured)
        for name in prediction.unmeasured:
            message = f"{unmeasured_text([name])}: its speed is not predicted"
            yield scope.finding("ADV017", message, package=name)


def _rules(scope: Scope) -> RuleBook:
    return RuleBook(shipped_rules(), scope.problem.target.hardware)
