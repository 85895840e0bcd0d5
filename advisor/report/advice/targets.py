"""The reports of `advisor advise` for several targets: a summary of each, and what an agreement of them costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from advisor.api.targets import TargetResults
from advisor.domain.words import count, listed, quoted
from advisor.report.advice.formats.json import advice_document
from advisor.report.advice.formats.text import summary_block
from advisor.report.advice.reasons import price_difference
from advisor.report.layout import Block, Layout, TextRow, labelled, rendered
from advisor.report.phrases import SCHEMA_VERSION, rounded_record
from advisor.resolve.explanation.prices import Price
from advisor.resolve.recommendation.agreement import Agreement

_MAX_CHANGES = 10


def targets_text(results: TargetResults, layout: Layout | None = None) -> str:
    """Return a summary of the advice for each target as plain text."""
    return rendered(_blocks(results), layout or Layout())


def _blocks(results: TargetResults) -> Iterator[Block]:
    for name, result in results.advice.items():
        yield summary_block(result, name=name)
    if results.agreement is not None:
        yield [
            *labelled("shared", [_agreement(results.agreement)]),
            *(TextRow(cells=(name, _cost(price))) for name, price in results.prices.items()),
        ]
    written = {output for result in results.advice.values() for output in result.outputs}
    what = f"wrote {count(len(written), 'lock')}" if written else "nothing was written (--dry-run)"
    yield labelled("targets", [f"{len(results.advice)}: {what}; `--target NAME` prints the whole report of one"])


def _agreement(agreement: Agreement) -> str:
    number = len(agreement.after)
    names = f": {quoted(agreement.after)}" if number else ""
    verb = "differs" if number == 1 else "differ"
    proof = "" if agreement.proven else " (not proven to be the fewest)"
    return (
        f"{count(number, 'package')} {verb} between the targets{names}; {len(agreement.before)} differ if each target "
        f"has its own best stack{proof}"
    )


def _cost(price: Price) -> str:
    """Return what a target loses by the agreement."""
    if not price.changes:
        return "no cost"
    changes = [f"`{name}` {own} -> {agreed}" for name, agreed, own in price.changes]
    return f"{listed(changes, _MAX_CHANGES)}: {price_difference(price)}"


def targets_json(results: TargetResults) -> str:
    """Return the advice for each target as JSON."""
    targets = [{"name": name, **advice_document(result)} for name, result in results.advice.items()]
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "targets": targets}
    if results.agreement is not None:
        document["agreement"] = {
            "before": list(results.agreement.before),
            "after": list(results.agreement.after),
            "proven": results.agreement.proven,
            "costs": {name: _cost_document(price) for name, price in results.prices.items()},
        }
    return json.dumps(document, indent=2)


def _cost_document(price: Price) -> dict[str, Any]:
    prediction = price.prediction
    return {
        "changes": [{"name": name, "before": own, "after": agreed} for name, agreed, own in price.changes],
        "speedup_without": rounded_record(prediction.speedup) if prediction and prediction.is_known else None,
        "libyears": round(price.libyears, 3),
    }
