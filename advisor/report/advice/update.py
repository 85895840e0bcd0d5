"""Reports of a lock change: for the terminal, as JSON, and as the text of a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from advisor.api.gate.update import NO_LOCK, LockChange
from advisor.domain.words import count
from advisor.gate.comparison import PackageChange
from advisor.gate.findings import Finding
from advisor.report.check.formats.markdown import effect_lines
from advisor.report.check.summary import (
    change_document,
    describe_changes,
    describe_prediction,
    equal_findings,
    listed_effects,
    places_and_name,
)
from advisor.report.layout import Block, Layout, Style, TextRow, labelled, rendered
from advisor.report.phrases import prediction_document, rounded_record, target_line, version_change
from advisor.report.tables import section

SCHEMA_VERSION = 3
_PREDICTION_KEYS = ("workload", "speedup", "low", "high", "confidence", "not_predicted")


def update_text(change: LockChange, layout: Layout | None = None) -> str:
    """Return a change as plain text."""
    return rendered(_text(change), layout or Layout())


def update_json(change: LockChange) -> str:
    """Return a change as JSON; the schema is documented in `docs/reference/check-json.md`."""
    prediction = prediction_document(change.prediction)
    document = {
        "schema_version": SCHEMA_VERSION,
        "proven": change.optimum.proven,
        "changes": list(map(change_document, change.changes)),
        "cleared": list(map(_document, change.cleared)),
        "remaining": list(map(_document, change.remaining)),
        "prediction": prediction and {key: prediction[key] for key in _PREDICTION_KEYS},
        "not_predicted": change.not_predicted or None,
        "passes": change.passes,
        "dropped_settings": list(change.dropped_settings),
        "locks": list(change.outputs),
        "commands": list(change.commands),
        "instructions": list(change.instructions),
    }
    return json.dumps(rounded_record(document), indent=2)


def pull_request_body(change: LockChange) -> str:
    """Return the text of a pull request that makes a change, as Markdown."""
    return "\n".join(_markdown(change)) + "\n"


def _text(change: LockChange) -> Iterator[Block]:
    yield [
        *labelled("target", [target_line(change.target)]),
        *labelled("update", [_size(change)]),
        *labelled("speed", [_speed(change)]),
    ]
    rows = [(c.package, version_change(*c.texts[1:]), _reason(c, change)) for c in change.changes]
    yield labelled("changes", rows)
    yield _findings("resolved" if change.outputs else "resolves", "good", change.cleared)
    yield _findings("remaining", "bad", change.remaining)
    steps = [*change.commands, *change.instructions]
    yield [
        *labelled("wrote", [f"`{path}`" for path in change.outputs] or ([] if steps else ["nothing"])),
        *labelled("to do", steps),
        *labelled("dropped", [f"setting {s}: the new versions do not have it" for s in change.dropped_settings]),
    ]


def _findings(label: str, style: Style, findings: Sequence[Finding]) -> Block:
    rows = [TextRow(cells=(same[0].message,), notes=(places_and_name(same),)) for same in equal_findings(findings)]
    return labelled(label, rows, style)


def _document(finding: Finding) -> dict[str, str | int]:
    names = ("code", "package", "message")
    return {**{name: getattr(finding, name) for name in names}, **asdict(finding.place)}


def _speed(change: LockChange) -> str:
    speed = describe_prediction(change.prediction, change.not_predicted)
    return speed if change.prediction is None else f"{speed}, compared with the lock"


def _size(change: LockChange) -> str:
    if not change.changes:
        if change.cleared:
            return f"no version changes: writing the lock again resolves {count(len(change.cleared), 'finding')}"
        passes = change.passes and change.is_smallest
        return "nothing changes: the lock passes the gate" if passes else "nothing changes"
    scope = NO_LOCK if change.before is None else f"of {count(len(change.before), 'package')}"
    words = f"{describe_changes(change.changes)}, {scope}"
    if change.is_smallest:
        bounds = change.optimum.bounds
        counted = [bound.objective for bound in bounds].index("added") + 1
        proof = "not proven" if any(bound.gap for bound in bounds[:counted]) else "proven"
        state = f"{proof} to be the smallest change"
        if any(finding.code == "ADV008" for finding in change.cleared):
            state += ", among stacks with the same measured packages,"
        return f"{words}: {state} that resolves {count(len(change.cleared), 'finding')}"
    proof = "optimal for the score" if change.optimum.proven else "not proven to be optimal for the score"
    return f"{words}: {proof}"


def _reason(c: PackageChange, change: LockChange) -> str:
    codes = [f.code for f in change.cleared if f.package == c.package or c.package in dict(f.cause.versions)]
    return "; ".join(filter(None, (*(f"resolves {code}" for code in codes[:1]), change.reasons.get(c.package))))


def _markdown(change: LockChange) -> Iterator[str]:
    size = _size(change)
    yield from (f"## Dependency stack: {describe_changes(change.changes)}", "")
    yield from (f"For {target_line(change.target)}. {size[0].upper()}{size[1:]}; verified by resolvelib.", "")
    if change.before is not None:
        yield from (f"**Predicted speed compared with the lock:** {_speed(change)}.", "")
    cleared, remaining = (
        [(places_and_name(same), same[0].message, same[0].source) for same in equal_findings(findings)]
        for findings in (change.cleared, change.remaining)
    )
    packages = [(c.package, str(c.before or ""), str(c.after or ""), _reason(c, change)) for c in change.changes]
    yield from section("Resolved findings", ("finding", "message", "source"), cleared)
    yield from section("Remaining findings", ("finding", "message"), [row[:2] for row in remaining])
    yield from section("Packages", ("package", "before", "after", "why"), packages)
    yield from effect_lines(listed_effects(change.prediction, change.effects))
    if change.commands:
        yield from ("To apply it, run:", "", *(f"- `{command}`" for command in change.commands), "")
    if change.instructions:
        yield from ("What else to do:" if change.commands else "What to do:", "")
        yield from (f"- {instruction}" for instruction in change.instructions)
