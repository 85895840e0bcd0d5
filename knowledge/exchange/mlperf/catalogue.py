"""Facts that result trees do not contain: machines, names of accelerators, rules of each round."""

from __future__ import annotations

import importlib.resources
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from knowledge.domain.hardware import Accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRules:
    """Rules of a round for a benchmark.

    Attributes:
        target: Quality to reach; none if it is unknown or not a number.
        version: Higher if a round changed the benchmark beyond its target.
        dropped: Number of fastest runs, and of slowest runs, that do not count.
        timed: Whether a run that did not converge counts with the time it took; else it counts as slowest.
    """

    target: float | None = None
    version: int = 1
    dropped: int = 1
    timed: bool = False


def round_rules(round_: str, benchmark: str) -> BenchmarkRules:
    """Return the rules of a round for a benchmark; those of the previous listed round if the round is not listed."""
    rounds = catalogue()["rounds"]
    earlier = [name for name in rounds if _order(name) <= _order(round_)] or list(rounds)[:1]
    rules = rounds[max(earlier, key=_order)]
    return BenchmarkRules(timed=rules.get("timed", False), **rules["benchmarks"].get(benchmark, {}))


def find_accelerator(*spellings: str) -> Accelerator | None:
    """Return one accelerator by the first of some names that is known; none if no name is known."""
    for spelling in spellings:
        for entry in catalogue()["accelerators"]:
            if re.search(entry["match"], spelling, re.IGNORECASE):
                return Accelerator(**{name: value for name, value in entry.items() if name != "match"})
    return None


def find_machine(system: str) -> tuple[str, dict[str, Any]] | None:
    """Return the name of the machine that a system's name begins with, and its properties."""
    for name, machine in catalogue()["machines"].items():
        if re.match(rf"{name}(?![a-z0-9])", system, re.IGNORECASE):
            return name, machine
    return None


def benchmark_name(name: str) -> str:
    """Return the usual name of a benchmark."""
    plain = name.lower().replace("-", "_")
    return str(catalogue()["benchmarks"].get(plain, plain))


@cache
def catalogue() -> dict[str, Any]:
    """Return the catalogue file."""
    import yaml

    document: dict[str, Any] = yaml.safe_load(
        (importlib.resources.files("knowledge.exchange.mlperf") / "catalogue.yaml").read_text(encoding="utf-8")
    )
    return document


def _order(round_: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", round_))
