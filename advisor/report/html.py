"""Reports as HTML: content without scripts and styles of its own, and the self-contained page around it.

The page loads nothing from the network, is readable without JavaScript, and is light or dark.
"""

from __future__ import annotations

import importlib.resources
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor.domain.words import count, indicator_text, interval_text, ratio_text
from advisor.report.axes import LogAxis
from advisor.resolve.candidates.problem import PROJECT
from knowledge.domain.ratio import Ratio
from knowledge.estimate.interface import Evidence, PredictedChange

Required = Mapping[Any, Mapping[Any, tuple[str, ...]]]
_CODE_SPAN = re.compile(r"`([^`]*)`")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:)]")
_TEMPLATES = importlib.resources.files("advisor.report") / "templates"
STYLE_SHEET: str = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
"""What the content of reports looks like."""
SCRIPT: str = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
"""What adds filters above long tables of reports."""
_EDGE = 2.0
"""Percent of the width of a plot at both sides, so that no mark is cut."""
_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Ratios that an axis may name; it names their inverses, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One row of a plot.

    Attributes:
        label: What the ratio is for.
        ratio: The ratio with its interval.
        note: A second line of the label.
        badge: A class in one word, such as ``set``; empty for none.
        is_estimated: Whether nobody measured it; its mark is hollow.
    """

    label: str
    ratio: Ratio
    note: str = ""
    badge: str = ""
    is_estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A package in the dependency tree, with its version if it is in the stack; a repeated one has children above."""

    name: str
    version: str
    requirement: str
    repeated: bool
    children: tuple[TreeNode, ...]


def plot(intervals: Sequence[Interval]) -> dict[str, Any] | None:
    """Return the rows of a plot with their positions in percent of a logarithmic axis; `None` without intervals.

    The axis has 1 in its middle and covers 90 % of the interval ends; longer intervals are cut at the edge, so that one
    large effect does not make all others look alike.
    """
    if not intervals:
        return None
    ends = [end for i in intervals for end in (i.ratio.low, i.ratio.high)]
    axis = LogAxis.around_one(ends, first=_EDGE, last=100 - _EDGE)
    rows = [
        {
            "label": i.label,
            "note": i.note,
            "badge": i.badge,
            "speed": f"{ratio_text(i.ratio.speedup, 'exact')}x",
            "interval": interval_text(i.ratio, "exact") if i.ratio.variance else "",
            "at": axis.place(i.ratio.speedup),
            "from": axis.place(i.ratio.low),
            "to": axis.place(i.ratio.high),
            "kind": "faster" if i.ratio.low > 1 else "slower" if i.ratio.high < 1 else "open",
            "is_estimated": i.is_estimated,
        }
        for i in intervals
    ]
    # The labels of the axis must not touch: the largest ratio that it can name, and its inverse.
    tick = max(tick for tick in _TICKS if math.log(tick) <= 0.85 * math.log(axis.most))
    ticks = [(axis.place(value), f"{value:.3g}") for value in (1 / tick, 1.0, tick)]
    return {"rows": rows, "ticks": ticks, "one": axis.place(1.0), "cut": not all(map(axis.covers, ends))}


def tree(required: Required, versions: Mapping[str, str]) -> tuple[TreeNode, ...]:
    """Return the dependency tree of the project; the dependencies of each package are listed once."""
    unfolded: set[str] = set()

    def children(name: str) -> tuple[TreeNode, ...]:
        nodes_here = []
        for child, texts in sorted(required.get(name, {}).items()):
            repeated = child in unfolded
            unfolded.add(child)
            node = TreeNode(
                name=child,
                version=versions.get(child, ""),
                requirement=", ".join(texts),
                repeated=repeated and bool(required.get(child)),
                children=() if repeated else children(child),
            )
            nodes_here.append(node)
        return tuple(nodes_here)

    return children(PROJECT)


def fragment(template: str, **values: Any) -> Markup:
    """Return the content of a page from a template; texts are escaped.

    It has no scripts and no styles, so that it can be a part of a page with a strict content security policy.
    """
    environment = Environment(
        loader=PackageLoader("advisor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= text_filters()
    return Markup(environment.get_template(template).render(**values))


def page(title: str, content: Markup) -> str:
    """Return the self-contained page with some content."""
    own = {"title": title, "content": content, "style_sheet": Markup(STYLE_SHEET), "script": Markup(SCRIPT)}
    return str(fragment("page.html", **own))


def text_filters() -> dict[str, Callable[[object], Markup]]:
    """Return the filters of templates: for code in backticks, and for addresses."""
    return {"code": _code_spans, "links": _links}


def _code_spans(text: object) -> Markup:
    return Markup(_CODE_SPAN.sub(r"<code>\1</code>", str(escape(text))))


def _links(text: object) -> Markup:
    """Return a text with its addresses as links, which show the host."""
    parts, end = [], 0
    for match in _ADDRESS.finditer(str(text)):
        link = Markup('<a href="{}">{}</a>').format(match[0], urlsplit(match[0]).hostname or match[0])
        parts += [escape(str(text)[end : match.start()]), link]
        end = match.end()
    return Markup("").join([*parts, escape(str(text)[end:])])


def evidence_of(changes: Iterable[PredictedChange]) -> list[Interval]:
    """Return the comparisons behind predicted changes."""
    return [evidence_interval(change.package, e) for change in changes for e in change.evidence]


def evidence_interval(package: str, evidence: Evidence) -> Interval:
    """Return one comparison of versions of a package as a row of a plot."""
    note = f"{package} {evidence.version} compared with {evidence.reference}, {_origin(evidence)}"
    return Interval(label=indicator_text(evidence.indicator), ratio=evidence.ratio, note=note)


def _origin(evidence: Evidence) -> str:
    if evidence.source:
        return f"on {evidence.hardware}, published {evidence.year} by {evidence.source}"
    return f"{count(evidence.rounds, 'round')} on {evidence.hardware}"
