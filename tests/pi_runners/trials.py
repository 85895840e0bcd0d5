"""Helpers for the tests of the numerical checks: backends, trials and wrong results."""

from __future__ import annotations

from typing import Any

import pytest

from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Backend, Parameters, SamplingPlan, Trial
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.indicator import Operation

PLAN = SamplingPlan(samples=2, min_seconds=0.0005, max_warmup_seconds=0.05)


def cpu_backend(name: str, dtype: str) -> Backend:
    """Return a backend on the CPU; the test is skipped if PyTorch is not installed."""
    if name == "torch":
        pytest.importorskip("torch")
    return make_backend(name, "cpu", dtype, {})


def flatten(backend: Backend, result: Any) -> Any:
    """Return a copy of a result with one axis."""
    return result.clone().reshape(-1) if backend.name == "torch" else result.copy().reshape(-1)


def with_wrong_element(backend: Backend, result: Any, fraction: float) -> Any:
    """Return a copy of a result with one wrong element, at this fraction of all elements."""
    elements = flatten(backend, result)
    position = int(fraction * (len(elements) - 1))
    elements[position] = elements[position] + abs(elements).max()
    return elements.reshape(result.shape)


def prepare(backend: Backend, name: str, case: Parameters) -> Trial:
    """Return the trial of an operation on a backend."""
    indicator = INDICATORS[name]
    assert isinstance(indicator, Operation)
    assert indicator.complaints(case) == []
    return indicator.prepare(backend, indicator.complete(case))
