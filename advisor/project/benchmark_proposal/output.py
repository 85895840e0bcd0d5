"""Finds a metric in what a program printed: a rate, such as `312.5 images/s`, or the time of a step."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pi_runners.execution.benchmark import Metric

_NUMBER = r"(?<![\w.,])(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w]*,[0-9])"
_TIME = r"(?P<time>ms|us|µs|ns|s|sec|seconds|milliseconds|microseconds|min|minutes)"
_SECOND = r"(?:s|sec|secs|second)\b"
_OF_STEP = (
    r"(?:step|iter|iteration|it|batch|sample|image|img|token|request|example|item|query|sentence|frame|update)s?\b"
)
_RATE_NAME = (
    r"(?:throughput|images|samples|tokens|examples|steps|requests|queries|sentences|items|iterations|frames|words"
    r"|fps|sps|qps)"
)
_TIME_NAME = (
    r"(?:(?:step|iter|iteration|batch|inference|request|forward|mean|average|avg|median|per)[ _-]?)?"
    r"(?:time|latency|duration|elapsed|took)"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        # 312.5 images/s, 312.5 images / sec, 312.5 images per second
        rf"{_NUMBER}(?P<unit>\s*(?P<thing>[A-Za-z]+)\s*(?:/\s*|per\s+){_SECOND})",
        # 12.5 ms/step, 12.5 ms per step, 12.5 ms for a request
        rf"{_NUMBER}(?P<unit>\s*{_TIME}\s*(?P<step>/\s*|per\s+|for\s+(?:a|an|each|one)\s+){_OF_STEP})",
        # images/s: 312.5, throughput: 312.5, FPS 30
        rf"\b(?P<thing>{_RATE_NAME})(?:\s*(?:/|per)\s*{_SECOND})?[^\S\n]*[:=]?[^\S\n]*{_NUMBER}(?P<unit>)",
        # step time: 12.5 ms, time 12.5ms, took 3.2 seconds
        rf"(?P<name>\b{_TIME_NAME})[^\w\n]*{_NUMBER}(?P<unit>\s*{_TIME}\b)",
    )
)
_THINGS = {"throughput": "items", "fps": "frames", "sps": "steps", "qps": "queries"}
_STEP_NAME = re.compile(r"step|iter|batch|inference|request|forward|mean|average|avg|median|per|latency", re.IGNORECASE)
_BYTES = re.compile(r"(?:[kMGT]i?)?(?:B|b|bit|bits|byte|bytes|bps)|[kKMGT]?B|mb|kb|gb", re.IGNORECASE)
_EVALUATION = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test)\b", re.IGNORECASE)
_WORDS_BEFORE = re.compile(r"[A-Za-z_][A-Za-z_ /()\[\]:=|-]*$")
_MOST_WORDS = 3
_MOST_LINE = 2000
_Kind = Literal["rate", "step", "bar", "duration"]
_KINDS: tuple[_Kind, ...] = ("rate", "step", "bar", "duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMetric:
    """A metric that the output of a program contains.

    Attributes:
        metric: The metric.
        value: Its value in this output, in its unit.
        count: How many numbers the program printed.
        line: A line with one of them.
        kind: What the number is: a rate, the time of a step, the rate of a progress bar, or another duration.
    """

    metric: Metric
    value: float
    count: int
    line: str
    kind: _Kind


def metrics_of_output(lines: Sequence[str]) -> tuple[OutputMetric, ...]:
    """Return the metrics in the lines that a program printed, the best first.

    A rate or the time of a step comes before a progress bar, training before evaluation, and a number that is printed
    once before one that is printed again and again.
    """
    parts = [part for line in lines for part in line[:_MOST_LINE].split("\r")]
    last = {pattern: (kind, unit, part) for part in parts for kind, pattern, unit in _metrics_in(part)}
    metrics = [m for pattern, match in last.items() if (m := _with_value(pattern, *match, lines)) is not None]
    metrics.sort(
        key=lambda m: (_KINDS.index(m.kind), bool(_EVALUATION.search(m.line)), m.count > 1, -len(m.metric.pattern))
    )
    return tuple(metrics)


def _metrics_in(text: str) -> Iterator[tuple[_Kind, str, str]]:
    """Yield kind, pattern and unit of the metrics in a line, each number once: by the first form that matches it."""
    places: set[int] = set()
    for form in _FORMS:
        for match in form.finditer(text):
            groups, start = match.groupdict(), match.start("number")
            thing, time = groups.get("thing"), groups.get("time")
            if start in places or (thing and _BYTES.fullmatch(thing)):
                continue
            places.add(start)
            pattern = f"{_escaped(_words_before(text[:start]))}([0-9.eE+-]+){_escaped(match['unit'])}"
            if thing:
                # A thing before its number is written as a heading.
                name = thing if match["unit"] else thing.lower()
                yield "bar" if thing == "it" else "rate", pattern, f"{_THINGS.get(name, name)}/s"
            else:
                is_step = groups.get("step") or _STEP_NAME.search(groups.get("name") or "")
                yield "step" if is_step else "duration", pattern, str(time).lower().replace("µ", "u")


def _words_before(text: str) -> str:
    """Return the last words before a number, without digits, which differ from run to run."""
    match = _WORDS_BEFORE.search(text.rstrip())
    words = match[0].split() if match else []
    return " ".join(words[-_MOST_WORDS:]) + (" " if words and text[-1:].isspace() else "")


def _escaped(text: str) -> str:
    """Return a regular expression for a text, with any number of spaces where it has some."""
    return " *".join(re.escape(part) for part in re.split(r"\s+", text))


def _with_value(pattern: str, kind: _Kind, unit: str, part: str, lines: Sequence[str]) -> OutputMetric | None:
    """Return a metric with its value in all lines, as the harness reads it; ``None`` if it cannot be used."""
    texts = [match[1] for line in lines for match in re.finditer(pattern, line)]
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return None
    if not values or not all(0 < value < math.inf for value in values):
        return None
    # How often a progress bar is printed depends on its speed.
    statistic: Literal["", "median", "last"] = "last" if kind == "bar" else "median" if len(values) > 1 else ""
    return OutputMetric(
        metric=Metric(
            pattern=pattern, unit=unit, better="higher" if kind in ("rate", "bar") else "lower", statistic=statistic
        ),
        value=statistics.median(values) if statistic == "median" else values[-1],
        count=len(values),
        line=" ".join(part.split())[:120],
        kind=kind,
    )
