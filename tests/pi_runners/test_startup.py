"""The startup indicator: the times that it measures, and the check of the first result."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import pi_runners
import pi_runners.frameworks
from pi_runners.execution.program_archive import write_program
from pi_runners.frameworks.numpy.operations import NumpyBackend
from pi_runners.harness.contract import SamplingPlan
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.processes import startup

ROOT = str(Path(pi_runners.__file__).parents[1])
REQUEST = json.dumps(
    {"backend": "numpy", "device": "cpu", "dtype": "float32", "settings": {}, "n": 16, "imports": ["numpy"]}
)
FAULTY_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
from pi_runners.frameworks.numpy.operations import NumpyBackend
real = NumpyBackend.tanh
def tanh(backend, x):
    result = real(backend, x)
    {change}
    return result
NumpyBackend.tanh = tanh
from pi_runners.harness.worker import main
main()
"""


def measure(program: Path) -> dict[str, Any]:
    plan = SamplingPlan(samples=1, min_seconds=0.001, max_warmup_seconds=0.1, archive=str(program))
    return INDICATORS["startup"].measure(NumpyBackend("cpu", "float32", {}), {"n": 16}, plan)


def test_the_parts_of_the_startup_of_a_framework_are_measured(tmp_path: Path) -> None:
    result = measure(write_program(tmp_path))

    assert result["status"] == "ok"
    assert 0 <= result["error"] <= result["tolerance"]
    parts = ("import_seconds", "device_seconds", "first_call_seconds")
    assert result["samples"] == [pytest.approx(sum(result["metrics"][part] for part in parts), rel=1e-5)]
    assert result["metrics"]["second_call_seconds"] > 0


@pytest.mark.parametrize(
    "change",
    [
        "result[:] = np.nan",
        "result[-1, -1] = np.nan",
        "result[:] = np.inf",
        "result[:] = 0",
        "result = -result",
        "result[0, 0] += 0.1",
        "result[7, 8] += 0.1",
        "result[7, 8] = np.nan",
        "result = np.concatenate([result, result])",
        "result = np.concatenate([result, np.full_like(result, np.nan)], axis=1)",
        "result = result[:8]",
        "result = x",
        "result = result.T",
    ],
)
def test_a_wrong_first_result_fails_the_check(tmp_path: Path, change: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(FAULTY_PROGRAM.format(root=ROOT, change=change))

    result = measure(program)

    assert result["status"] == "wrong-result"
    assert "samples" not in result


class SlowBackend(NumpyBackend):
    """NumPy on a fake clock: every step takes a different time."""

    spend: Callable[[float], None]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spend(2)

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Any:
        self.spend(3 if len(raw) == 1 else 1000)
        return super().array(raw, shape, scale, offset)

    def compile(self, *arguments: Any) -> Callable[[], Any]:
        run = super().compile(*arguments)
        self.spend(20)
        seconds = iter((10, 5))

        def slow() -> Any:
            self.spend(next(seconds))
            return run()

        return slow

    def read(self, *arguments: Any) -> Any:
        self.spend(1000)
        return super().read(*arguments)


def test_inputs_and_checks_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    imported: set[str] = set()

    def spend(seconds: float) -> None:
        now[0] += seconds

    def slow_bytes(seed: int, count: int) -> bytes:
        spend(1000)
        return random_bytes(seed, count)

    def slow_import(name: str) -> types.ModuleType:
        if name not in imported:
            imported.add(name)
            spend(100 if name == "numpy" else 1000)
        return sys.modules[name]

    monkeypatch.setattr(SlowBackend, "spend", staticmethod(spend), raising=False)
    monkeypatch.setattr("pi_runners.indicators.processes.startup.random_bytes", slow_bytes)
    monkeypatch.setattr("importlib.import_module", slow_import)
    monkeypatch.setattr(sys.modules["pi_runners.frameworks.numpy.operations"], "NumpyBackend", SlowBackend)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    result = startup.start(REQUEST)

    assert result["metrics"]["import_seconds"] == 100
    assert result["metrics"]["device_seconds"] == 5
    assert result["metrics"]["first_call_seconds"] == 30
    assert result["metrics"]["second_call_seconds"] == 5
