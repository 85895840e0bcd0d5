"""The pages of the dashboard as files: readable from a disk or any path of a web server, and without JavaScript.

All files are in one directory, so that links are only names. The same knowledge base gives the same bytes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from advisor.dashboard.exported_runs import anchor_of, block_runs
from advisor.dashboard.pages import history
from advisor.dashboard.pages.compare import ALL, WHOLE_MODELS, ComparedRuns, CompareView, compare_view
from advisor.dashboard.pages.hardware import hardware_view
from advisor.dashboard.pages.overview import overview
from advisor.dashboard.pages.runs import requirements_of
from advisor.dashboard.site import Site, device_name, machines, static_file
from advisor.domain.words import count
from knowledge.domain.errors import InputError
from knowledge.domain.identity import content_hash
from knowledge.domain.observation import DAWNBENCH, PUBLISHED
from knowledge.domain.stack import Stack
from knowledge.exchange.admission import MLPERF

MARKER = ".seshat-export"
"""File that lists the files of an export."""
_STATIC_FILES = ("style.css", "report.js", "dashboard.js", "icon.svg")
_LONGEST_NAME = 80
"""Characters of the name of a page, without what makes it unique."""
_SHORTEST_HASH = 4
"""Characters of a hash in the name of a page, unless two pages would have the same name."""
_MOST_SLOWER = 30
"""Changes to slower speeds that the page of histories lists."""
_PUBLISHED_ALONE = "results of MLPerf and DAWNBench, without a reference that ran next to them"
_WITHOUT_RUNS = {
    DAWNBENCH: _PUBLISHED_ALONE,
    **dict.fromkeys(MLPERF, _PUBLISHED_ALONE),
    PUBLISHED: "numbers that others published, which comparisons show with their source",
}
_NOT_COMPARED = "runs without a reference in their block that succeeded under the same conditions"
"""Reasons why observations have no page."""

_Key = TypeVar("_Key", bound=Hashable)
Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What was written.

    Attributes:
        pages: Number of pages.
        size_bytes: Size of all files.
        left_out: What has no page, with the reason, one sentence each.
    """

    pages: int
    size_bytes: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileLinks:
    """Addresses of exported files.

    Attributes:
        addresses: Address by the name and the query of a page.
    """

    addresses: Mapping[tuple[str, Query], str]

    def page(self, name: str, /, **query: str) -> str:
        """Return the address of a page, or an empty text if there is none; empty values are left out."""
        return self.addresses.get(_page(name, **query), "")

    def static(self, name: str, /) -> str:
        """Return the address of a style sheet, a script or a picture."""
        return name


