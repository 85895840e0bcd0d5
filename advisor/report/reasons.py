"""Prices of constraints, and the explanation of one package, as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from advisor.gate.compare import is_significant
from advisor.report.interface import prediction_document
from advisor.resolve.alternatives import Alternative, Explanation, alternatives_of
from advisor.resolve.prices import Price
from knowledge.estimate.interface import Prediction

_MAX_CHANGES = 6


def prices_text(prices: Sequence[Price]) -> str:
    """Return prices as plain text."""
    return "\n".join(_price_lines(prices))


def prices_json(prices: Sequence[Price]) -> str:
    """Return prices as JSON."""
    documents = [{**asdict(p), "prediction": prediction_document(p.prediction)} for p in prices]
    return json.dumps({"schema_version": 2, "prices": documents}, indent=2)


def _price_lines(prices: Sequence[Price]) -> Iterator[str]:
    if not prices:
        yield "the project has no constraints: every requirement admits every version"
        return
    for price in prices:
        yield f"{_quoted(price)} ({price.origin}): {price_text(price)}"
        if price.changes:
            yield f"    {'with' if _is_interpreter(price) else 'without'} it: {_changes(price.changes)}"


def price_text(price: Price) -> str:
    """Return what a constraint costs, what another interpreter gains, or why it is unknown."""
    if price.obstacle:
        return price.obstacle
    if not price.changes:
        return (
            "no gain, the stack is the same with it"
            if _is_interpreter(price)
            else "no cost, the stack is the same without it"
        )
    return price_difference(price, "gain" if _is_interpreter(price) else "cost")


def _quoted(price: Price) -> str:
    return price.constraint if price.obstacle or _is_interpreter(price) else f"`{price.constraint}`"


def _is_interpreter(price: Price) -> bool:
    return price.constraint.startswith("Python ")


def price_difference(price: Price, kind: str = "cost") -> str:
    """Return the speed and the libyears that a constraint costs, or that another interpreter gains."""
    has_prediction = price.prediction is not None and price.prediction.is_known
    speed = f"estimated {kind} {_speed(price.prediction)}" if has_prediction else f"{kind} in speed unknown"
    return f"{speed}; {price.libyears:.1f} libyears"


def _speed(prediction: Prediction | None) -> str:
    """Return a predicted speed-up in percent, with its interval."""
    if prediction is None or not prediction.is_known:
        return "unknown speed"
    mean, low, high = ((value - 1) * 100 for value in (prediction.speedup, prediction.low, prediction.high))
    significance = "" if is_significant(prediction) else ": not significant"
    return f"{mean:.1f} % of speed [{low:.1f} %, {high:.1f} %]{significance}"


def _changes(changes: Sequence[tuple[str, str, str]]) -> str:
    texts = [f"{name} {before} -> {after}" for name, before, after in changes[:_MAX_CHANGES]]
    more = len(changes) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "") if texts else "the same stack"


def explanation_text(explanation: Explanation) -> str:
    """Return an explanation as plain text."""
    return "\n".join(_explanation_lines(explanation))


def explanation_json(explanation: Explanation) -> str:
    """Return an explanation as JSON."""
    document = {**asdict(explanation), "prediction": prediction_document(explanation.prediction)}
    for name in ("against_newest", "runner_up"):
        if alternative := getattr(explanation, name):
            document[name] = {**asdict(alternative), "prediction": prediction_document(alternative.prediction)}
    return json.dumps({"schema_version": 2, **_plain(document)}, indent=2)


def _explanation_lines(e: Explanation) -> Iterator[str]:
    for replaced in e.replaces:
        yield f"`{replaced.name}` is replaced by `{replaced.replacement}` ({replaced.source})"
    if e.replaces:
        yield ""
    yield f"{e.name} {e.version}: {e.why}"
    yield ""
    yield "required by"
    for parent, requirement in e.required_by:
        yield f"  {parent}: {requirement}"
    yield ""
    yield f"paths from the project{' (the shortest ones)' if e.more_paths else ''}"
    for path in e.paths:
        yield f"  the project > {' > '.join(path)}"
    change = next((c for c in e.prediction.changes if c.package == e.name), None)
    if change is not None:
        yield ""
        yield f"evidence{'' if change.measured else ' (inferred from other versions)'}"
        for item in change.evidence:
            yield (
                f"  {item.version} compared with {item.reference}: {item.speedup:.3f}x "
                f"[{item.low:.3f}, {item.high:.3f}], {item.rounds} rounds on {item.hardware}: {item.indicator}"
            )
    if e.verdicts:
        yield ""
        yield "rules"
        yield from (f"  {verdict}" for verdict in e.verdicts)
    for title, alternative in alternatives_of(e):
        yield ""
        yield f"why not {title}, {alternative.version}"
        yield from (f"  {line}" for line in _alternative_lines(alternative))
    if e.against_newest is None:
        yield ""
        yield "this is the newest version that the target can install"


def _alternative_lines(a: Alternative) -> Iterable[str]:
    if a.conflict:
        return a.conflict
    worse = [f"{name} {value:+}{' hours' if name.startswith('freshness') else ''}" for name, value in a.worse]
    lines = [
        f"worse by: {', '.join(worse)}"
        if worse
        else "same score; the recommended stack comes first by name and version"
    ]
    lines.append(f"{a.libyears:+.1f} libyears, {_speed(a.prediction)}")
    lines.append(f"with it: {_changes(a.changes)}")
    return lines


def _plain(value: Any) -> Any:
    """Return a value with versions as text and tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
