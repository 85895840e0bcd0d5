"""Draws the plots of `mlperf-results.md` from the shipped runs, and prints its figures.

pip install 'seshat-advisor[docs]' && python docs/mlperf.py
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from advisor.report.evidence import draw_svg, ratios_plot, software
from knowledge.evidence.mlperf import Gain, Score, efficiency, scaling, score_submissions, software_gains
from knowledge.exchange.mlperf.facts import round_order
from knowledge.exchange.mlperf.results import TRAINING
from knowledge.store.engine import open_knowledge_base

PLACE = Path(__file__).parent / "explanation" / "plots"


def draw_software(gains: list[Gain]) -> None:
    """Draw what software gained on identical NVIDIA machines, where the round asked for the same quality."""
    rows = [
        (
            f"{g.later.benchmark}: {g.later.hardware.name} ({g.later.accelerators}), "
            f"{g.earlier.round_} to {g.later.round_}{' (harder target)' if g.note else ''}",
            g.speedup,
            g.low,
            g.high,
        )
        for g in sorted(gains, key=lambda g: (g.earlier.round_, g.later.benchmark, -g.speedup))
    ]
    text = draw_svg(ratios_plot(rows, title="What software alone gained on identical hardware"), rows=len(rows))
    (PLACE / "mlperf-software.svg").write_text(text, encoding="utf-8")


def draw_scaling(gains: list[Gain]) -> None:
    """Draw efficiency against accelerators, a line for each submitter's software and benchmark."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for g in gains:
        if g.later.round_ == "v0.6" and g.earlier.accelerators == 16:
            name = f"{g.later.benchmark}, {'TPU v3' if 'TPU' in g.later.hardware.accelerators[0].model else 'V100'}"
            lines[name].append((g.later.accelerators or 0, efficiency(g)))

    def draw(axes: Any) -> None:
        for number, (name, points) in enumerate(sorted(lines.items())):
            style = "-" if "TPU" in name else "--"
            counts, values = zip(*[(16, 1.0), *sorted(points)], strict=True)
            axes.plot(counts, values, style, marker="o", markersize=3, linewidth=1, label=name, color=f"C{number % 10}")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("accelerators", fontsize=8)
        axes.set_ylabel("of ideal speed-up over 16", fontsize=8)
        axes.set_title("How time to train scales, MLPerf Training v0.6, closed division", fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=7, loc="upper right")

    (PLACE / "mlperf-scaling.svg").write_text(draw_svg(draw, rows=14), encoding="utf-8")


def print_figures(scores: tuple[Score, ...], gains: list[Gain], grown: list[Gain]) -> None:
    """Print the page's figures."""
    same = [g for g in gains if not g.note]
    print(f"{len(scores)} scores, {len(gains)} comparisons on identical hardware, {len(same)} at the same target")
    for title, group in (("same target", same), ("harder target", [g for g in gains if g.note])):
        speeds = sorted(g.speedup for g in group)
        significant = sum(g.is_significant for g in group)
        print(
            f"{title}: median {statistics.median(speeds):.2f}, {speeds[0]:.2f} to {speeds[-1]:.2f}, {significant} of "
            f"{len(group)} significant"
        )
    logs = [math.log(g.speedup) for g in same]
    print(f"standard deviation of the log gain at the same target: {statistics.stdev(logs):.2f}")
    by_benchmark: dict[tuple[str, str], list[float]] = defaultdict(list)
    for g in gains:
        by_benchmark[g.later.benchmark, f"{g.earlier.round_} to {g.later.round_}"].append(g.speedup)
    for (benchmark, rounds), speeds in sorted(by_benchmark.items()):
        print(f"  {benchmark:12} {rounds}: {', '.join(f'{s:.2f}' for s in sorted(speeds))}")
    spread = [
        statistics.stdev([math.log(g.speedup) for g in same if (g.later.benchmark, g.later.round_) == key])
        for key in sorted({(g.later.benchmark, g.later.round_) for g in same})
        if sum((g.later.benchmark, g.later.round_) == key for g in same) > 1
    ]
    print(f"of one benchmark and round, over machines: {statistics.fmean(spread):.2f} (mean standard deviation)")
    for g in grown:
        if g.later.round_ == "v0.6" and g.earlier.accelerators == 16 and (g.later.accelerators or 0) >= 256:
            counts = f"{g.earlier.accelerators} to {g.later.accelerators}"
            print(f"  {g.later.benchmark:12} {software(g.later)}, {counts}: {g.speedup:.1f} ({efficiency(g):.0%})")
    runs: dict[str, list[float]] = defaultdict(list)
    for s in scores:
        if len(s.all_seconds) > 3:
            logs_of_runs = [math.log(seconds) for seconds in s.all_seconds]
            runs[s.benchmark].append(statistics.stdev(logs_of_runs))
    print("spread of single runs (standard deviation of the log time, median over scores):")
    for benchmark, spreads in sorted(runs.items()):
        print(f"  {benchmark:12} {statistics.median(spreads):.3f}")


def main() -> None:
    """Draw and print everything."""
    with open_knowledge_base("sqlite://") as store:
        every = score_submissions(store.observations(indicator=TRAINING))
    # The page is about the rounds up to v0.7.
    scores = tuple(s for s in every if round_order(s.round_) < (1, 0))
    gains, grown = list(software_gains(scores)), list(scaling(scores))
    draw_software(gains)
    draw_scaling(grown)
    print_figures(scores, gains, grown)


if __name__ == "__main__":
    main()