def _page(name: str, **query: str) -> tuple[str, Query]:
    return name, tuple(sorted((key, value) for key, value in query.items() if value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonsRow:
    """A row of the list of comparisons.

    Attributes:
        anchor: Where the hardware is on the page, at its first row; else empty.
        hardware: Name of the hardware.
        framework: Distribution that provides the backend.
        pages: Indicator, number of comparisons and address of each page.
    """

    anchor: str
    hardware: str
    framework: str
    pages: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The pages of an export.

    Attributes:
        comparisons: The comparisons, those of the most measured hardware and framework first.
        files: File of each comparison.
        hardware: Where each hardware is on the list of comparisons.
        blocks: File of each block that is compared.
        labels: Places of the labels on the page of a block.
        parents: Comparisons that show a block.
        histories: The page of histories.
        series: Identities of the series with a page.
        left_out: What has no page, with the reason.
    """

    comparisons: Mapping[ComparedRuns, CompareView]
    files: Mapping[ComparedRuns, str]
    hardware: Mapping[str, str]
    blocks: Mapping[str, str]
    labels: Mapping[str, Mapping[str, int]]
    parents: Mapping[str, Sequence[ComparedRuns]]
    histories: history.HistoryView
    series: tuple[str, ...]
    left_out: tuple[str, ...]


def export_pages(site: Site, directory: Path) -> ExportResult:
    """Write the pages of a knowledge base as files, completely or not at all.

    Args:
        site: The knowledge base.
        directory: New or empty directory, or that of an earlier export, which is replaced.

    Raises:
        InputError: If the directory has other content, or cannot be written.
    """
    target = directory.resolve()
    _refuse_other_content(target, directory)
    plan = _plan(site)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        temporary.mkdir(parents=True)
        names, size = [], 0
        for name, content in _files(site, plan):
            (temporary / name).write_bytes(content)
            names.append(name)
            size += len(content)
        listing = "".join(f"{name}\n" for name in sorted(names)).encode()
        (temporary / MARKER).write_bytes(listing)
        _replace(target, temporary)
    except OSError as error:
        raise InputError(
            f"`{directory}` cannot be written: {error.strerror}", hint="name a directory that can be created"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    pages = sum(name.endswith(".html") for name in names)
    return ExportResult(pages=pages, size_bytes=size + len(listing), left_out=plan.left_out)


def _refuse_other_content(target: Path, directory: Path) -> None:
    """Refuse a directory that holds anything but an earlier export."""
    hint = "name a new directory, an empty one, or that of an earlier export"
    try:
        if not target.exists():
            return
        content = {path.name for path in target.iterdir()}
        own = {MARKER, *(target / MARKER).read_text("utf-8").split("\n")} if MARKER in content else set()
    except NotADirectoryError:
        raise InputError(f"`{directory}` is not a directory", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{directory}` cannot be read: {error}", hint=hint) from None
    others = sorted(content - own)
    if others:
        raise InputError(f"`{directory}` has content that no export wrote, such as `{others[0]}`", hint=hint)


def _replace(target: Path, new: Path) -> None:
    """Replace a directory, which may not exist, by another one."""
    if not (target / MARKER).exists():
        # This replaces an empty directory, too.
        os.rename(new, target)
        return
    old = new.with_name(f"{new.name}.old")
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _plan(site: Site) -> _Plan:
    number = len(history.history_snapshot(site).compute())
    histories = history.history_view(site)
    series = dict.fromkeys(
        (
            *(entry.identity for entry in histories.series if entry.changes or entry.points > 1),
            *(change.series for change in histories.regressions[:_MOST_SLOWER]),
        )
    )
    comparisons = dict(_comparisons(site))
    parents: dict[str, list[ComparedRuns]] = defaultdict(list)
    for selection, view in comparisons.items():
        for block in {row.result.block for size in view.sizes for row in size.rows if row.result.arm >= 0}:
            parents[block].append(selection)
    return _Plan(
        comparisons=comparisons,
        files=_file_names({s: f"compare-{s.hardware}-{s.framework}-{s.indicator}" for s in comparisons}),
        hardware=_slugs({s.hardware: s.hardware for s in comparisons}),
        blocks=_block_files(parents),
        labels=_labels(site, parents),
        parents=parents,
        histories=histories,
        series=tuple(series),
        left_out=tuple(_left_out(site, comparisons, parents, series=number - len(series))),
    )


def _comparisons(site: Site) -> Iterator[tuple[ComparedRuns, CompareView]]:
    """Yield all comparisons with a result, those of the most measured hardware and framework first."""
    groups = site.store.coverage(("hardware", "device", "framework", "indicator"))
    profiles = machines(site, {group.key[0] for group in groups})
    by_hardware, by_framework, by_indicator = Counter[str](), Counter[tuple[str, str]](), Counter[ComparedRuns]()
    for group in groups:
        identity, device, framework, indicator = group.key
        name = device_name(profiles[identity], device)
        by_hardware[name] += group.observations
        by_framework[name, framework] += group.observations
        by_indicator[ComparedRuns(hardware=name, framework=framework, indicator=indicator)] += group.observations

    def order(s: ComparedRuns) -> tuple[int, str, int, str, bool, int, str]:
        hardware, framework = -by_hardware[s.hardware], -by_framework[s.hardware, s.framework]
        return hardware, s.hardware, framework, s.framework, s.indicator != WHOLE_MODELS, -by_indicator[s], s.indicator

    for selection in sorted(by_indicator, key=order):
        view = _all_rows(site, replace(selection, label=ALL))
        if view.sizes:
            yield selection, view


def _all_rows(site: Site, selection: ComparedRuns) -> CompareView:
    """Return a comparison; if it has too many rows for a page of the server, of each size by itself."""
    view = compare_view(site, selection)
    if not view.left_out:
        return view
    views = [compare_view(site, replace(selection, label=label.value)) for label in view.labels]
    sizes = sorted((size for own in views for size in own.sizes), key=lambda size: size.label)
    return replace(view, sizes=tuple(sizes), left_out=sum(own.left_out for own in views))


def _labels(site: Site, blocks: Collection[str]) -> dict[str, dict[str, int]]:
    """Return the place of each label on the page of a block."""
    labels: dict[str, set[str]] = {block: set() for block in blocks}
    for group in site.store.coverage(("block", "label")):
        block, label = group.key
        if block in labels:
            labels[block].add(label)
    return {block: {label: place for place, label in enumerate(sorted(own))} for block, own in labels.items()}


def _left_out(
    site: Site, comparisons: Mapping[ComparedRuns, CompareView], blocks: Collection[str], *, series: int
) -> Iterator[str]:
    """Yield what has no page, with the reason, one sentence each."""
    numbers = Counter[str]()
    for group in site.store.coverage(("block", "indicator")):
        block, indicator = group.key
        if block not in blocks:
            numbers[_WITHOUT_RUNS.get(indicator, _NOT_COMPARED)] += group.observations
    for reason, number in sorted(numbers.items()):
        yield f"{count(number, 'observation')} without a page: {reason}"
    rows = sum(view.left_out for view in comparisons.values())
    if rows:
        yield f"{count(rows, 'comparison')} without a row: there are too many in one size of an indicator"
    if series:
        yield f"{series} histories without a page: others have more changes and measurements"


def _slugs(texts: Mapping[_Key, str]) -> dict[_Key, str]:
    """Return short names of lower-case letters and digits; equal ones get the beginning of a hash."""
    slugs = {key: re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME] for key, text in texts.items()}
    numbers = Counter(slugs.values())
    return {
        key: slug if slug and numbers[slug] == 1 else f"{slug}-{content_hash(texts[key])[:12]}"
        for key, slug in slugs.items()
    }


def _file_names(texts: Mapping[_Key, str]) -> dict[_Key, str]:
    return {key: f"{slug}.html" for key, slug in _slugs(texts).items()}


def _block_files(blocks: Iterable[str]) -> dict[str, str]:
    """Return names that are as short as they can be, because thousands of links have them."""
    hashes = {block: content_hash(block) for block in sorted(blocks)}
    lengths = range(_SHORTEST_HASH, 64)
    length = next((n for n in lengths if len({h[:n] for h in hashes.values()}) == len(hashes)), 64)
    return {block: f"b{digest[:length]}.html" for block, digest in hashes.items()}


def _links(plan: _Plan) -> FileLinks:
    """Return the addresses of all pages, but those of stacks, which only the pages of runs link to."""
    addresses = {
        _page("overview"): "index.html",
        _page("overview", all="true"): "map.html",
        _page("compare"): "compare.html",
        _page("history"): "history.html",
        _page("hardware"): "hardware.html",
    }
    addresses |= {_page("history", series=identity): f"history-{identity}.html" for identity in plan.series}
    addresses |= {_page("compare", hardware=name): f"compare.html#{slug}" for name, slug in plan.hardware.items()}
    for selection, file in plan.files.items():
        page = _page("compare", hardware=selection.hardware, framework=selection.framework)
        addresses.setdefault(page, file)
    for view in plan.comparisons.values():
        for result in (row.result for size in view.sizes for row in size.rows if row.result.arm >= 0):
            page = _page("arm", block=result.block, label=result.label, arm=str(result.arm))
            anchor = anchor_of(plan.labels[result.block][result.label], result.arm)
            addresses[page] = f"{plan.blocks[result.block]}#{anchor}"
    return FileLinks(addresses)


def _files(site: Site, plan: _Plan) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of all files."""
    links = _links(plan)
    for name in _STATIC_FILES:
        yield name, static_file(name)[0]
    for name, text in (*_main_pages(site, plan, links), *_series_pages(site, plan, links)):
        yield name, text.encode()
    for selection, view in plan.comparisons.items():
        text = site.render(
            "compare.html",
            links,
            page="compare",
            view=view,
            siblings=[
                (s.indicator, file)
                for s, file in plan.files.items()
                if (s.hardware, s.framework) == (selection.hardware, selection.framework)
            ],
        )
        yield plan.files[selection], text.encode()
    stacks: dict[str, tuple[str, Stack]] = {}
    for block, file in plan.blocks.items():
        runs, own = block_runs(site.store, block)
        stacks |= own
        text = site.render(
            "exported_runs.html",
            links,
            page="compare",
            view=runs,
            comparisons=[(f"{s.framework} {s.indicator} on {s.hardware}", plan.files[s]) for s in plan.parents[block]],
            stack_files={identity: _stack_file(identity) for identity in own},
        )
        yield file, text.encode()
    for identity, (name, stack) in stacks.items():
        requirements = requirements_of(stack)
        text = site.render(
            "exported_stack.html", links, page="compare", name=name, stack=stack, requirements=requirements
        )
        yield _stack_file(identity), text.encode()


def _stack_file(identity: str) -> str:
    return f"s{identity[:12]}.html"


def _main_pages(site: Site, plan: _Plan, links: FileLinks) -> Iterator[tuple[str, str]]:
    """Yield the pages of the menu."""
    for name, everything in (("index.html", False), ("map.html", True)):
        # Campaigns are under way on this machine only, and now.
        view = replace(overview(site, everything=everything), campaigns=())
        yield name, site.render("overview.html", links, page="overview", view=view)
    rows = tuple(_comparison_rows(plan))
    yield (
        "compare.html",
        site.render("exported_comparisons.html", links, page="compare", rows=rows, left_out=plan.left_out),
    )
    yield (
        "history.html",
        site.render("history.html", links, page="history", view=plan.histories, one=None),
    )
    yield "hardware.html", site.render("hardware.html", links, page="hardware", view=hardware_view(site))


def _series_pages(site: Site, plan: _Plan, links: FileLinks) -> Iterator[tuple[str, str]]:
    for identity in plan.series:
        one = history.series_view(site, identity)
        text = site.render("history.html", links, page="history", view=None, one=one, plot=history.PLOT)
        yield links.page("history", series=identity), text


def _comparison_rows(plan: _Plan) -> Iterator[ComparisonsRow]:
    """Yield the rows of the list of comparisons."""
    pages: dict[tuple[str, str], list[tuple[str, int, str]]] = defaultdict(list)
    for s, view in plan.comparisons.items():
        number = sum(len(size.rows) for size in view.sizes)
        pages[s.hardware, s.framework].append((s.indicator, number, plan.files[s]))
    previous = ""
    for (hardware, framework), own in pages.items():
        anchor = plan.hardware[hardware] if hardware != previous else ""
        yield ComparisonsRow(anchor=anchor, hardware=hardware, framework=framework, pages=tuple(own))
        previous = hardware
