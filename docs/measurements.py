"""Writes `reference/evidence/measurements.md`: the tables of the shipped measurements of this project.

python docs/measurements.py
"""

from __future__ import annotations

import importlib.resources
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.version import Version

from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.evidence.compare import Comparison, compare_block
from knowledge.exchange.files import read_lines, read_observations

PAGE = Path(__file__).parent / "reference" / "evidence" / "measurements.md"
CAMPAIGN = re.compile(r"([a-z0-9.-]+?)-[0-9a-f]{8}-\d+-")
"""Start of the name of a block of a campaign: that of its matrix file."""
INTRODUCTION = """\
# Shipped measurements: tables

The comparisons of this project's own measurements that ship with the program. [Shipped
measurements](../../explanation/shipped-measurements.md) says on which machines they were made and what follows from
them. `python docs/measurements.py` writes this page, and `advisor pi show BLOCK` prints a block with its intervals.

A ratio above 1 is faster than the reference: the newest version without settings. A/A is the reference measured again,
so its differences are noise. **Bold** is significant with 95 % confidence over the whole block; `?` has no result,
because the rounds are too few or too noisy. A program is a model or a block, its mode and its sizes: batch, image size
or length, width and layers.
"""


def shipped() -> list[Observation]:
    """Return the shipped observations of this project."""
    observations: list[Observation] = []
    for file in sorted(importlib.resources.files("knowledge.data").iterdir(), key=lambda f: f.name):
        if file.name.endswith((".jsonl", ".jsonl.gz")) and not file.name.startswith(("mlperf", PUBLISHED)):
            observations += read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name)
    return observations


def short(o: Observation) -> str:
    """Name an indicator run in a few words."""
    p = o.indicator.parameters
    if o.indicator.name == "training_step":
        return f"training {p.get('model', 'v1')}"
    if o.indicator.name in ("model", "block"):
        names = ("batch", "size", "length", *(("width", "layers") if "width" in p else ()))
        sizes = "x".join(str(p[name]) for name in names if p.get(name))
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


def settings_of(o: Observation) -> str:
    """Return the settings of an observation as a text."""
    return " ".join(f"{name}={value}" for name, value in sorted(o.settings.items()))


def cell(c: Comparison) -> str:
    """Return a ratio: bold if it is significant, with a question mark if it has no result."""
    ratio = f"{math.exp(c.ratio.mean):.2f}"
    return f"**{ratio}**" if c.significant else ratio if c.conclusive else f"{ratio}?"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and an empty one."""
    lines = [head, ["---"] * len(head), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def versions_table(comparisons: Iterable[Comparison]) -> list[str]:
    """Return each version's geometric mean over the newest, and how many comparisons are significant."""
    groups: dict[tuple[str, Version], list[Comparison]] = defaultdict(list)
    for c in comparisons:
        if not c.observation.settings and c.indicator.partition("@")[0] not in ("startup", "roofline"):
            groups[c.observation.framework + (" A/A" if c.is_control else ""), version_of(c.observation)].append(c)
    rows = []
    for (name, version), group in sorted(groups.items(), reverse=True):
        mean = math.exp(statistics.fmean(c.ratio.mean for c in group))
        ordered = sorted((c for c in group if c.significant), key=lambda c: c.ratio.mean)
        faster, slower = [c for c in reversed(ordered) if c.ratio.mean > 0], [c for c in ordered if c.ratio.mean < 0]
        extremes = (f"{len(own)}: {_named_ratio(own[0])}" if own else "0" for own in (faster, slower))
        rows.append([f"{name} {version}", f"{mean:.2f}", str(len(group)), *extremes])
    head = ("version", "geometric mean", "comparisons", "faster: the fastest", "slower: the slowest")
    return table(head, rows)


def _named_ratio(c: Comparison) -> str:
    return f"{short(c.observation)} {math.exp(c.ratio.mean):.2f}"


