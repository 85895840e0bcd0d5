"""Measured ratios of a project's own benchmark."""

from __future__ import annotations

from knowledge.domain.observation import BENCHMARK
from knowledge.evidence.compare import Comparison, compare_block
from knowledge.evidence.contrasts import Contrast, contrast_of
from knowledge.store.base import KnowledgeBase


def benchmark_comparisons(store: KnowledgeBase, identity: str) -> tuple[Comparison, ...]:
    """Return the measured ratios of a benchmark: each arm compared with the reference of its block.

    A ratio above 1 is better than the reference, whatever the benchmark's metric is. Results of an older version of
    the program have another identity.

    Args:
        store: The knowledge base.
        identity: Identity of the benchmark (:attr:`pi_runners.execution.benchmark.Benchmark.identity`).

    Returns:
        The comparisons in order of block and arm, with the A/A controls and those without a result
        (:attr:`~knowledge.evidence.compare.Comparison.conclusive`).
    """
    observations = store.observations(indicator=BENCHMARK)
    return compare_block(o for o in observations if o.indicator.parameters.get("identity") == identity)


def benchmark_contrasts(store: KnowledgeBase, identity: str) -> tuple[Contrast, ...]:
    """Return the measured ratios of a benchmark as evidence for its project.

    Args:
        store: The knowledge base.
        identity: Identity of the benchmark.
    """
    contrasts = (contrast_of(comparison, 0.0) for comparison in benchmark_comparisons(store, identity))
    return tuple(contrast for contrast in contrasts if contrast is not None)
