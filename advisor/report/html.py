"""Reports as one self-contained HTML page: no network, readable without JavaScript, light and dark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.api.session import AdviceResult
from advisor.domain.words import count, no_speedup_text, workload_text
from advisor.report.advice_summary import score_lines
from advisor.report.interface import changes, target_line
from advisor.report.interpreters import interpreter_rows, measured_lines
from advisor.report.reasons import price_text
from advisor.report.settings import setting_lines
from advisor.report.sizes import package_sizes, size_rows, startup_lines, tiles
from advisor.resolve.prices import Price
from advisor.resolve.recommended_settings import CombinedGain, gain_with_settings
from advisor.resolve.stack_requirements import PROJECT, requirements_within
from knowledge.domain.extras import needs_extra
from knowledge.estimate.interface import PredictedChange, Prediction

Required = Mapping[Any, Mapping[Any, tuple[str, ...]]]
_CODE_SPAN = re.compile(r"`([^`]*)`")
_WIDTH = 200.0
"""Width of a plot of intervals, in SVG units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One row of a plot: a ratio with its interval.

    Attributes:
        label: Label of the row.
        value: The ratio.
        low: Lower end of the interval.
        high: Upper end.
        note: Second line of the label.
    """

    label: str
    value: float
    low: float
    high: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A package in the dependency tree.

    Attributes:
        name: Its name.
        version: Its version; empty if it is not in the stack.
        requirement: The requirement on it.
        repeated: Whether it appears further up, with its dependencies.
        children: Its dependencies.
    """

    name: str
    version: str
    requirement: str
    repeated: bool
    children: tuple[TreeNode, ...]


def plot(intervals: Sequence[Interval]) -> dict[str, Any] | None:
    """Return the rows of a plot with their positions from 0 to 200 on a logarithmic axis; none without intervals.

    The axis has 1 in its middle and covers 90 % of the interval ends; longer intervals are cut at the edge, so that one
    large effect does not make all others look alike.
    """
    if not intervals:
        return None
    ends = sorted(abs(math.log(v)) for i in intervals for v in (i.low, i.high))
    half = max(1.15 * ends[min(len(ends) - 1, int(0.9 * len(ends)))], 0.01)

    def place(value: float) -> float:
        return round((1 + max(-1.0, min(1.0, math.log(value) / half))) * _WIDTH / 2, 2)

    rows = [
        {
            "label": i.label,
            "note": i.note,
            "text": f"{i.value:.3f}x [{i.low:.3f}, {i.high:.3f}]",
            "at": place(i.value),
            "from": place(i.low),
            "to": place(i.high),
            "kind": "faster" if i.low > 1 else "slower" if i.high < 1 else "open",
        }
        for i in intervals
    ]
    return {"rows": rows, "one": place(1.0), "width": _WIDTH, "cut": ends[-1] > half}


def tree(required: Required, versions: Mapping[str, str]) -> tuple[TreeNode, ...]:
    """Return the dependency tree of the project; the dependencies of each package are listed once."""
    unfolded: set[str] = set()

    def children(name: str) -> tuple[TreeNode, ...]:
        nodes_here = []
        for child, texts in sorted(required.get(name, {}).items()):
            repeated = child in unfolded
            unfolded.add(child)
            nodes = () if repeated else children(child)
            nodes_here.append(
                TreeNode(
                    name=child,
                    version=versions.get(child, ""),
                    requirement=", ".join(texts),
                    repeated=repeated and bool(required.get(child)),
                    children=nodes,
                )
            )
        return tuple(nodes_here)

    return children(PROJECT)


def render(template: str, **values: Any) -> str:
    """Return a page from a template; texts are escaped."""
    with needs_extra("html", "an HTML report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape

    def code_spans(text: object) -> Markup:
        """Return a text with the parts in backticks as code."""
        return Markup(_CODE_SPAN.sub(r"<code>\1</code>", str(escape(text))))

    environment = Environment(
        loader=PackageLoader("advisor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code_spans
    return environment.get_template(template).render(**values)


def advice_html(report: AdviceResult, prices: Sequence[Price]) -> str:
    """Return a recommendation as a page.

    Args:
        report: The recommendation.
        prices: Prices of the project's constraints.
    """
    advice = report.advice
    stack = advice.optimum.stack
    required = requirements_within(report.request.problem, report.request.source, stack)
    prediction = advice.prediction
    quality = "optimal for the score" if advice.optimum.proven else "not proven to be optimal"
    interpreters = report.interpreters
    return render(
        "advice.html",
        title=f"{count(len(stack), 'package')}, {quality}",
        quality=quality,
        score=score_lines(advice.basis, prediction),
        no_speedup=no_speedup_text(prediction),
        workload=workload_text(prediction),
        target=target_line(report.target),
        report=report,
        size_rows=size_rows(report.sizes),
        sizes=package_sizes(report.sizes.stack),
        measure=report.sizes.stack.best_known,
        tiles=tiles(report.sizes.stack),
        startup=[*startup_lines(report.startup)],
        settings=[*setting_lines(report.setting_effects, report.settings, report.settings_gain)],
        stack=[(c.name, str(c.version), advice.reasons[c.name], c.name in report.direct) for c in stack],
        changes=changes(report),
        interpreters=interpreter_rows(interpreters) if interpreters else [],
        interpreter_evidence=[*measured_lines(interpreters)] if interpreters else [],
        overall=plot(_overall(report)),
        evidence=plot(evidence_of(prediction.changes)),
        prices=prices,
        price_text=price_text,
        price_plot=plot(_price_lines(prices)),
        tree=tree(required, {str(c.name): str(c.version) for c in stack}),
    )


def evidence_of(changes: Iterable[PredictedChange]) -> list[Interval]:
    """Return the measured comparisons behind predicted changes."""
    return [
        Interval(
            label=e.indicator,
            value=e.speedup,
            low=e.low,
            high=e.high,
            note=f"{change.package} {e.version} compared with {e.reference}, {e.rounds} rounds on {e.hardware}",
        )
        for change in changes
        for e in change.evidence
    ]


def _price_lines(prices: Iterable[Price]) -> list[Interval]:
    return [
        _predicted(f"without {price.constraint}", price.prediction)
        for price in prices
        if price.prediction is not None and price.prediction.is_known
    ]


def _overall(report: AdviceResult) -> list[Interval]:
    if not report.advice.prediction.is_known or report.advice.prediction.is_same:
        return []
    intervals = [_predicted("predicted speed over the baseline", report.advice.prediction)]
    if total := gain_with_settings(report.advice.prediction, report.settings_gain):
        intervals.append(_predicted("with the recommended settings", total))
    return intervals


def _predicted(label: str, prediction: Prediction | CombinedGain) -> Interval:
    return Interval(label=label, value=prediction.speedup, low=prediction.low, high=prediction.high)
