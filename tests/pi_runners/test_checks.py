"""The numerical checks of operations accept a correct result and reject every wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from pi_runners.harness.contract import Backend, Parameters, Trial, Unsupported
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.checks.results import EVERY
from pi_runners.indicators.indicator import time_trial
from tests.pi_runners.trials import PLAN, cpu_backend, flatten, prepare, with_wrong_element

_LAYERS: Parameters = {"batch": 2, "channels": 4, "filters": 6, "kernel": 3}
TINY: dict[str, list[Parameters]] = {
    "matmul": [
        {"m": 33, "n": 20, "k": 16},
        {"m": 9, "n": 8, "k": 12, "batch": 3},
        {"m": 8, "n": 12, "k": 16, "transpose_a": "yes", "transpose_b": "yes"},
    ],
    "conv1d": [{**_LAYERS, "size": 17}],
    "conv2d": [
        {**_LAYERS, "size": 7},
        {**_LAYERS, "size": 7, "stride": 2, "groups": 2},
        {**_LAYERS, "height": 6, "width": 9, "filters": 4, "groups": 4, "pad_width": 0},
    ],
    "conv3d": [{**_LAYERS, "size": 5, "stride": 2}],
    "recurrent": [
        {"cell": cell, "hidden": 12, "batch": 3, "timesteps": 4, "inputs": 7} for cell in ("vanilla", "lstm", "gru")
    ],
    "attention": [{"batch": 2, "heads": 3, "length": 9, "width": 8}],
    "embedding": [{"rows": 50, "width": 6, "lookups": 40}],
    "elementwise": [{"rows": 8, "columns": 33, "kind": kind} for kind in ("add", "multiply", "tanh", "chain")],
    "reduction": [{"rows": 17, "columns": 300, "kind": kind} for kind in ("sum", "max")],
    "softmax": [{"rows": 8, "columns": 33}],
    "normalisation": [{"kind": kind, "rows": 40, "columns": 24} for kind in ("layer", "batch")],
    "fft": [{"rows": 9, "columns": 32}, {"rows": 3, "columns": 30}],
    "sort": [{"rows": 8, "columns": 33}],
    "memory": [{"kernel": kernel, "elements": 5000} for kernel in ("copy", "scale", "add", "triad")],
    "roofline": [{"roof": "flops", "n": 24}, {"roof": "bandwidth", "n": 5000}],
}
BACKWARD = [(name, {**case, "direction": "backward"}) for name in ("conv1d", "conv2d", "conv3d") for case in TINY[name]]
CASES = [(name, case) for name, cases in TINY.items() for case in cases]
ON_NUMPY = [("numpy", dtype, *case) for dtype in ("float32", "float64") for case in CASES]
ON_TORCH = [
    ("torch", dtype, name, case)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int8")
    for name, case in [*CASES, *BACKWARD]
    if dtype in INDICATORS[name].dtypes and (dtype != "int8" or ("batch" not in case and case.get("m", 24) > 16))
]


def with_reversed_inputs(backend: Backend) -> Backend:
    """Return a backend that computes correctly, but on reversed inputs, as in another call."""

    class ReversedInputs(type(backend)):  # type: ignore[misc]
        is_nested = False

        def array(self, *arguments: Any) -> Any:
            return self._from_reversed(super().array, *arguments)

        def images(self, *arguments: Any) -> Any:
            return self._from_reversed(super().images, *arguments)

        def filters(self, *arguments: Any) -> Any:
            return self._from_reversed(super().filters, *arguments)

        def _from_reversed(self, make: Any, raw: bytes, *rest: Any) -> Any:
            if self.is_nested:
                return make(raw, *rest)
            self.is_nested = True
            array = make(raw[::-1], *rest)
            self.is_nested = False
            return array

        def integers(self, numbers: Sequence[int], *rest: Any) -> Any:
            return super().integers(list(numbers)[::-1], *rest)

    return ReversedInputs(backend.device, backend.dtype, {})


def wrong_results(backend: Backend, correct: Any, stale: Any, tolerance: float) -> dict[str, Any]:
    """Return results that a faulty framework might compute instead of the correct one, by the name of the fault."""
    is_integer = backend.dtype == "int8"
    results = {
        "all zero": correct * 0,
        "result of another call": stale,
        "off by ten tolerances": correct + 1 if is_integer else correct * (1 + 10 * tolerance),
        "first element wrong": with_wrong_element(backend, correct, 0.0),
        "an inner element wrong": with_wrong_element(backend, correct, 0.62),
        "last element wrong": with_wrong_element(backend, correct, 1.0),
        "too short": correct[:-1],
        "an additional axis": correct[None],
    }
    if not is_integer:
        one_nan = flatten(backend, correct)
        one_nan[len(one_nan) // 3] = math.nan
        one_infinite = flatten(backend, correct)
        one_infinite[len(one_infinite) // 2] = -math.inf
        results.update(
            {
                "all NaN": correct * math.nan,
                "all infinite": correct * 0 + math.inf,
                "one element NaN": one_nan.reshape(correct.shape),
                "one element infinite": one_infinite.reshape(correct.shape),
            }
        )
    return results


def is_accepted(trial: Trial, backend: Backend, result: Any) -> bool:
    """Return whether the check of a trial accepts a result."""
    return bool(time_trial(Trial(lambda: result, trial.check, trial.tolerance), backend, PLAN)["status"] == "ok")


def split_result(result: Any) -> list[Any]:
    """Return the arrays of a result, which has several for a backward pass."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize(("backend", "dtype", "name", "case"), [*ON_NUMPY, *ON_TORCH])
