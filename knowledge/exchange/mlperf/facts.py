"""Facts that result trees do not contain: machines, names of benchmarks, rules of each round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from knowledge.records import shipped_yaml


class UnreadableResultError(Exception):
    """Raised when a log contains no time to train, or a summary no valid result; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """Rules of a round for a benchmark.

    Attributes:
        round_: Round whose rules these are: the newest listed one that is not newer.
        target: Quality to reach; ``None`` if it is unknown or not a number.
        lower: Whether a lower quality is better.
        version: Higher if a round changed the benchmark beyond its target.
        dropped: Number of fastest runs, and of slowest runs, that do not count.
        timed: Whether a run that did not converge counts with the time it took; else it counts as slowest.
    """

    round_: str = ""
    target: float | None = None
    lower: bool = False
    version: int = 1
    dropped: int = 1
    timed: bool = False


def round_rules(round_: str, benchmark: str) -> BenchmarkRules:
    """Return the rules of a round for a benchmark; if the round is not listed, the previous listed round counts."""
    rounds = mlperf_facts()["rounds"]
    earlier = [name for name in rounds if round_order(name) <= round_order(round_)] or list(rounds)[:1]
    listed = max(earlier, key=round_order)
    rules = rounds[listed]
    return BenchmarkRules(round_=listed, timed=rules.get("timed", False), **rules["benchmarks"].get(benchmark, {}))


def round_order(name: str) -> tuple[int, ...]:
    """Return the numbers of a round, such as 0 and 7 of ``v0.7``."""
    return tuple(int(part) for part in re.findall(r"\d+", name))


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRules:
    """Rules of a round of MLPerf Inference.

    Attributes:
        early_stopping: Whether the estimates of early stopping are published instead of plain percentiles, and a
            latency for MultiStream instead of a number of streams.
        completed: Whether the completed rate of Server is published instead of the scheduled one.
        published: Day of the publication, ISO 8601; empty if it is not known.
    """

    early_stopping: bool
    completed: bool
    published: str


def inference_rules(round_: str) -> InferenceRules:
    """Return the rules of a round of MLPerf Inference."""
    facts = mlperf_facts()["inference"]
    published = facts["published"].get(round_)
    return InferenceRules(
        early_stopping=round_order(round_) >= round_order(facts["early-stopping-since"]),
        completed=round_order(round_) >= round_order(facts["completed-rate-since"]),
        published=published["day"].isoformat() if published else "",
    )


def inference_benchmark(name: str, round_: str) -> tuple[str, int]:
    """Return the usual name of a benchmark of MLPerf Inference, and the version of its definition in a round."""
    facts = mlperf_facts()["inference"]
    usual = str(facts["benchmarks"].get(name.lower(), name.lower()))
    change = facts["versions"].get(usual)
    changed = change is not None and round_order(round_) >= round_order(change["since"])
    return usual, int(change["version"]) if changed else 1


def find_machine(system: str) -> tuple[str, dict[str, Any]] | None:
    """Return the name of the machine that a system's name begins with, and its properties."""
    machines = mlperf_facts()["machines"].items()
    return next((m for m in machines if re.match(rf"{m[0]}(?![a-z0-9])", system, re.IGNORECASE)), None)


def benchmark_name(name: str, round_: str) -> str:
    """Return the usual name of a benchmark of MLPerf Training in a round."""
    plain = name.lower().replace("-", "_")
    usual = str(mlperf_facts()["benchmarks"].get(plain, plain))
    renamed = mlperf_facts()["renamed-benchmarks"].get(usual)
    if renamed is not None and round_order(round_) >= round_order(renamed["since"]):
        return str(renamed["name"])
    return usual


def mlperf_facts() -> Mapping[str, Any]:
    """Return the content of the file."""
    return shipped_yaml("knowledge.exchange.mlperf", "facts.yaml")
