"""How reports show a comparison of two accelerators."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from advisor.api.queries import HardwareComparison
from advisor.domain.words import count
from advisor.report.evidence import table
from knowledge.estimate.accelerator_pairs import AcceleratorPair

_MOST_ROWS = 12


def hardware_comparison_text(comparison: HardwareComparison) -> str:
    """Return a comparison as text: the predicted ratio, and the published pairs of the two accelerators."""
    ratio = comparison.ratio
    tasks = ", ".join(f"{task} {mode}" for task, mode in comparison.tasks)
    lines = [
        f"{comparison.accelerator} against {comparison.reference}, workload `{comparison.workload}` ({tasks}):",
        f"{ratio.speedup:.2f} times as fast [{ratio.low:.2f}, {ratio.high:.2f}] at 95%",
        "",
    ]
    if not ratio.pairs:
        lines.append(
            f"nobody published this pair in one configuration: predicted from {count(ratio.related, 'pair')} of "
            "accelerators and tasks"
        )
        return "\n".join(lines)
    lines += [
        f"{count(len(ratio.pairs), 'published pair')} of these two, of {ratio.related} that the prediction rests on:",
        table(
            ("ratio", "accelerators", "batch", "year", "source", "configuration"),
            (
                (
                    f"{math.exp(pair.mean):.2f}",
                    f"{pair.count} x {pair.accelerator} against {pair.reference}",
                    _batch(pair),
                    str(pair.year),
                    pair.source,
                    pair.configuration,
                )
                for pair in ratio.pairs[:_MOST_ROWS]
            ),
        ),
    ]
    if not all(pair.has_one_batch for pair in ratio.pairs):
        lines.append("pairs with different batch sizes were published without a common one; they count less")
    if len(ratio.pairs) > _MOST_ROWS:
        lines.append(f"and {len(ratio.pairs) - _MOST_ROWS} more (`--format json` lists them)")
    return "\n".join(lines)


def _batch(pair: AcceleratorPair) -> str:
    """Return the batch size of a pair, or both if they differ."""
    if pair.has_one_batch:
        return pair.batch or "not stated"
    return f"{pair.batch or 'not stated'} against {pair.reference_batch or 'not stated'}"


def hardware_comparison_document(comparison: HardwareComparison) -> dict[str, Any]:
    """Return what :func:`hardware_comparison_text` has as JSON-ready values."""
    ratio = comparison.ratio
    return {
        "schema_version": 1,
        "accelerator": comparison.accelerator,
        "reference": comparison.reference,
        "workload": comparison.workload,
        "tasks": [{"task": task, "mode": mode} for task, mode in comparison.tasks],
        "ratio": round(ratio.speedup, 6),
        "low": round(ratio.low, 6),
        "high": round(ratio.high, 6),
        "pairs": [{**asdict(pair), "mean": round(pair.mean, 6)} for pair in ratio.pairs],
        "related_pairs": ratio.related,
    }
