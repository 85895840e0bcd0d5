"""Parser of LoadGen's summary of a performance run, in the formats of all rounds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from knowledge.domain.documents import lines_of
from knowledge.domain.observation import Scalar
from knowledge.exchange.mlperf.facts import InferenceRules, UnreadableResultError

_SCENARIOS = ("Offline", "Server", "SingleStream", "MultiStream")
_LATENCY = re.compile(r"^(\d+(?:\.\d+)?)(?:th)? percentile latency \(ns\)$")
_ESTIMATE = re.compile(r"^early stopping (\d+(?:\.\d+)?)th percentile estimate$")
_INTERVAL = re.compile(r'"ms"\s*:\s*([\d.]+)')
_NANOSECONDS = 1e9
_PARAMETERS = ("samples_per_query", "target_qps", "min_duration (ms)", "min_query_count", "performance_sample_count")
"""Settings of LoadGen that are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceResult:
    """Result of a performance run.

    Attributes:
        scenario: ``Offline``, ``Server``, ``SingleStream`` or ``MultiStream``.
        figure: Published figure, in ``unit``.
        unit: ``samples/s``, ``queries/s``, ``streams`` or ``s``.
        seconds: Seconds per sample (Offline), per query (Server) or per sample of all streams (MultiStream as streams);
            the latency of a query otherwise.
        conditions: What must be equal for two results of a benchmark and scenario to be comparable.
        latencies: Mean latency and percentiles, in seconds.
        parameters: Settings of LoadGen.
        sut: Name of the system under test in the log.
    """

    scenario: str
    figure: float
    unit: str
    seconds: float
    conditions: Mapping[str, int | float | str] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    sut: str = ""


def read_summary(text: str, rules: InferenceRules) -> InferenceResult:
    """Read a ``mlperf_log_summary.txt``; the rules of the round say which figure of a scenario is published.

    Raises:
        UnreadableResultError: If it contains no valid result of a performance run.
    """
    entries = _entries(text)
    scenario = entries.get("scenario", "").replace(" ", "")
    if "scenario" not in entries or "result is" not in entries:
        raise UnreadableResultError("it is not a summary of LoadGen, or it is cut off")
    if scenario not in _SCENARIOS:
        raise UnreadableResultError(f"its scenario `{scenario[:40]}` is not one of {', '.join(_SCENARIOS)}")
    if "accuracy" in entries.get("mode", "").lower():
        raise UnreadableResultError("it is of an accuracy run, which measures no performance")
    if entries["result is"] != "VALID":
        failed = [name for name, value in entries.items() if name.endswith(" satisfied") and value.lower() == "no"]
        reasons = f" ({', '.join(f'{name}: no' for name in failed)})" if failed else ""
        raise UnreadableResultError(f"its result is {entries['result is'][:40] or 'missing'}{reasons}")
    figure, unit, seconds, conditions = _figure(scenario, entries, rules)
    return InferenceResult(
        scenario=scenario,
        figure=figure,
        unit=unit,
        seconds=seconds,
        conditions=conditions,
        latencies=_latencies(entries),
        parameters={
            name.partition(" ")[0]: number for name in _PARAMETERS if (number := _number(entries.get(name))) is not None
        },
        sut=entries.get("sut name", "")[:80],
    )


def _entries(text: str) -> dict[str, str]:
    """Return the first value of each name of a summary; names in lower case."""
    entries: dict[str, str] = {}
    for line in lines_of(text):
        name, colon, value = line.partition(":")
        name = " ".join(name.lower().split()).removeprefix("* ")
        if colon and name not in ("per-query latency", "per-sample latency"):
            # MultiStream has the percentiles of queries first, which count, and then those of samples.
            entries.setdefault(name, value.strip())
    return entries


def _figure(
    scenario: str, entries: Mapping[str, str], rules: InferenceRules
) -> tuple[float, str, float, dict[str, int | float | str]]:
    """Return the published figure, its unit, the seconds, and the conditions of a result."""
    if scenario == "Offline":
        figure = _positive(entries, "samples per second")
        return figure, "samples/s", _inverse(figure), {}
    if scenario == "Server":
        figure = _positive(entries, f"{'completed' if rules.completed else 'scheduled'} samples per second")
        bound = _number(entries.get("target_latency (ns)"))
        return figure, "queries/s", _inverse(figure), {"latency_bound_seconds": bound / _NANOSECONDS} if bound else {}
    if scenario == "MultiStream" and not rules.early_stopping:
        figure = _positive(entries, "samples per query")
        interval = _INTERVAL.search(entries.get("intervals between each issuequery", ""))
        if interval is None or not float(interval[1]):
            raise UnreadableResultError("it contains no interval between the queries")
        seconds = float(interval[1]) / 1000
        return figure, "streams", _inverse(figure / seconds), {"interval_seconds": seconds}
    percentile = "90" if scenario == "SingleStream" else "99"
    latency = _matching(_ESTIMATE, entries).get(percentile) if rules.early_stopping else None
    if latency is None:
        latency = _matching(_LATENCY, entries).get(percentile)
    if latency is None or not latency > 0:
        raise UnreadableResultError(f"it contains no latency of the {percentile}th percentile")
    samples = _number(entries.get("samples_per_query")) if scenario == "MultiStream" else None
    return latency, "s", latency, {"samples_per_query": int(samples)} if samples else {}


def _latencies(entries: Mapping[str, str]) -> dict[str, float]:
    latencies = {
        f"p{name}_seconds": value for name, value in _matching(_LATENCY, entries).items() if name in ("50", "90", "99")
    }
    mean = _number(entries.get("mean latency (ns)"))
    return latencies | ({"mean_seconds": mean / _NANOSECONDS} if mean is not None else {})


def _matching(pattern: re.Pattern[str], entries: Mapping[str, str]) -> dict[str, float]:
    """Return seconds by percentile, such as ``90`` or ``99.9``."""
    return {
        f"{float(match[1]):g}": number / _NANOSECONDS
        for name, value in entries.items()
        if (match := pattern.match(name)) and (number := _number(value)) is not None
    }


def _inverse(rate: float) -> float:
    """Return the seconds of a rate; rates have six digits."""
    return float(f"{1 / rate:.9g}")


def _positive(entries: Mapping[str, str], name: str) -> float:
    number = _number(entries.get(name))
    if number is None or not number > 0:
        raise UnreadableResultError(f"its `{name}` is not a positive number")
    return float(number)


def _number(text: str | None) -> int | float | None:
    """Return a finite number; ``None`` for anything else, or more digits than a number of LoadGen has."""
    if text is None or not re.fullmatch(r"\d{1,18}|\d{1,18}\.\d{1,18}|\d{1,3}(?:\.\d{1,18})?e[+-]?\d{1,2}", text):
        return None
    number = float(text) if re.search("[.e]", text) else int(text)
    return number if math.isfinite(number) else None
