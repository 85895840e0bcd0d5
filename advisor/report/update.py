"""Reports of a lock change: for the terminal, as JSON, and as the text of a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator

from packaging.version import Version

from advisor.api.update import NO_LOCK, LockChange
from advisor.domain.words import count
from advisor.gate.codes import gate_codes
from advisor.gate.compare import PackageChange
from advisor.report.check.markdown import effect_lines, table
from advisor.report.check.summary import describe_changes, describe_prediction, listed_effects
from advisor.report.digits import rounded
from advisor.report.interface import prediction_document, target_line

SCHEMA_VERSION = 3
_PREDICTION_KEYS = ("workload", "speedup", "low", "high", "confidence", "not_predicted")


def update_text(change: LockChange) -> str:
    """Return a change as plain text."""
    return "\n".join(_text(change))


def update_json(change: LockChange) -> str:
    """Return a change as JSON; the schema is documented in `docs/reference/check-json.md`."""
    prediction = prediction_document(change.prediction)
    document = {
        "schema_version": SCHEMA_VERSION,
        "proven": change.optimum.proven,
        "changes": [
            {"package": c.package, "kind": c.kind, "before": _text_of(c.before), "after": _text_of(c.after)}
            for c in change.changes
        ],
        "cleared": [{"code": f.code, "package": f.package, "message": f.message} for f in change.cleared],
        "remaining": [{"code": f.code, "package": f.package, "message": f.message} for f in change.remaining],
        "prediction": prediction and {key: prediction[key] for key in _PREDICTION_KEYS},
        "not_predicted": change.not_predicted or None,
        "locks": list(change.outputs),
        "commands": list(change.commands),
    }
    return json.dumps(rounded(document), indent=2)


def pull_request_body(change: LockChange) -> str:
    """Return the text of a pull request that makes a change, as Markdown."""
    return "\n".join(_markdown(change)) + "\n"


def _text(change: LockChange) -> Iterator[str]:
    yield f"target     {target_line(change.target)}"
    yield f"update     {_size(change)}"
    yield f"prediction {_speed(change)}"
    if change.changes:
        yield ""
        width = max(len(c.package) for c in change.changes)
        for c in change.changes:
            yield f"  {c.package:{width}}  {c.before or '-'} -> {c.after or '-'}  {_reason(c, change)}".rstrip()
    for title, findings in (("resolved", change.cleared), ("remaining", change.remaining)):
        if findings:
            yield ""
            yield from (f"{title} {f.code} {gate_codes()[f.code].name}: {f.message}" for f in findings)
    yield ""
    yield from (f"wrote `{path}`" for path in change.outputs)
    yield from (f"to apply it: {command}" for command in change.commands)
    if not change.outputs and not change.commands:
        yield "nothing was written"


def _speed(change: LockChange) -> str:
    speed = describe_prediction(change.prediction, change.not_predicted)
    return speed if change.prediction is None else f"{speed}, compared with the lock"


def _size(change: LockChange) -> str:
    if not change.changes:
        return "nothing changes: the lock passes the gate" if change.is_smallest else "nothing changes"
    scope = NO_LOCK if change.before is None else f"of {count(len(change.before), 'package')}"
    words = f"{describe_changes(change.changes)}, {scope}"
    if change.is_smallest:
        proof = "proven" if change.optimum.bounds[0].gap == 0 else "not proven"
        state = f"{proof} to be the smallest change"
        if any(finding.code == "ADV008" for finding in change.cleared):
            state += ", among stacks with the same measured packages,"
        return f"{words}: {state} that resolves {count(len(change.cleared), 'finding')}"
    proof = "optimal for the score" if change.optimum.proven else "not proven to be optimal for the score"
    return f"{words}: {proof}"


def _reason(c: PackageChange, change: LockChange) -> str:
    for finding in change.cleared:
        if finding.package == c.package or c.package in dict(finding.cause.versions):
            return f"resolves {finding.code}"
    return "" if change.is_smallest else change.reasons.get(c.package, "")


def _markdown(change: LockChange) -> Iterator[str]:
    yield f"## Dependency stack: {describe_changes(change.changes)}"
    yield ""
    yield f"For {target_line(change.target)}. {_size(change)[0].upper()}{_size(change)[1:]}; verified by resolvelib."
    yield ""
    if change.before is not None:
        yield f"**Predicted speed compared with the lock:** {_speed(change)}."
        yield ""
    if change.cleared:
        yield "### Resolved findings"
        yield ""
        rows = [(f"{f.code} {gate_codes()[f.code].name}", f.message, f.source) for f in change.cleared]
        yield from table(("finding", "message", "source"), rows)
        yield ""
    if change.remaining:
        yield "### Remaining findings"
        yield ""
        yield from table(("finding", "message"), [(f.code, f.message) for f in change.remaining])
        yield ""
    if change.changes:
        yield "### Packages"
        yield ""
        packages = [
            (c.package, _text_of(c.before) or "", _text_of(c.after) or "", _reason(c, change)) for c in change.changes
        ]
        yield from table(("package", "before", "after", "why"), packages)
        yield ""
    yield from effect_lines(listed_effects(change.prediction, change.effects))
    if change.commands:
        yield "To apply it:"
        yield ""
        yield from (f"- {command}" for command in change.commands)


def _text_of(version: Version | None) -> str | None:
    return None if version is None else str(version)
