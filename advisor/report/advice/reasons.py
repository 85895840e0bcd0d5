"""Prices of constraints, and the explanation of one package, as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from advisor.domain.words import interval_text, listed, ratio_text
from advisor.report.advice.formats.text import evidence_lines
from advisor.report.advice.interpreters import criterion_text
from advisor.report.layout import Block, Layout, TextRow, labelled, rendered
from advisor.report.phrases import prediction_document, version_change
from advisor.resolve.explanation.alternatives import Alternative, Explanation
from advisor.resolve.explanation.prices import Price
from knowledge.domain.identity import plain
from knowledge.estimate.interface import Prediction

_MAX_CHANGES = 6


def prices_text(prices: Sequence[Price], layout: Layout | None = None) -> str:
    """Return prices as plain text."""
    if not prices:
        return "the project has no constraints: every requirement admits every version"
    costs = labelled("cost", [_price_row(price) for price in prices if not _is_interpreter(price)])
    gains = labelled("gain", [_price_row(price) for price in prices if _is_interpreter(price)])
    return rendered([costs, gains], layout or Layout())


def prices_json(prices: Sequence[Price]) -> str:
    """Return prices as JSON."""
    documents = [{**asdict(p), "prediction": prediction_document(p.prediction)} for p in prices]
    return json.dumps({"schema_version": 2, "prices": documents}, indent=2)


def _price_row(price: Price) -> TextRow:
    """Return what a constraint costs, or what another interpreter gains: age, speed, and what would change."""
    with_it = "with it" if _is_interpreter(price) else "without it"
    note = f"{price.origin}; {with_it}: {_changes(price.changes)}" if price.changes else price.origin
    return TextRow(cells=(price.constraint, price_text(price)), notes=(note,))


def price_text(price: Price) -> str:
    """Return what a constraint costs, what another interpreter gains, or why it is unknown."""
    if price.obstacle:
        return price.obstacle
    if not price.changes:
        return f"nothing: the stack is the same {'with' if _is_interpreter(price) else 'without'} it"
    return price_difference(price)


def _is_interpreter(price: Price) -> bool:
    return price.constraint.startswith("Python ")


def price_difference(price: Price) -> str:
    """Return the age and the speed that a constraint costs, or that another interpreter gains."""
    # Another interpreter makes the stack newer; a constraint makes it older.
    newer = price.libyears if _is_interpreter(price) else -price.libyears
    age = f"{abs(newer):.1f} libyears {'older' if newer < 0 else 'newer'}" if round(newer, 1) else "same age"
    return f"{age}; {_speed(price.prediction)}"


def _speed(prediction: Prediction | None) -> str:
    """Return a predicted speed-up in percent, with its interval."""
    if prediction is None or not prediction.is_known:
        return "speed unknown"
    gain, interval = ratio_text(prediction.speedup, "percent"), interval_text(prediction, "percent")
    return f"{gain} % of speed {interval}{'' if prediction.is_significant else ', not significant'}"


def _changes(changes: Sequence[tuple[str, str, str]]) -> str:
    texts = [f"{name} {version_change(before, after)}" for name, before, after in changes]
    return listed(texts, _MAX_CHANGES) or "the same stack"


def explanation_text(explanation: Explanation, layout: Layout | None = None) -> str:
    """Return an explanation as plain text."""
    return rendered(_explanation_blocks(explanation), layout or Layout())


def explanation_json(explanation: Explanation) -> str:
    """Return an explanation as JSON."""
    document = {**asdict(explanation), "prediction": prediction_document(explanation.prediction)}
    for name in ("against_newest", "runner_up"):
        if alternative := getattr(explanation, name):
            document[name] = {**asdict(alternative), "prediction": prediction_document(alternative.prediction)}
    return json.dumps({"schema_version": 2, **plain(document)}, indent=2)


def _explanation_blocks(e: Explanation) -> Iterator[Block]:
    yield [
        *labelled("package", [f"{e.name} {e.version}"]),
        *labelled("replaces", [f"{replaced.name} ({replaced.source})" for replaced in e.replaces]),
        *labelled("why", [e.why, *([] if e.against_newest else ["the newest version that the target can install"])]),
    ]
    yield labelled("required", [(f"by {parent}", requirement) for parent, requirement in e.required_by])
    more = ["and longer ones"] if e.more_paths else []
    yield labelled("paths", [*(f"the project > {' > '.join(path)}" for path in e.paths), *more])
    change = next((c for c in e.prediction.changes if c.package == e.name), None)
    if change is not None:
        yield labelled("evidence", evidence_lines(change, most=len(change.evidence)))
    yield labelled("rules", e.verdicts)
    for title, alternative in (("the newest", e.against_newest), ("the runner-up", e.runner_up)):
        if alternative is not None:
            yield labelled("why not", [f"{alternative.version}, {title}:", *_alternative_lines(alternative)])


def _alternative_lines(a: Alternative) -> Iterator[str]:
    if a.conflict:
        yield from a.conflict
        return
    worse = [criterion_text(name, value) for name, value in a.worse]
    yield ", ".join(worse) if worse else "same score; the recommended stack comes first by name and version"
    yield _speed(a.prediction)
    yield f"with it: {_changes(a.changes)}"
