"""Draws the plots of `shipped-measurements.md` from the shipped observations, and prints its tables.

pip install 'seshat-advisor[docs]' && python docs/plots.py
"""

from __future__ import annotations

import importlib.resources
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, NullLocator
from packaging.version import Version

from knowledge.domain.observation import Observation
from knowledge.evidence.compare import Comparison, compare_block
from knowledge.exchange.files import read_lines, read_observations

PLACE = Path(__file__).parent / "explanation" / "plots"

mpl.use("svg")
# The same data give the same bytes.
mpl.rcParams.update({"svg.hashsalt": "seshat", "svg.fonttype": "none", "font.size": 8})


_SIZES = ("batch", "size", "length")


def shipped() -> list[Observation]:
    """Return the shipped observations of this project."""
    observations: list[Observation] = []
    for file in sorted(importlib.resources.files("knowledge.data").iterdir(), key=lambda f: f.name):
        if file.name.endswith((".jsonl", ".jsonl.gz")) and not file.name.startswith("mlperf"):
            observations += read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name)
    return observations


def short(o: Observation) -> str:
    """Name an indicator run in a few words."""
    p = o.indicator.parameters
    if o.indicator.name == "training_step":
        return f"training {p.get('model', 'v1')}"
    if o.indicator.name in ("model", "block"):
        sizes = "x".join(str(p[k]) for k in _SIZES if p.get(k))
        return " ".join([str(p[o.indicator.name]), str(p["mode"]), sizes])
    words = [
        str(p[k]) for k in ("kind", "cell", "scenario", "direction", "roof") if k in p and p[k] not in ("forward",)
    ]
    words += ["depthwise"] * ("groups" in p) + ["batched"] * (p.get("batch", 1) != 1 and o.indicator.name == "matmul")
    words += ["transposed"] * ("transpose_b" in p)
    return " ".join([o.indicator.name, *words])


