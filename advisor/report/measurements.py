"""A block of observations as a table of ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable

from knowledge.domain.observation import Observation
from knowledge.estimate.compare import Comparison, compare_block


def block_table(observations: Iterable[Observation]) -> str:
    """Return the comparisons of a block with the reference of each framework, as Markdown.

    A ratio above 1 is faster than the reference. `*` marks a difference whose interval, corrected for the number of
    comparisons, excludes 1; an A/A row compares a stack with itself and shows the noise floor.
    """
    observations = tuple(observations)
    lines: list[str] = []
    comparisons = compare_block(observations)
    for indicator in sorted({c.indicator for c in comparisons}):
        rows = [c for c in comparisons if c.indicator == indicator]
        reference = rows[0].reference
        lines += [
            f"{indicator} (reference `{_name(reference)}`, {_rate(reference)})",
            "",
            "| stack | ratio | 95 % interval | rounds | |",
            "| --- | --- | --- | --- | --- |",
            *(_row(c) for c in rows),
            "",
        ]
    failed = sorted(
        {(_name(o), o.indicator.name, o.status, _last_line(o.failure)) for o in observations if o.status != "ok"}
    )
    lines += [f"failed: `{name}` {indicator}: {status}: {why}" for name, indicator, status, why in failed]
    significant = sum(c.significant and not c.twin for c in comparisons)
    total = sum(not c.twin for c in comparisons)
    lines.append(f"{significant} of {total} comparisons are significant")
    return "\n".join(lines)


def _row(c: Comparison) -> str:
    name = f"A/A `{_name(c.observation)}`" if c.twin else f"`{_name(c.observation)}`"
    interval = f"{math.exp(c.low):.3f} to {math.exp(c.high):.3f}"
    return f"| {name} | {math.exp(c.mean):.3f} | {interval} | {c.rounds} | {'*' if c.significant else ''} |"


def _name(o: Observation) -> str:
    return f"{o.framework} {o.stack.version_of(o.framework)}"


def _rate(o: Observation) -> str:
    median = o.median
    return f"{median * 1e3:.3g} ms, {o.flops / median / 1e9:.3g} GFLOP/s" if median else "failed"


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
