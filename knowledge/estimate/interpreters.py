"""Measured differences between interpreters, which ship with the program (`benchmarks/interpreters.py`).

They are not part of a score: how much of a workload is Python, and not a framework's own code, is not known.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PARTS = ("pure Python", "start", "import numpy", "numpy: add 16 numbers")
"""Measurements that a report contains: the mean of pyperformance's benchmarks, the start, an import, and a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterRatio:
    """How many times as fast one interpreter is as the reference.

    Attributes:
        part: What was measured.
        python: Version of the interpreter.
        reference: Version of the reference.
        ratio: The ratio of speeds.
        low: Lower end of its interval.
        high: Upper end of its interval.
        confidence: Confidence of the interval.
        machine: Microarchitecture of the machine.
    """

    part: str
    python: str
    reference: str
    ratio: float
    low: float
    high: float
    confidence: float
    machine: str


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    text = (importlib.resources.files("knowledge.data") / "interpreters.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def interpreter_ratios(minors: Collection[str]) -> tuple[InterpreterRatio, ...]:
    """Return the measured differences of interpreters that were compiled in the same way, by part and version.

    Args:
        minors: Versions of interpreters, such as ``3.12``; those that were not measured have no ratio.
    """
    document = _document()
    return tuple(
        InterpreterRatio(
            part=part,
            python=python,
            reference=document["reference"],
            ratio=ratio,
            low=low,
            high=high,
            confidence=document["confidence"],
            machine=document["machine"]["microarchitecture"],
        )
        for part in PARTS
        for python, ratios in document["ratios"].items()
        # The interpreter of the system's packages, which has a note, was compiled in another way.
        if " " not in python and python.rpartition(".")[0] in minors
        for ratio, low, high in [ratios[part]]
    )