def version_of(o: Observation) -> Version:
    """Return the framework's version."""
    return Version(str(o.stack.version_of(o.framework)))


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
        grid[row][column] = c.mean
        marks[row, column] = f"{math.exp(c.mean):.2f}{'*' if c.significant else '' if c.conclusive else '?'}"
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
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in comparisons:
        o = c.observation
        if o.settings and o.stack.identity == c.reference.stack.identity:
            values = " ".join(f"{k}={v}" for k, v in sorted(o.settings.items()))
            groups[f"{o.framework} {version_of(o).public} {values}"].append(c)
    labels = sorted(groups, reverse=True)
    if not labels:
        return
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.3 * len(labels)))
    print("| setting | median ratio | slowest | fastest | significant |")
    print("| --- | --- | --- | --- | --- |")
    for place, label in enumerate(labels):
        ordered = sorted(groups[label], key=lambda c: c.mean)
        ratios = [math.exp(c.mean) for c in ordered]
        axes.plot(ratios, [place] * len(ratios), "o", markersize=3, alpha=0.6, color="tab:blue")
        axes.plot([statistics.median(ratios)], [place], "|", markersize=12, color="black")
        low, high = ordered[0], ordered[-1]
        print(
            f"| `{label}` | {statistics.median(ratios):.2f} | {short(low.observation)} {ratios[0]:.2f} | "
            f"{short(high.observation)} {ratios[-1]:.2f} | {sum(c.significant for c in ordered)} of {len(ordered)} |"
        )
    axes.set_yticks(range(len(labels)), labels)
    axes.axvline(1.0, color="grey", linewidth=0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("speed over the same stack without the setting, one point an indicator")
    save(figure, name)


def draw_startup(observations: Iterable[Observation]) -> None:
    """Draw how long frameworks take to their first result."""
    runs: dict[tuple[str, Version], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.indicator.name == "startup" and o.status == "ok" and not o.settings:
            runs[o.framework, version_of(o)].append(o)
    keys = sorted(runs, reverse=True)
    figure, axes = plt.subplots(figsize=(7.5, 0.8 + 0.18 * len(keys)))
    print("| framework | import | first call | memory after import |")
    print("| --- | --- | --- | --- |")
    for place, key in enumerate(keys):
        imported, called, memory = (
            statistics.median(o.metrics[name] for o in runs[key])
            for name in ("import_seconds", "first_call_seconds", "memory_after_import_bytes")
        )
        axes.barh([place], [imported], color="tab:blue", label="import" if not place else None)
        axes.barh([place], [called], left=[imported], color="tab:orange", label="first call" if not place else None)
        print(f"| {key[0]} {key[1]} | {imported:.2f} s | {called * 1000:.0f} ms | {memory / 1e6:.0f} MB |")
    axes.set_yticks(range(len(keys)), [f"{name} {version}" for name, version in keys])
    axes.set_xlabel("seconds to the first result")
    axes.legend()
    save(figure, "startup")


def draw_blocks(observations: Iterable[Observation]) -> None:
    """Draw how the same run differs between blocks."""
    medians: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for o in observations:
        if o.status == "ok" and not o.settings and o.median:
            medians[o.indicator.label, f"{o.framework} {version_of(o)}"][o.block].append(o.median)
    ratios: list[float] = []
    for blocks in medians.values():
        if len(blocks) > 1:
            first, *rest = (statistics.median(values) for _, values in sorted(blocks.items()))
            ratios += [math.log(first / other) for other in rest]
    if len(ratios) < 3:
        return
    figure, axes = plt.subplots(figsize=(5, 2))
    axes.hist([math.exp(r) for r in ratios], bins=24)
    axes.set_xlabel("seconds in the first block over seconds in a later one, same stack and indicator")
    save(figure, "blocks")
    print(
        f"{len(ratios)} runs of one stack and indicator in two blocks: median ratio "
        f"{math.exp(statistics.median(ratios)):.2f}, from {math.exp(min(ratios)):.2f} to {math.exp(max(ratios)):.2f}"
    )


def print_versions(comparisons: Sequence[Comparison]) -> None:
    """Print each version's geometric mean over the newest, and where it stands out."""
    groups: dict[tuple[str, Version], list[Comparison]] = defaultdict(list)
    for c in comparisons:
        if not c.observation.settings and c.indicator.partition("@")[0] not in ("startup", "roofline"):
            key = c.observation.framework + (" A/A" if c.is_control else "")
            groups[key, version_of(c.observation)].append(c)
    print("| version | geometric mean | significantly faster | significantly slower |")
    print("| --- | --- | --- | --- |")
    for (name, version), group in sorted(groups.items(), reverse=True):
        mean = math.exp(statistics.fmean(c.mean for c in group))
        faster = [f"{short(c.observation)} {math.exp(c.mean):.2f}" for c in group if c.significant and c.mean > 0]
        slower = [f"{short(c.observation)} {math.exp(c.mean):.2f}" for c in group if c.significant and c.mean < 0]
        print(f"| {name} {version} | {mean:.2f} | {', '.join(faster)} | {', '.join(slower)} |")


def save(figure: plt.Figure, name: str) -> None:
    """Write a plot without its date."""
    PLACE.mkdir(exist_ok=True)
    figure.savefig(PLACE / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw and print everything."""
    observations = shipped()
    print(f"{len(observations)} observations in {len({o.block for o in observations})} blocks\n")
    campaign = [o for o in observations if o.block.startswith("frameworks-")]
    comparisons = compare_block(campaign)
    print(
        f"campaign: {sum(c.significant and not c.is_control for c in comparisons)} of "
        f"{sum(not c.is_control for c in comparisons)} comparisons are significant, "
        f"{sum(not c.conclusive and not c.is_control for c in comparisons)} have no result; of "
        f"{sum(c.is_control for c in comparisons)} A/A comparisons "
        f"{sum(c.significant and c.is_control for c in comparisons)} are significant\n"
    )
    for framework in sorted({o.framework for o in campaign}):
        draw_versions(framework, comparisons, "versions")
    print_versions(comparisons)
    print()
    others = compare_block([o for o in observations if o.block.startswith(("models-", "blocks-", "input-"))])
    models, blocks = ([c for c in others if c.observation.indicator.name == name] for name in ("model", "block"))
    others = [c for c in others if c.observation.indicator.name not in ("model", "block")]
    for framework in sorted({c.observation.framework for c in models}):
        draw_versions(framework, models, "models")
    for named, group in (("whole models", models), ("blocks of models", blocks), ("others", others)):
        print(f"{named}:\n")
        print_versions(group)
        print()
    draw_settings(models, "model-settings")
    print()
    draw_settings(comparisons, "settings")
    print()
    draw_startup(campaign)
    print()
    draw_blocks(observations)


if __name__ == "__main__":
    main()
