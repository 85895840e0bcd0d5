"""Reference page of the workload catalogue: which indicators represent the models of published benchmark suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from urllib.parse import urlsplit

from advisor.report.tables import table_lines
from knowledge.estimate.catalogue import (
    BenchmarkSuite,
    CatalogueEntry,
    PublishedSize,
    Representation,
    benchmark_catalogue,
    benchmark_suites,
)
from pi_runners.models import NETWORKS
from pi_runners.models.count import operations

_SCALES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_INTRODUCTION = """\
# Workload catalogue

The models and operations of published benchmark suites, and the [indicators](indicators/README.md) that represent them.
The entries, with their sources, are in `knowledge/estimate/catalogue`.

| closeness | meaning |
| --- | --- |
| same | a whole model or an operation of the same architecture |
| similar | the same kinds of layers in similar proportions; the note says what differs |
| none | no indicator represents it; the note says why |

Large language models are similar to `gpt2` in the kind of operation only: on many devices, memory bandwidth and
communication limit them. Published sizes are as the source states them; some sources count a multiply-add as one
operation, others as two. Parameters of single operations are examples.
"""


def workload_catalogue_page() -> str:
    """Return the page of the workload catalogue."""
    suites = {suite: tuple(entries) for suite, entries in groupby(benchmark_catalogue(), key=lambda e: e.suite)}
    described = {suite.name: suite for suite in benchmark_suites()}
    lines = [_INTRODUCTION, *_summary_table(suites), "", *_parts_table(), ""]
    for suite, entries in suites.items():
        lines += [f"## {suite}", "", f"Models: {_link(entries[0].sources[0])}.", "", *_metric_lines(described[suite])]
        heads = ("name", "versions", "task", "represented by", "closeness", "note", "source")
        lines += [*table_lines(heads, _rows(entries)), ""]
    return "\n".join(lines)


def _metric_lines(suite: BenchmarkSuite) -> Iterator[str]:
    """Yield what a suite measures, and what this program can and cannot say about it."""
    if suite.metrics:
        rows = ((metric.name, metric.unit, _link(metric.source)) for metric in suite.metrics)
        yield from table_lines(("metric", "unit", "source"), rows)
        yield ""
    if suite.evidence:
        yield f"What this program has: {suite.evidence}."
        yield ""
    if suite.limits:
        yield f"What it cannot say: {suite.limits}."
        yield ""


def _summary_table(suites: Mapping[str, tuple[CatalogueEntry, ...]]) -> Iterator[str]:
    levels = ("same", "similar", "none")
    counts = {suite: Counter[str](entry.closeness for entry in entries) for suite, entries in suites.items()}
    rows = ((suite, str(n.total()), *(str(n[level]) for level in levels)) for suite, n in counts.items())
    return table_lines(("suite", "entries", *levels), rows)


def _parts_table() -> Iterator[str]:
    """Yield the number of calls of single operations in one call of each whole model."""
    yield "## Parts of the whole models"
    yield ""
    yield "Calls of [single operations](indicators/README.md) in one call of a whole model. Activations of one input,"
    yield "pooling and copies have no indicator of their own."
    yield ""
    rows = []
    for network in NETWORKS.values():
        for mode, parameters in network.sets["medium"].items():
            calls: Counter[str] = Counter()
            for operation in operations(network, parameters, mode):
                calls[operation.indicator] += operation.calls
            parts = ", ".join(f"{count} {name}" for name, count in sorted(calls.items()))
            rows.append((f"`{network.name}`", mode, parts))
    yield from table_lines(("model", "mode", "single operations"), rows)


def _rows(entries: Iterable[CatalogueEntry]) -> Iterator[Sequence[str]]:
    """Yield one row for each group of entries that differ only in their name."""
    for _, group in groupby(entries, key=lambda entry: replace(entry, key="", name="")):
        names = tuple(group)
        entry = names[0]
        task = f"{entry.task}; {', '.join(entry.modes)}{_size(entry.published)}"
        parts = "<br>".join(_representation(part, entry.modes) for part in entry.represented_by)
        source = _link(entry.sources[-1])
        first = (", ".join(e.name for e in names), _versions(entry.versions), task)
        yield (*first, parts or "-", entry.closeness, entry.note, source)


def _versions(versions: tuple[str, ...]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _size(size: PublishedSize) -> str:
    """Return the published numbers of parameters and operations, after a semicolon."""
    numbers = ((size.parameters, "parameters"), (size.operations, "operations"))
    return "".join(f"; {_amount(number)} {what}" for number, what in numbers if number is not None)


def _amount(number: float) -> str:
    """Return a large number with a word for its scale, such as ``25.6 million``."""
    for scale, word in _SCALES:
        if number >= scale:
            return f"{number / scale:g} {word}"
    return f"{number:g}"


def _representation(part: Representation, modes: tuple[str, ...]) -> str:
    if part.model is not None:
        return f"[model](indicators/model.md) `{part.model}` ({', '.join(part.modes or modes)})"
    settings = ",".join(f"{name}={value}" for name, value in part.parameters.items())
    return f"[{part.indicator}](indicators/{part.indicator}.md) `{settings}`"


def _link(address: str) -> str:
    return f"[{urlsplit(address).netloc}]({address})"
