"""How reports show a comparison of two accelerators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from advisor.api.queries import HardwareComparison
from advisor.domain.words import count, ratio_text, speed_text
from advisor.report.layout import Block, Layout, TextRow, labelled, rendered
from knowledge.estimate.accelerator_ratio import AcceleratorRatio
from knowledge.evidence.accelerator_pairs import AcceleratorPair
from knowledge.evidence.accelerator_rows import DEFAULT, MLPERF, REQUESTS, SHORT

_MOST_ROWS = 6
REGIMES = {
    DEFAULT: "in the default precision (float32 or TF32)",
    SHORT: "in a short precision (mixed, 16 bits or fewer)",
    MLPERF: "in MLPerf (precision of the submitters)",
    REQUESTS: "in the latency of few requests",
}


def hardware_comparison_text(comparison: HardwareComparison, layout: Layout | None = None) -> str:
    """Return a comparison as text: the predicted ratio, and the published pairs of the two accelerators."""
    return rendered(_blocks(comparison), layout or Layout())


def _blocks(comparison: HardwareComparison) -> Iterator[Block]:
    tasks = ", ".join(f"{task} {mode}" for task, mode in comparison.tasks)
    first = [
        *labelled("compared", [f"{comparison.accelerator} with {comparison.reference}"]),
        *labelled("workload", [f"{comparison.workload}: {tasks}"]),
    ]
    if not comparison.ratios:
        yield [*first, *_bound(comparison.bound)]
        return
    related, own = comparison.ratios[0].related, sum(len(ratio.pairs) for ratio in comparison.ratios)
    basis = f"{count(own, 'published pair')} of these two, and {related} pairs in all"
    if not own:
        basis = f"nobody published this pair in one configuration: {count(related, 'pair')} of others"
    yield [*first, *labelled("basis", [basis])]
    for ratio in comparison.ratios:
        yield [*labelled("speed", [f"{speed_text(ratio)} {REGIMES[ratio.regime]}"]), *_pairs(ratio.pairs)]


def _bound(bound: tuple[float, float] | None) -> Iterator[TextRow]:
    """Yield what is known without published pairs."""
    yield from labelled("speed", ["not known: no published measurement connects the two, also not through others"])
    if bound is not None:
        text = f"between {ratio_text(bound[0])} and {ratio_text(bound[1])} times as fast, if only peak rates decide"
        yield from labelled("bound", [text, "the smallest and the largest ratio of bandwidths and peak rates"])


def _pairs(pairs: Sequence[AcceleratorPair]) -> Block:
    rows: list[TextRow | str] = []
    for pair in pairs[:_MOST_ROWS]:
        devices = f"{pair.count} x {pair.accelerator} against {pair.reference}, batch {_batch(pair)}"
        source = f"{pair.source}, {pair.year}: {pair.configuration}"
        rows.append(TextRow(cells=(ratio_text(math.exp(pair.mean)), devices), notes=(source,)))
    if not all(pair.has_one_batch for pair in pairs):
        rows.append("pairs with different batch sizes were published without a common one; they count less")
    if len(pairs) > _MOST_ROWS:
        rows.append(f"and {len(pairs) - _MOST_ROWS} more (`--format json` lists them)")
    return labelled("pairs", rows)


def _batch(pair: AcceleratorPair) -> str:
    """Return the batch size of a pair, or both if they differ."""
    if pair.has_one_batch:
        return pair.batch or "not stated"
    return f"{pair.batch or 'not stated'} against {pair.reference_batch or 'not stated'}"


def hardware_comparison_document(comparison: HardwareComparison) -> dict[str, Any]:
    """Return what :func:`hardware_comparison_text` has as JSON-ready values."""
    return {
        "schema_version": 3,
        "accelerator": comparison.accelerator,
        "reference": comparison.reference,
        "workload": comparison.workload,
        "tasks": [{"task": task, "mode": mode} for task, mode in comparison.tasks],
        "ratios": [_ratio_document(ratio) for ratio in comparison.ratios],
        "bound_from_peak_rates": [round(ratio, 6) for ratio in comparison.bound] if comparison.bound else None,
    }


def _ratio_document(ratio: AcceleratorRatio) -> dict[str, Any]:
    return {
        "regime": ratio.regime,
        "ratio": round(ratio.speedup, 6),
        "low": round(ratio.low, 6),
        "high": round(ratio.high, 6),
        "pairs": [{**asdict(pair), "mean": round(pair.mean, 6)} for pair in ratio.pairs],
        "related_pairs": ratio.related,
    }
