"""Compare the measurements of two engines: ``python -m benchmarks.engines KNOWLEDGE BLOCK-A BLOCK-B [...]``.

Each pair is one block of a matrix, measured twice: by two engines, or twice by one engine, which shows the noise. For
each stack and indicator, it prints the ratio of the medians of the rounds, and the error of the ratio, computed from
the spread over the rounds.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase

Cell = tuple[int, str]


def medians(store: SqlKnowledgeBase, block: str) -> dict[Cell, list[float]]:
    """Return the logarithms of the rounds' medians by arm and indicator."""
    logarithms: dict[Cell, list[float]] = defaultdict(list)
    for o in store.observations(block=block):
        if o.median is not None:
            logarithms[o.arm, o.indicator.label].append(math.log(o.median))
    return logarithms


def main() -> None:
    """Compare pairs of blocks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("knowledge", help="address of the knowledge base")
    parser.add_argument("blocks", nargs="+", help="names of blocks, in pairs")
    options = parser.parse_args()
    with open_knowledge_base(options.knowledge, shipped=False) as store:
        for first, second in zip(options.blocks[::2], options.blocks[1::2], strict=True):
            a, b = medians(store, first), medians(store, second)
            ratios, paired, within = [], [], 0
            for cell in sorted(a.keys() & b.keys()):
                difference = statistics.median(b[cell]) - statistics.median(a[cell])
                # The standard error of a median of normal values is 1.2533 times that of their mean.
                error = 1.2533 * math.sqrt(sum(statistics.variance(side[cell]) / len(side[cell]) for side in (a, b)))
                ratios.append(difference)
                if cell[0]:
                    # Relative to the reference arm, as stacks are compared: changes of the whole machine cancel.
                    reference = statistics.median(b[0, cell[1]]) - statistics.median(a[0, cell[1]])
                    paired.append(difference - reference)
                within += abs(difference) <= 1.96 * error
                print(f"  {cell[0]:3} {cell[1]:60} {math.exp(difference):6.3f} +/- {error:.3f}")
            spread = statistics.median(abs(r) for r in ratios)
            print(
                f"{second} over {first}: {len(ratios)} cells, median ratio {math.exp(statistics.median(ratios)):.3f}, "
                f"typical difference {100 * spread:.1f} %, {within} within 1.96 errors; of ratios to the reference "
                f"{100 * statistics.median(abs(p) for p in paired):.1f} %"
            )


if __name__ == "__main__":
    main()