def test_a_correct_result_passes_and_every_wrong_result_fails(
    backend: str, dtype: str, name: str, case: Parameters
) -> None:
    framework = cpu_backend(backend, dtype)
    trial = prepare(framework, name, case)
    correct = trial.run()
    stale = prepare(with_reversed_inputs(framework), name, case).run()

    assert is_accepted(trial, framework, correct), trial.check(correct)
    arrays, stale_arrays = split_result(correct), split_result(stale)
    for number, array in enumerate(arrays):
        for fault, wrong in wrong_results(framework, array, stale_arrays[number], trial.tolerance).items():
            result = tuple(wrong if i == number else a for i, a in enumerate(arrays))
            assert not is_accepted(trial, framework, result if len(arrays) > 1 else result[0]), fault


@pytest.mark.parametrize("name", ["elementwise", "softmax", "memory", "matmul", "embedding", "fft"])
def test_a_large_result_with_an_element_that_is_not_finite_fails(name: str) -> None:
    cases: dict[str, Parameters] = {
        "elementwise": {"rows": 3000, "columns": 400, "kind": "add"},
        "softmax": {"rows": 3000, "columns": 400},
        "memory": {"kernel": "triad", "elements": 1200000},
        "matmul": {"m": 6000, "n": 200, "k": 4},
        "embedding": {"rows": 50, "width": 200, "lookups": 6000},
        "fft": {"rows": 30000, "columns": 128},
    }
    framework = cpu_backend("numpy", "float32")
    trial = prepare(framework, name, cases[name])
    result = trial.run()
    assert result.size > EVERY

    assert is_accepted(trial, framework, result)
    result.reshape(-1)[result.size * 5 // 7] = math.nan
    assert not is_accepted(trial, framework, result)


@pytest.mark.parametrize("direction", ["to_device", "to_host"])
@pytest.mark.parametrize(("copies", "status"), [(True, "ok"), (False, "wrong-result")])
def test_a_transfer_that_copies_nothing_is_a_wrong_result(
    direction: str, copies: bool, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from pi_runners.frameworks.torch.operations import TorchBackend, make_copies

    class OnHost(TorchBackend):
        def to_device(self, raw: bytes) -> Any:
            return make_copies(torch.frombuffer(bytearray(raw), dtype=torch.uint8), "cpu")

    if not copies:
        monkeypatch.setattr(torch.Tensor, "copy_", lambda tensor, *_, **__: tensor)

    measured = INDICATORS["transfer"].measure(
        OnHost("cpu", "float32", {}), {"direction": direction, "bytes": 4096}, PLAN
    )

    assert measured["status"] == status


def test_transfers_on_the_cpu_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        cpu_backend("torch", "float32").to_device(b"12")
