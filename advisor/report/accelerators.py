"""How reports show a comparison of two accelerators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from advisor.api.queries import HardwareComparison, PeakBound
from advisor.domain.words import count, speed_text
from advisor.report.layout import Block, Layout, TextRow, labelled, render
from knowledge.estimate.accelerator_pairs import AcceleratorPair

_MOST_ROWS = 6


def hardware_comparison_text(comparison: HardwareComparison, layout: Layout | None = None) -> str:
    """Return a comparison as text: the predicted ratio, and the published pairs of the two accelerators."""
    return render(_blocks(comparison), layout or Layout())


def _blocks(comparison: HardwareComparison) -> Iterator[Block]:
    ratio = comparison.ratio
    tasks = ", ".join(f"{task} {mode}" for task, mode in comparison.tasks)
    first = [
        *labelled("compared", [f"{comparison.accelerator} with {comparison.reference}"]),
        *labelled("workload", [f"{comparison.workload}: {tasks}"]),
    ]
    if ratio is None:
        yield [*first, *_bound(comparison.bound)]
        return
    basis = f"{count(len(ratio.pairs), 'published pair')} of these two, and {ratio.related} pairs in all"
    if not ratio.pairs:
        basis = f"nobody published this pair in one configuration: {count(ratio.related, 'pair')} of others"
    yield [*first, *labelled("speed", [speed_text(ratio)]), *labelled("basis", [basis])]
    yield _pairs(ratio.pairs)


def _bound(bound: PeakBound | None) -> Iterator[TextRow]:
    """Yield what is known without published pairs."""
    yield from labelled("speed", ["not known: no published measurement connects the two, also not through others"])
    if bound is not None:
        text = f"between {bound.low:.2f} and {bound.high:.2f} times as fast, if only peak rates decide"
        yield from labelled("bound", [text, "the smallest and the largest ratio of bandwidths and peak rates"])


def _pairs(pairs: Sequence[AcceleratorPair]) -> Iterator[TextRow]:
    """Yield the published pairs."""
    for number, pair in enumerate(pairs[:_MOST_ROWS]):
        devices = f"{pair.count} x {pair.accelerator} against {pair.reference}, batch {_batch(pair)}"
        source = f"{pair.source}, {pair.year}: {pair.configuration}"
        yield TextRow(label="" if number else "pairs", cells=(f"{math.exp(pair.mean):.2f}", devices), notes=(source,))
    if not all(pair.has_one_batch for pair in pairs):
        yield TextRow(cells=("pairs with different batch sizes were published without a common one; they count less",))
    if len(pairs) > _MOST_ROWS:
        yield TextRow(cells=(f"and {len(pairs) - _MOST_ROWS} more (`--format json` lists them)",))


def _batch(pair: AcceleratorPair) -> str:
    """Return the batch size of a pair, or both if they differ."""
    if pair.has_one_batch:
        return pair.batch or "not stated"
    return f"{pair.batch or 'not stated'} against {pair.reference_batch or 'not stated'}"


def hardware_comparison_document(comparison: HardwareComparison) -> dict[str, Any]:
    """Return what :func:`hardware_comparison_text` has as JSON-ready values."""
    ratio, bound = comparison.ratio, comparison.bound
    return {
        "schema_version": 2,
        "accelerator": comparison.accelerator,
        "reference": comparison.reference,
        "workload": comparison.workload,
        "tasks": [{"task": task, "mode": mode} for task, mode in comparison.tasks],
        "ratio": round(ratio.speedup, 6) if ratio else None,
        "low": round(ratio.low, 6) if ratio else None,
        "high": round(ratio.high, 6) if ratio else None,
        "bound_from_peak_rates": [round(bound.low, 6), round(bound.high, 6)] if bound else None,
        "pairs": [{**asdict(pair), "mean": round(pair.mean, 6)} for pair in (ratio.pairs if ratio else ())],
        "related_pairs": ratio.related if ratio else 0,
    }
