"""Compare: versions and settings of a framework at an indicator on one kind of hardware, as intervals."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from packaging.version import InvalidVersion, Version

from advisor.dashboard.site import (
    ServerLinks,
    Site,
    answer,
    device_name,
    links_of,
    machines,
    selected_machines,
    site_of,
)
from advisor.domain.words import indicator_text, interval_text, ratio_text
from advisor.report.axes import LogAxis
from knowledge.domain.observation import DAWNBENCH, PUBLISHED
from knowledge.evidence.block_results import ComparedArm, block_results
from knowledge.exchange.admission import MLPERF
from knowledge.store.base import Coverage

router = APIRouter()
MOST_BLOCKS = 12
"""Blocks that are compared; of more, the newest."""
ALL = "all"
"""Word for all sizes of an indicator."""
_MOST_ROWS = 400
"""Rows of a page."""
_WIDTH = 240.0
"""Width of the plot of a row, in SVG units."""
WHOLE_MODELS = "model"
"""Indicator that is shown first: a person has a program, not a single operation."""
_NOT_COMPARED = frozenset({DAWNBENCH, *MLPERF})
"""Indicators of results that have no reference in their block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of a form, with the number of observations behind it."""

    value: str
    text: str
    observations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """What is compared.

    Attributes:
        hardware: Name of a processor or an accelerator.
        framework: Distribution that provides the backend.
        indicator: Name of the indicator.
        label: Label of one size of it, or :data:`ALL`; empty for the one with the most observations.
    """

    hardware: str = ""
    framework: str = ""
    indicator: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlottedRange:
    """An interval in a plot: positions of its ends, and of its mean."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """A row of the plot: an arm of a block compared with its reference.

    Attributes:
        result: The comparison.
        place: Its interval in the plot.
        noise: Interval of the A/A comparison of the same block and size in the plot; ``None`` without one.
        source: Who delivered or published it; empty for the user's own and for what ships.
        text: The ratio and its interval.
        verdict: ``faster``, ``slower``, ``no clear difference``, ``no result``, ``A/A`` or ``published``.
        block_time: When the block began to be measured, ISO 8601, if it is the first row of the block; else empty.
    """

    result: ComparedArm
    place: PlottedRange
    noise: PlottedRange | None
    source: str
    text: str
    verdict: str
    block_time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSize:
    """The rows of one size of the indicator, with the axis that they share: place of 1, and of other ratios."""

    label: str
    title: str
    one: float
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[ComparedRow, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """Comparisons of versions and settings.

    Attributes:
        selection: What is compared.
        hardware: Choices of hardware.
        frameworks: Choices of frameworks.
        indicators: Choices of indicators.
        labels: Choices of sizes.
        sizes: The comparisons of each size.
        blocks: Number of blocks that are compared.
        older: Number of older blocks that are not.
        refused: Runs that are not compared, with the reasons.
        left_out: Number of rows that the page leaves out.
        command: The command line that prints the same.
        is_listed_only: Whether these results have no reference, so that nothing can be compared.
    """

    selection: ComparedRuns
    hardware: tuple[Choice, ...]
    frameworks: tuple[Choice, ...]
    indicators: tuple[Choice, ...]
    labels: tuple[Choice, ...]
    sizes: tuple[ComparedSize, ...]
    blocks: int
    older: int
    refused: tuple[str, ...]
    left_out: int
    command: str
    is_listed_only: bool


def compare_view(site: Site, selection: ComparedRuns) -> CompareView:
    """Return the comparisons that a selection names; what it leaves open is what has the most observations."""
    groups = site.coverage(("hardware", "device", "framework", "indicator"))
    profiles = machines(site, {group.key[0] for group in groups})

    def hardware_of(group: Coverage) -> str:
        return device_name(profiles[group.key[0]], group.key[1])

    hardware = _choices(groups, hardware_of)
    first = next((g for g in _largest(groups) if g.key[3] not in _NOT_COMPARED), None)
    chosen_hardware = selection.hardware or (hardware_of(first) if first is not None else "")
    identities = selected_machines(site, {group.key[0] for group in groups}, chosen_hardware)
    groups = tuple(group for group in groups if group.key[0] in identities)
    frameworks = _choices(groups, lambda group: group.key[2])
    framework = selection.framework or _first(frameworks)
    groups = tuple(group for group in groups if group.key[2] == framework)
    indicators = _choices(groups, lambda group: group.key[3])
    compared = [choice for choice in indicators if choice.value not in _NOT_COMPARED]
    models = [choice for choice in compared if choice.value == WHOLE_MODELS]
    indicator = selection.indicator or _first(models or compared or indicators)
    selected = ComparedRuns(hardware=chosen_hardware, framework=framework, indicator=indicator, label=selection.label)
    return _compared(site, selected, identities, (hardware, frameworks, indicators))


def _compared(
    site: Site, selection: ComparedRuns, identities: frozenset[str], choices: tuple[tuple[Choice, ...], ...]
) -> CompareView:
    groups = site.coverage(("block", "label", "hardware"), framework=selection.framework, indicator=selection.indicator)
    groups = tuple(group for group in groups if group.key[2] in identities)
    labels = _choices(groups, lambda group: group.key[1], indicator_text)
    selection = replace(selection, label=selection.label or _first(labels))
    newest: dict[str, str] = {}
    for group in groups:
        if selection.label in (ALL, group.key[1]):
            newest[group.key[0]] = max(group.newest, newest.get(group.key[0], ""))
    names = sorted(newest, key=lambda name: (newest[name], name), reverse=True)
    is_listed_only = selection.indicator in _NOT_COMPARED
    blocks = [b for b in site.store.blocks(names[:MOST_BLOCKS]) if b.trust > 0] if not is_listed_only else []
    results: list[ComparedArm] = []
    refused: list[str] = []
    for block in sorted(blocks, key=lambda block: names.index(block.name)):
        own = block_results(site.store, block, indicator=selection.indicator, framework=selection.framework)
        results += [r for r in own.arms if r.hardware in identities and selection.label in (ALL, r.label)]
        refused += own.refused
    words = ["--indicator", selection.indicator, "--hardware", selection.hardware]
    words += ["--framework", selection.framework]
    return CompareView(
        selection=selection,
        hardware=choices[0],
        frameworks=choices[1],
        indicators=choices[2],
        labels=labels,
        sizes=tuple(_sizes(results[:_MOST_ROWS], {b.name: b.source for b in blocks}, newest)),
        blocks=len(blocks),
        older=max(0, len(names) - MOST_BLOCKS) if not is_listed_only else 0,
        refused=tuple(refused),
        left_out=max(0, len(results) - _MOST_ROWS),
        # Published pairs are compared only here.
        command="" if selection.indicator == PUBLISHED else site.command("knowledge", "compare", *words),
        is_listed_only=is_listed_only,
    )


def _choices(
    groups: Iterable[Coverage], value: Callable[[Coverage], str], text: Callable[[str], str] = str
) -> tuple[Choice, ...]:
    """Return the values of groups as choices, those with the most observations first."""
    numbers: dict[str, int] = defaultdict(int)
    for group in groups:
        numbers[value(group)] += group.observations
    ordered = sorted(numbers, key=lambda name: (-numbers[name], name))
    return tuple(Choice(value=name, text=text(name), observations=numbers[name]) for name in ordered if name)


def _largest(groups: Iterable[Coverage]) -> list[Coverage]:
    return sorted(groups, key=lambda group: -group.observations)


def _first(choices: Sequence[Choice]) -> str:
    return choices[0].value if choices else ""


def _sizes(
    results: Sequence[ComparedArm], sources: Mapping[str, str], times: Mapping[str, str]
) -> Iterable[ComparedSize]:
    by_label: dict[str, list[ComparedArm]] = defaultdict(list)
    for result in results:
        by_label[result.label].append(result)
    for label, members in sorted(by_label.items()):
        ends = [end for r in members for end in (r.low, r.high)]
        axis = LogAxis.around_one(ends, first=0.0, last=_WIDTH)
        noise = {
            block: PlottedRange(
                low=min(place.low for place in places),
                mean=axis.place(1.0),
                high=max(place.high for place in places),
            )
            for block in {r.block for r in members}
            if (places := [_place(r, axis) for r in members if r.block == block and r.is_control and r.conclusive])
        }
        blocks = list(dict.fromkeys(r.block for r in members))
        members.sort(key=partial(_order, blocks=blocks))
        yield ComparedSize(
            label=label,
            title=indicator_text(label),
            one=axis.place(1.0),
            ticks=axis.texts(most=5),
            rows=tuple(
                ComparedRow(
                    result=r,
                    place=_place(r, axis),
                    noise=noise.get(r.block) if not r.is_control else None,
                    source=r.block.removeprefix(f"{PUBLISHED}/") if r.arm < 0 else sources[r.block],
                    text=f"{ratio_text(r.speedup, 'exact')}x {interval_text(r, 'exact') if r.arm >= 0 else ''}".strip(),
                    verdict=verdict(r),
                    block_time=times[r.block] if place == 0 or members[place - 1].block != r.block else "",
                )
                for place, r in enumerate(members)
            ),
            is_cut=not all(map(axis.covers, ends)),
        )


def _order(result: ComparedArm, blocks: Sequence[str]) -> tuple[object, ...]:
    """Return what rows are ordered by: the newest block first, in it the newest version, without settings first."""
    try:
        version = Version(result.version)
    except InvalidVersion:
        version = Version("0")
    parts = tuple(-number for number in (version.major, version.minor, version.micro))
    return blocks.index(result.block), not result.is_control, parts, len(result.settings), result.name


def _place(result: ComparedArm, axis: LogAxis) -> PlottedRange:
    return PlottedRange(low=axis.place(result.low), mean=axis.place(result.speedup), high=axis.place(result.high))


def verdict(result: ComparedArm) -> str:
    """Return what a comparison shows, in words."""
    if result.arm < 0:
        return "published"
    if not result.conclusive:
        return "no result"
    if result.is_control:
        return "A/A"
    if not result.significant:
        return "no clear difference"
    return "faster" if result.speedup > 1 else "slower"


COLUMNS = (
    *("block", "indicator", "stack", "reference", "ratio", "low", "high", "rounds"),
    *("conclusive", "significant", "control", "source"),
)
"""Columns of the CSV file."""


def compared_csv(view: CompareView) -> str:
    """Return the rows as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for size in view.sizes:
        for row in size.rows:
            r = row.result
            writer.writerow(
                (
                    *map(_cell_text, (r.block, r.label, r.name, r.reference)),
                    *(round(r.speedup, 6), round(r.low, 6), round(r.high, 6)),
                    *(r.rounds, r.conclusive, r.significant, r.is_control, _cell_text(row.source)),
                )
            )
    return text.getvalue()


