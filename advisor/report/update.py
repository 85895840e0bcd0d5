"""A change of a lock, told: for the terminal, as JSON, and as the text of a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from advisor.domain.target import Target
from advisor.gate.codes import gate_codes
from advisor.gate.compare import PackageChange, changes_between
from advisor.gate.findings import Finding
from advisor.report.check.markdown import effect_lines, table
from advisor.report.check.summary import describe_changes, describe_prediction
from advisor.report.digits import rounded
from advisor.report.interface import target_line
from advisor.report.words import count
from advisor.resolve.optimise import Optimum
from knowledge.estimate.interface import Effect, Prediction


@dataclass(frozen=True, kw_only=True)
class LockChange:
    """A change of a lock, and what speaks for it.

    Attributes:
        target: What the lock is for.
        before: Versions of the lock.
        optimum: The stack after the change, and its proof.
        prediction: Predicted speed-up over the lock.
        effects: The same at each indicator.
        cleared: Findings of the gate that are gone after it.
        remaining: Findings of the gate that fail before and after it.
        least: Whether it is the smallest change that clears the findings; else the best stack.
        why: One sentence by package, where there is one.
        written: What was written.
        commands: What remains to be run, for locks that only their own tool writes.
        leaves_open: Whether the lock leaves open what its packages require: what it does not hold is no change of it.
    """

    target: Target
    before: Mapping[str, Version]
    optimum: Optimum
    prediction: Prediction
    effects: Sequence[Effect]
    cleared: Sequence[Finding] = ()
    remaining: Sequence[Finding] = ()
    smallest: bool = False
    reasons: Mapping[str, str]
    lock_paths: Sequence[str] = ()
    commands: Sequence[str] = ()
    leaves_open: bool = False

    @property
    def changes(self) -> tuple[PackageChange, ...]:
        """What differs, by name."""
        found = changes_between(self.before, {str(c.name): c.version for c in self.optimum.stack})
        return tuple(c for c in found if c.before is not None or not self.leaves_open)


def update_text(change: LockChange) -> str:
    """Return a change as plain text."""
    return "\n".join(_text(change))


def update_json(change: LockChange) -> str:
    """Return a change as JSON; the schema is documented in `docs/reference/check-json.md`."""
    document = {
        "schema_version": 1,
        "proven": change.optimum.proven,
        "changes": [
            {"package": c.package, "kind": c.kind, "before": _shown(c.before), "after": _shown(c.after)}
            for c in change.changes
        ],
        "cleared": [{"code": f.code, "package": f.package, "message": f.message} for f in change.cleared],
        "remaining": [{"code": f.code, "package": f.package, "message": f.message} for f in change.remaining],
        "prediction": {
            "workload": change.prediction.workload,
            "speedup": change.prediction.speedup,
            "low": change.prediction.low,
            "high": change.prediction.high,
            "confidence": change.prediction.confidence,
        },
        "locks": list(change.lock_paths),
        "commands": list(change.commands),
    }
    return json.dumps(rounded(document), indent=2)


def pull_request_body(change: LockChange) -> str:
    """Return the text of a pull request that makes a change, as Markdown."""
    return "\n".join(_markdown(change)) + "\n"


def _text(change: LockChange) -> Iterator[str]:
    yield f"target     {target_line(change.target)}"
    yield f"update     {_size(change)}"
    yield f"prediction {describe_prediction(change.prediction)}, against the lock"
    if change.changes:
        yield ""
        width = max(len(c.package) for c in change.changes)
        for c in change.changes:
            yield f"  {c.package:{width}}  {c.before or '-'} -> {c.after or '-'}  {_reason(c, change)}".rstrip()
    for title, findings in (("cleared", change.cleared), ("remains", change.remaining)):
        if findings:
            yield ""
            yield from (f"{title} {f.code} {gate_codes()[f.code].name}: {f.message}" for f in findings)
    yield ""
    yield from (f"wrote `{path}`" for path in change.lock_paths)
    yield from (f"to apply it: {command}" for command in change.commands)
    if not change.lock_paths and not change.commands:
        yield "nothing was written"


def _size(change: LockChange) -> str:
    if not change.changes:
        return "nothing changes: the gate finds nothing that fails" if change.smallest else "nothing changes"
    words = f"{describe_changes(change.changes)}, of {count(len(change.before), 'package')}"
    if change.smallest:
        state = "proven to be the fewest" if change.optimum.bounds[0].gap == 0 else "not proven to be the fewest"
        if any(finding.code == "ADV008" for finding in change.cleared):
            state += ", of stacks with the same measured packages,"
        return f"{words}: {state} that clear {count(len(change.cleared), 'finding')}"
    return f"{words}: {'proven to be the best stack' if change.optimum.proven else 'not proven to be the best stack'}"


def _reason(c: PackageChange, change: LockChange) -> str:
    for finding in change.cleared:
        if finding.package == c.package or c.package in dict(finding.cause.versions):
            return f"clears {finding.code}"
    return "" if change.smallest else change.reasons.get(c.package, "")


def _markdown(change: LockChange) -> Iterator[str]:
    yield f"## Dependency stack: {describe_changes(change.changes)}"
    yield ""
    yield f"For {target_line(change.target)}. {_size(change)[0].upper()}{_size(change)[1:]}; verified by resolvelib."
    yield ""
    yield f"**Predicted speed against the lock:** {describe_prediction(change.prediction)}."
    yield ""
    if change.cleared:
        yield "### What it clears"
        yield ""
        rows = [(f"{f.code} {gate_codes()[f.code].name}", f.message, f.source) for f in change.cleared]
        yield from table(("finding", "what", "source"), rows)
        yield ""
    if change.remaining:
        yield "### What remains"
        yield ""
        yield from table(("finding", "what"), [(f.code, f.message) for f in change.remaining])
        yield ""
    if change.changes:
        yield "### Packages"
        yield ""
        packages = [
            (c.package, _shown(c.before) or "", _shown(c.after) or "", _reason(c, change)) for c in change.changes
        ]
        yield from table(("package", "before", "after", "why"), packages)
        yield ""
    yield from effect_lines(change.effects)
    if change.commands:
        yield "To apply it:"
        yield ""
        yield from (f"- {command}" for command in change.commands)


def _shown(version: Version | None) -> str | None:
    return None if version is None else str(version)