def settings_groups(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Return what each setting does to the reference stack, slowest first."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for c in comparisons:
        o = c.observation
        if o.settings and o.stack.identity == c.reference.stack.identity:
            groups[f"{o.framework} {version_of(o).public} {settings_of(o)}"].append(c)
    return {label: sorted(groups[label], key=lambda c: c.ratio.mean) for label in sorted(groups, reverse=True)}


def settings_table(comparisons: Iterable[Comparison]) -> list[str]:
    """Return the median and the extreme ratios of each setting."""
    rows = []
    for label, ordered in settings_groups(comparisons).items():
        ends = map(_named_ratio, (ordered[0], ordered[-1]))
        median = math.exp(statistics.median(c.ratio.mean for c in ordered))
        rows.append([f"`{label}`", f"{median:.2f}", *ends, f"{sum(c.significant for c in ordered)} of {len(ordered)}"])
    return table(("setting", "median ratio", "slowest", "fastest", "significant"), rows)


def startups(observations: Iterable[Observation]) -> dict[tuple[str, Version], tuple[float, float, float]]:
    """Return the seconds of the import and of the first call, and the memory after the import, of each version."""
    runs: dict[tuple[str, Version], list[Observation]] = defaultdict(list)
    for o in observations:
        if o.indicator.name == "startup" and o.status == "ok" and not o.settings:
            runs[o.framework, version_of(o)].append(o)

    def median(key: tuple[str, Version], name: str) -> float:
        return statistics.median(o.metrics[name] for o in runs[key])

    return {
        key: (
            median(key, "import_seconds"),
            median(key, "first_call_seconds"),
            median(key, "memory_after_import_bytes"),
        )
        for key in sorted(runs, reverse=True)
    }


def between_blocks(observations: Iterable[Observation]) -> list[float]:
    """Return the log ratios of the times of one stack and indicator in its first block and in each later one."""
    medians: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for o in observations:
        if o.status == "ok" and not o.settings and o.median:
            medians[o.indicator.label, f"{o.framework} {version_of(o)}"][o.block].append(o.median)
    ratios: list[float] = []
    for blocks in medians.values():
        first, *rest = (statistics.median(values) for _, values in sorted(blocks.items()))
        ratios += [math.log(first / other) for other in rest]
    return ratios


def arm_of(c: Comparison) -> str:
    """Return the version of an arm, unless it is that of the reference, and its settings."""
    if c.is_control:
        return "A/A"
    version = "" if version_of(c.observation) == version_of(c.reference) else f"{version_of(c.observation)}"
    settings = settings_of(c.observation)
    return " ".join(filter(None, [version, f"`{settings}`" if settings else ""]))


def block_tables(observations: Sequence[Observation]) -> Iterator[str]:
    """Yield the lines of a block: what it is, and every comparison of whole models and blocks of models."""
    o = observations[0]
    comparisons = [c for c in compare_block(observations) if c.observation.indicator.name in ("model", "block")]
    if not comparisons:
        return
    campaign = CAMPAIGN.match(o.block)
    counts = Counter(o.status for o in observations)
    yield f"### {campaign[1] if campaign else o.block}: {o.framework}"
    yield ""
    yield f"{len(observations)} runs ({', '.join(f'{n} {status}' for status, n in sorted(counts.items()))}),"
    yield f"{max(c.rounds for c in comparisons)} rounds, {o.hardware.cpu.model} ({o.hardware.cpu.microarchitecture});"
    yield f"reference {version_of(comparisons[0].reference)}; block `{o.block}`."
    yield ""
    arms, programs = list(dict.fromkeys(map(arm_of, comparisons))), sorted({short(c.observation) for c in comparisons})
    cells = {(arm_of(c), short(c.observation)): cell(c) for c in comparisons}
    if len(arms) > len(programs):
        yield from table(["arm", *programs], ([arm, *(cells.get((arm, p), "") for p in programs)] for arm in arms))
    else:
        yield from table(["program", *arms], ([p, *(cells.get((arm, p), "") for arm in arms)] for p in programs))


def page() -> str:
    """Return the page."""
    observations = shipped()
    campaign = compare_block([o for o in observations if o.block.startswith("frameworks-")])
    others = compare_block([o for o in observations if o.block.startswith(("models-", "blocks-", "input-"))])
    by_kind: dict[str, list[Comparison]] = defaultdict(list)
    for c in others:
        by_kind[c.observation.indicator.name if c.observation.indicator.name in ("model", "block") else ""].append(c)
    lines = [INTRODUCTION, f"{len(observations)} observations in {len({o.block for o in observations})} blocks.", ""]
    lines += ["## Versions", "", "Single operations (`frameworks.toml`):", "", *versions_table(campaign)]
    lines += [*_plots(f"versions-{name}" for name in ("tensorflow-cpu", "numpy", "onnxruntime", "jax"))]
    lines += ["Whole models:", "", *versions_table(by_kind["model"])]
    lines += [*_plots(f"models-{name}" for name in ("jax", "tensorflow-cpu", "torch", "onnxruntime"))]
    lines += ["Blocks of models:", "", *versions_table(by_kind["block"])]
    lines += ["Operations at the sizes of whole models, and preparation of input:", "", *versions_table(by_kind[""])]
    lines += ["## Settings of single operations", "", *settings_table(campaign), *_plots(["settings"])]
    lines += ["## Start-up time and memory", "", *startup_table(observations), *_plots(["startup"])]
    lines += ["## The same run in different blocks", "", *_between_blocks_lines(observations), *_plots(["blocks"])]
    lines += ["## Whole models and blocks of models", ""]
    for block in sorted({o.block for o in observations}):
        lines += block_tables([o for o in observations if o.block == block])
    return "\n".join(lines)


def _plots(names: Iterable[str]) -> list[str]:
    return [*(f"![{name}](../../explanation/plots/{name}.svg)" for name in names), ""]


def startup_table(observations: Iterable[Observation]) -> list[str]:
    """Return how long frameworks take to import and to the first result, and their memory."""
    rows = (
        [f"{name} {version}", f"{imported:.2f} s", f"{called * 1000:.0f} ms", f"{memory / 1e6:.0f} MB"]
        for (name, version), (imported, called, memory) in startups(observations).items()
    )
    return table(("framework", "import", "first call", "memory after import"), rows)


def _between_blocks_lines(observations: Iterable[Observation]) -> list[str]:
    ratios = [math.exp(r) for r in between_blocks(observations)]
    return [
        f"{len(ratios)} runs of one stack and indicator in two blocks: the median ratio of their times is",
        f"{statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}.",
        "",
    ]


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