def _cell_text(text: str) -> str:
    """Return a text that spreadsheets do not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\0")) else text


@router.get("/compare", response_class=HTMLResponse, include_in_schema=False)
def page(
    request: Request, hardware: str = "", framework: str = "", indicator: str = "", label: str = ""
) -> HTMLResponse:
    """Show comparisons."""
    selection = ComparedRuns(hardware=hardware, framework=framework, indicator=indicator, label=label)
    return answer(request, "compare.html", page="compare", view=compare_view(site_of(request), selection))


@router.get("/api/compare")
def record(
    request: Request, hardware: str = "", framework: str = "", indicator: str = "", label: str = ""
) -> CompareView:
    """Return comparisons of versions and settings of a framework at an indicator on one kind of hardware."""
    selection = ComparedRuns(hardware=hardware, framework=framework, indicator=indicator, label=label)
    return compare_view(site_of(request), selection)


@router.get("/compare.csv", response_class=Response)
def csv_file(
    request: Request, hardware: str = "", framework: str = "", indicator: str = "", label: str = ""
) -> Response:
    """Return the same as CSV."""
    selection = ComparedRuns(hardware=hardware, framework=framework, indicator=indicator, label=label)
    text = compared_csv(compare_view(site_of(request), selection))
    return Response(text, media_type="text/csv", headers=_attachment("comparison.csv"))


@router.get("/compare.svg", response_class=Response)
def svg_file(
    request: Request, hardware: str = "", framework: str = "", indicator: str = "", label: str = ""
) -> Response:
    """Return the same as a plot."""
    site = site_of(request)
    selection = ComparedRuns(hardware=hardware, framework=framework, indicator=indicator, label=label)
    text = compared_svg(site, compare_view(site, selection), links_of(request))
    return Response(text, media_type="image/svg+xml; charset=utf-8", headers=_attachment("comparison.svg"))


def compared_svg(site: Site, view: CompareView, links: ServerLinks) -> str:
    """Return the rows as one SVG file with its own style."""
    return site.render("compare.svg", links, view=view, width=_WIDTH)


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
