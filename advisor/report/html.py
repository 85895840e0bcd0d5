"""Reports as one self-contained page: no network, readable without JavaScript, in light and in dark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.api.session import AdviceResult
from advisor.report.interface import changes, target_line
from advisor.report.score import score_lines
from advisor.report.words import count
from advisor.resolve.explain import PROJECT, requirements_within
from advisor.resolve.prices import Price
from knowledge.domain.extras import needs_extra
from knowledge.estimate.interface import PredictedChange, Prediction

Required = Mapping[Any, Mapping[Any, tuple[str, ...]]]
_CODE_SPAN = re.compile(r"`([^`]*)`")
_WIDTH = 200.0
"""Units across a plot of intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One line of a plot: a ratio with its interval.

    Attributes:
        label: What it is the ratio of.
        value: The ratio.
        low: Lower end.
        high: Upper end.
        note: What else to tell of it.
    """

    label: str
    value: float
    low: float
    high: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A package in the tree of requirements.

    Attributes:
        name: Its name.
        version: Its version, or empty where it is not there.
        asked: What is required of it.
        again: Whether it stands further up, with all below it.
        below: What it requires.
    """

    name: str
    version: str
    asked: str
    again: bool
    below: tuple[TreeNode, ...]


def plot(intervals: Sequence[Interval]) -> dict[str, Any] | None:
    """Return the lines of a plot with their places from 0 to 200 on a logarithmic axis; none where there are none.

    The axis holds nine of ten ends, and 1 in its middle; what lies beyond is cut at the edge, so that one great effect
    does not make all others look alike.
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
    """Return what the project requires, and below each package what that requires; each package unfolded once."""
    unfolded: set[str] = set()

    def below(name: str) -> tuple[TreeNode, ...]:
        found = []
        for child, texts in sorted(required.get(name, {}).items()):
            again = child in unfolded
            unfolded.add(child)
            nodes = () if again else below(child)
            found.append(
                TreeNode(
                    name=child,
                    version=versions.get(child, ""),
                    asked=", ".join(texts),
                    again=again and bool(required.get(child)),
                    below=nodes,
                )
            )
        return tuple(found)

    return below(PROJECT)


def render(template: str, **values: Any) -> str:
    """Return a page; whatever text it holds is escaped."""
    with needs_extra("html", "an HTML report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape

    def code_spans(text: object) -> Markup:
        """Set what stands between backticks as code."""
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
    """Return advice as a page.

    Args:
        report: The advice.
        prices: Of the project's own constraints.
    """
    advice = report.advice
    stack = advice.optimum.stack
    required = requirements_within(report.request.problem, report.request.source, stack)
    prediction = advice.prediction
    quality = "optimal for the score" if advice.optimum.proven else "not proven to be optimal"
    return render(
        "advice.html",
        title=f"{count(len(stack), 'package')}, {quality}",
        quality=quality,
        score=score_lines(advice.basis, prediction.workload),
        target=target_line(report.target),
        report=report,
        stack=[(c.name, str(c.version), advice.reasons[c.name], c.name in report.direct) for c in stack],
        changes=changes(report),
        overall=plot([_predicted("predicted speed over the baseline", prediction)]),
        evidence=plot(evidence_of(prediction.changes)),
        prices=prices,
        price_plot=plot(_price_lines(prices)),
        tree=tree(required, {str(c.name): str(c.version) for c in stack}),
    )


def evidence_of(changes: Iterable[PredictedChange]) -> list[Interval]:
    """Return the comparisons that bear on changes."""
    return [
        Interval(
            label=e.indicator,
            value=e.speedup,
            low=e.low,
            high=e.high,
            note=f"{change.package} {e.version} against {e.reference}, {e.rounds} rounds on {e.hardware}",
        )
        for change in changes
        for e in change.evidence
    ]


def _price_lines(prices: Iterable[Price]) -> list[Interval]:
    return [
        _predicted(f"without {price.constraint}", price.prediction)
        for price in prices
        if price.binds and price.prediction is not None and price.prediction.changes
    ]


def _predicted(label: str, prediction: Prediction) -> Interval:
    return Interval(label=label, value=prediction.speedup, low=prediction.low, high=prediction.high)
