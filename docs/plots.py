"""Draws the plots of `reference/evidence/measurements.md` from the shipped observations.

pip install 'seshat-advisor[docs]' && python docs/plots.py
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from docs.measurements import between_blocks, settings_groups, shipped, short, startups, version_of
from knowledge.domain.observation import Observation
from knowledge.evidence.compare import Comparison, compare_block

PLACE = Path(__file__).parent / "explanation" / "plots"

mpl.use("svg")
# The same data give the same bytes.
mpl.rcParams.update({"svg.hashsalt": "seshat", "svg.fonttype": "none", "font.size": 8})


def draw_versions(framework: str, comparisons: Sequence[Comparison], name: str) -> None:
    """Draw how fast each version is against the reference, by indicator, and write it under a name."""
    rows = [c for c in comparisons if c.observation.framework == framework and not c.observation.settings]
    versions = sorted({version_of(c.observation) for c in rows if not c.is_control}, reverse=True)
    names = sorted({short(c.observation) for c in rows})
    if not versions:
        return
    columns = ["A/A", *(str(v) for v in versions)]
    grid = [[math.nan] * len(columns) for _ in names]
    marks: dict[tuple[int, int], str] = {}
    for c in rows:
        column = 0 if c.is_control else 1 + versions.index(version_of(c.observation))
        row = names.index(short(c.observation))
        grid[row][column] = c.ratio.mean
        marks[row, column] = f"{math.exp(c.ratio.mean):.2f}{'*' if c.significant else '' if c.conclusive else '?'}"
    figure, axes = plt.subplots(figsize=(1.6 + 0.62 * len(columns), 0.8 + 0.19 * len(names)))
    image = axes.imshow(grid, cmap="RdBu", vmin=-0.7, vmax=0.7, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(names)), names)
    for (row, column), text in marks.items():
        colour = "white" if abs(grid[row][column]) > 0.4 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    axes.set_title(
        f"{framework}: speed over {version_of(rows[0].reference)} (above 1 is faster, * significant, ? no result)"
    )
    figure.colorbar(image, ax=axes, label="log ratio", fraction=0.03)
    save(figure, f"{name}-{framework}")


def draw_settings(comparisons: Sequence[Comparison], name: str) -> None:
    """Draw what each setting does to the reference stack, one point an indicator, and write it under a name."""
    groups = settings_groups(comparisons)
    if not groups:
        return
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.3 * len(groups)))
    for place, ordered in enumerate(groups.values()):
        ratios = [math.exp(c.ratio.mean) for c in ordered]
        axes.plot(ratios, [place] * len(ratios), "o", markersize=3, alpha=0.6, color="tab:blue")
        axes.plot([statistics.median(ratios)], [place], "|", markersize=12, color="black")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.axvline(1.0, color="grey", linewidth=0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("speed over the same stack without the setting, one point an indicator")
    save(figure, name)


def draw_startup(observations: Iterable[Observation]) -> None:
    """Draw how long frameworks take to their first result."""
    seconds = startups(observations)
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.18 * len(seconds)))
    for place, (imported, called, _) in enumerate(seconds.values()):
        axes.barh([place], [imported], color="tab:blue", label="import" if not place else None)
        axes.barh([place], [called], left=[imported], color="tab:orange", label="first call" if not place else None)
    axes.set_yticks(range(len(seconds)), [f"{name} {version}" for name, version in seconds])
    axes.set_xlabel("seconds to the first result")
    axes.legend()
    save(figure, "startup")


def draw_blocks(observations: Iterable[Observation]) -> None:
    """Draw how the same run differs between blocks."""
    figure, axes = plt.subplots(figsize=(5, 2))
    axes.hist([math.exp(r) for r in between_blocks(observations)], bins=24)
    axes.set_xlabel("seconds in the first block over seconds in a later one, same stack and indicator")
    save(figure, "blocks")


def save(figure: Figure, name: str) -> None:
    """Write a plot without its date."""
    PLACE.mkdir(exist_ok=True)
    figure.savefig(PLACE / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw everything."""
    observations = shipped()
    campaign = [o for o in observations if o.block.startswith("frameworks-")]
    comparisons = compare_block(campaign)
    for framework in sorted({o.framework for o in campaign}):
        draw_versions(framework, comparisons, "versions")
    models = [
        c
        for c in compare_block([o for o in observations if o.block.startswith("models-")])
        if c.observation.indicator.name == "model"
    ]
    for framework in sorted({c.observation.framework for c in models}):
        draw_versions(framework, models, "models")
    draw_settings(comparisons, "settings")
    draw_startup(campaign)
    draw_blocks(observations)


if __name__ == "__main__":
    main()
