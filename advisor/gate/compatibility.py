"""Whether a locked stack runs on the target, and whether anything is known of its speed there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from packaging.version import Version

from advisor.gate.findings import Finding
from advisor.gate.prediction import Outlook
from advisor.gate.scope import Scope
from knowledge.rules.engine import RuleBook
from knowledge.rules.model import Subject

_CODES: dict[Subject, str] = {
    "abi": "ADV006",
    "combination": "ADV002",
    "driver": "ADV003",
    "capability": "ADV004",
    "vendor": "ADV004",
    "cpu-only": "ADV018",
    "tested": "ADV018",
}


def unfit(scope: Scope, rules: RuleBook, outlook: Outlook, *, frameworks: Collection[str]) -> Iterator[Finding]:
    """Yield what rules and observations say against a lock on the target.

    Args:
        scope: What is examined.
        rules: The rules on the target.
        outlook: What the observations imply.
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
                versions={name: version},
            )
    for rule, verdict in rules.judge_together(versions):
        yield scope.finding(
            _CODES[verdict.about] if verdict.severity == "forbidden" else "ADV018",
            f"`{rule.package} {versions[rule.package]}` beside `{rule.other} {versions[rule.other]}`: "
            f"{verdict.message}",
            package=rule.other,
            subject=verdict.rule,
            source=verdict.source,
            versions={rule.package: versions[rule.package], rule.other: versions[rule.other]},
        )
    yield from _observed(scope, outlook, {n: v for n, v in versions.items() if n in frameworks})


def _observed(scope: Scope, outlook: Outlook, measured: Mapping[str, Version]) -> Iterator[Finding]:
    for name, version in measured.items():
        reason = outlook.failures(name).get(str(version))
        if reason is not None:
            yield scope.finding(
                "ADV005",
                f"`{name} {version}` was seen not to run on like hardware: {reason}",
                package=name,
                versions={name: version},
            )
    for name in outlook.predict(measured, measured).unmeasured if measured else ():
        yield scope.finding(
            "ADV017", f"no comparable observation bears on `{name}`: its speed is not predicted", package=name
        )
