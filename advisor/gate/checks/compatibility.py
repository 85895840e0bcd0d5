"""Checks that a locked stack runs on the target, and that its speed there has been measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from packaging.version import Version

from advisor.domain.words import unknown_driver_text, unmeasured_text
from advisor.gate.findings import Cause, Finding
from advisor.gate.scope import Scope
from advisor.resolve.score.predictor import Predictor
from advisor.resolve.score.slowdowns import slowdown_texts
from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import Subject

_CODES: dict[Subject, str] = {
    "abi": "ADV006",
    "combination": "ADV002",
    "driver": "ADV003",
    "capability": "ADV004",
    "vendor": "ADV004",
    "cpu-only": "ADV018",
    "tested": "ADV018",
}


def check_compatibility(
    scope: Scope, rules: RuleBook, predictor: Predictor, *, frameworks: Collection[str]
) -> Iterator[Finding]:
    """Yield what rules and observations report against a lock on the target.

    Args:
        scope: The lock, the target and the policy.
        rules: The rules that apply to the target.
        predictor: Predictions from the observations.
        frameworks: Packages that are measured.
    """
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
    yield from _check_observations(scope, predictor, {n: v for n, v in versions.items() if n in frameworks})


def _check_observations(scope: Scope, predictor: Predictor, measured: Mapping[str, Version]) -> Iterator[Finding]:
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
