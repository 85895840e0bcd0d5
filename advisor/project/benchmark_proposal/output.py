"""Finds a metric in what a program printed: a rate, such as `312.5 images/s`, or the time of a step."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pi_runners.execution.benchmark import Metric

_NUMBER = r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w]*,[0-9])"
_TIME = r"(?P<time>ms|us|µs|ns|s|sec|secs|seconds|milliseconds|microseconds|min|minutes)"
_THING = r"(?P<thing>[A-Za-z]+)"
_SECOND = r"(?:s|sec|secs|second)\b"
_OF_STEP = (
    r"(?:step|iter|iteration|it|batch|sample|image|img|token|request|example|item|query|sentence|frame|update)s?\b"
)
_UNITS = {
    "sec": "s",
    "secs": "s",
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "µs": "us",
    "minutes": "min",
}
_BYTES = re.compile(r"(?:[kMGT]i?)?(?:B|b|bit|bits|byte|bytes|bps)|[kKMGT]?B|mb|kb|gb", re.IGNORECASE)
_RATE_NAMES = (
    r"(?:throughput|images|samples|tokens|examples|steps|requests|queries|sentences|items|iterations|frames|words"
    r"|fps|sps|qps)"
)
_TIME_NAMES = (
    r"(?:(?:step|iter|iteration|batch|inference|request|forward|mean|average|avg|median|per)[ _-]?)?"
    r"(?:time|latency|duration|elapsed|took)"
)

_Kind = Literal["rate", "step", "bar", "duration"]
_FORMS: tuple[tuple[_Kind, re.Pattern[str]], ...] = (
    # 9.87it/s of a progress bar (tqdm), and the seconds for each iteration if it is slow.
    ("bar", re.compile(rf"{_NUMBER}(?P<unit>it)/s\b")),
    # 312.5 images/s, 312.5 images / sec, 312.5 images per second
    ("rate", re.compile(rf"{_NUMBER}(?P<unit>\s*{_THING}\s*(?:/\s*|per\s+){_SECOND})")),
    # 12.5 ms/step, 12.5 ms per step, 12.5 ms for a request
    ("step", re.compile(rf"{_NUMBER}(?P<unit>\s*{_TIME}\s*(?:/\s*|per\s+|for\s+(?:a|an|each|one)\s+){_OF_STEP})")),
    # images/s: 312.5, throughput: 312.5, FPS 30
    (
        "rate",
        re.compile(
            rf"(?P<name>\b{_RATE_NAMES}(?:\s*(?:/|per)\s*{_SECOND})?)[^\S\n]*[:=]?[^\S\n]*{_NUMBER}", re.IGNORECASE
        ),
    ),
    # step time: 12.5 ms, time 12.5ms, took 3.2 seconds
    ("duration", re.compile(rf"(?P<name>\b{_TIME_NAMES})[^\w\n]*{_NUMBER}(?P<unit>\s*{_TIME}\b)", re.IGNORECASE)),
)
_STEP_NAME = re.compile(r"step|iter|batch|inference|request|forward|mean|average|avg|median|per|latency", re.IGNORECASE)
_EVALUATION = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test)\b", re.IGNORECASE)
_WORDS_BEFORE = re.compile(r"[A-Za-z_][A-Za-z_ /()\[\]:=|-]*$")
_MOST_WORDS = 3
_MOST_LINE = 2000


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
    patterns: dict[str, tuple[_Kind, Metric, str]] = {}
    for line in lines:
        for part in line[:_MOST_LINE].split("\r"):
            for kind, metric in _metrics_in(part):
                patterns[metric.pattern] = (kind, metric, " ".join(part.split())[:120])
    metrics = [
        m for kind, metric, line in patterns.values() if (m := _with_value(kind, metric, line, lines)) is not None
    ]
    ranks: tuple[_Kind, ...] = ("rate", "step", "bar", "duration")
    return tuple(
        sorted(
            metrics,
            key=lambda m: (ranks.index(m.kind), bool(_EVALUATION.search(m.line)), m.count > 1, -len(m.metric.pattern)),
        )
    )


def _metrics_in(text: str) -> Iterator[tuple[_Kind, Metric]]:
    """Yield the metrics in a line, each number once: by the first form that matches it."""
    places: set[int] = set()
    for form, expression in _FORMS:
        for match in expression.finditer(text):
            groups = match.groupdict()
            number = next(n for n in range(1, (match.lastindex or 1) + 1) if _is_number(match[n]))
            thing, unit_text = groups.get("thing") or "", groups.get("unit") or ""
            if match.start(number) in places or _BYTES.fullmatch(thing):
                continue
            places.add(match.start(number))
            before = _escaped(_words_before(text[: match.start(number)]))
            pattern = f"{before}([0-9.eE+-]+){_escaped(unit_text)}"
            if form in ("rate", "bar"):
                yield form, Metric(pattern=pattern, unit=_rate_unit(thing, groups), better="higher")
            else:
                unit = str(groups["time"])
                is_step = form == "step" or _STEP_NAME.search(groups.get("name") or "")
                yield ("step" if is_step else form), Metric(pattern=pattern, unit=_UNITS.get(unit, unit))


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def _rate_unit(thing: str, groups: dict[str, str | None]) -> str:
    name = re.split(r"\s*(?:/|per)", (groups.get("name") or "").lower())[0].strip()
    name = {"throughput": "items", "fps": "frames", "sps": "steps", "qps": "queries"}.get(name, name)
    return f"{thing or name or groups.get('unit') or 'items'}/s"


def _words_before(text: str) -> str:
    """Return the last words before a number, without digits, which differ from run to run."""
    match = _WORDS_BEFORE.search(text.rstrip())
    words = match[0].split() if match else []
    return " ".join(words[-_MOST_WORDS:]) + (" " if words and text[-1:].isspace() else "")


def _escaped(text: str) -> str:
    """Return a regular expression for a text, with any number of spaces where it has some."""
    return " *".join(re.escape(part) for part in re.split(r"\s+", text))


def _with_value(kind: _Kind, metric: Metric, line: str, lines: Sequence[str]) -> OutputMetric | None:
    """Return a metric with its value in all lines, as the harness reads it; ``None`` if it cannot be used."""
    expression = re.compile(metric.pattern)
    texts = [match[1] for text in lines for match in expression.finditer(text)]
    if not texts or not all(_is_number(text) and float(text) > 0 for text in texts):
        return None
    values = [float(text) for text in texts]
    # How often a progress bar is printed depends on its speed.
    statistic: Literal["", "median", "last"] = "last" if kind == "bar" else "median" if len(values) > 1 else ""
    value = statistics.median(values) if statistic == "median" else values[-1]
    return OutputMetric(
        metric=Metric(pattern=metric.pattern, unit=metric.unit, better=metric.better, statistic=statistic),
        value=value,
        count=len(values),
        line=line,
        kind=kind,
    )
