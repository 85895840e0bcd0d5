"""The overhead of an operation: its result, its time for one operation, and its modes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from knowledge.domain.frameworks import frameworks
from pi_runners.frameworks import make_backend
from pi_runners.frameworks.numpy.operations import NumpyBackend
from pi_runners.harness.contract import Backend, Parameters, SamplingPlan, Unsupported
from pi_runners.indicators import INDICATORS

PLAN = SamplingPlan(samples=2, min_seconds=0.001, max_warmup_seconds=0.2)
DISPATCH = INDICATORS["dispatch"]
EAGER, COMPILED, CALL = DISPATCH.sets["small"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", [cases[0] for cases in DISPATCH.sets.values()])
def test_numpy_multiplies_from_python(dtype: str, case: Parameters) -> None:
    measured = DISPATCH.measure(NumpyBackend("cpu", dtype, {}), case, PLAN)

    assert measured["status"] == "ok", measured


def test_a_sample_is_the_time_of_one_operation() -> None:
    class SlowBackend(NumpyBackend):
        def run_eagerly(self, function: Any, arrays: Any) -> Any:
            run = super().run_eagerly(function, arrays)

            def run_slowly() -> Any:
                time.sleep(0.01)
                return run()

            return run_slowly

    measured = DISPATCH.measure(SlowBackend("cpu", "float32", {}), EAGER, PLAN)

    assert all(0.01 / 100 <= seconds < 0.01 for seconds in measured["samples"])
    assert measured["loops"] % 100 == 0


@pytest.mark.parametrize("operations", [99, 101])
def test_a_chain_of_another_length_is_a_wrong_result(operations: int) -> None:
    class FaultyBackend(NumpyBackend):
        def run_eagerly(self, function: Any, arrays: Any) -> Any:
            x, y = arrays
            return lambda: x * y**operations

    measured = DISPATCH.measure(FaultyBackend("cpu", "float32", {}), EAGER, PLAN)

    assert measured["status"] == "wrong-result"


def test_a_result_of_another_shape_is_a_wrong_result() -> None:
    class FaultyBackend(NumpyBackend):
        def run_eagerly(self, function: Any, arrays: Any) -> Any:
            return lambda: function(self, *arrays)[:2]

    measured = DISPATCH.measure(FaultyBackend("cpu", "float32", {}), EAGER, PLAN)

    assert measured["status"] == "wrong-result"


def test_backends_support_only_their_modes() -> None:
    numpy, onnxruntime, torch = (frameworks()[name] for name in ("numpy", "onnxruntime", "torch"))

    assert [DISPATCH.supports(case, numpy) for case in (EAGER, COMPILED, CALL)] == [True, False, False]
    assert [DISPATCH.supports(case, onnxruntime) for case in (EAGER, COMPILED, CALL)] == [False, True, True]
    assert all(DISPATCH.supports(case, torch) for case in (EAGER, COMPILED, CALL))


@pytest.mark.parametrize("case", [EAGER, COMPILED, CALL])
@pytest.mark.parametrize(
    "framework", ["jax", "onnxruntime", pytest.param("tensorflow", marks=pytest.mark.slow), "torch"]
)
def test_frameworks_multiply_in_their_modes(framework: str, case: Parameters) -> None:
    pytest.importorskip(framework)
    if not DISPATCH.supports(case, frameworks()[framework]):
        pytest.skip("the framework has no such mode")
    backend = make_backend(framework, "cpu", "float32", {})
    if framework == "torch" and case["mode"] == "compiled":
        with pytest.raises(Unsupported, match="only with the setting `compile`"):
            DISPATCH.measure(backend, case, PLAN)
        return

    measured = DISPATCH.measure(backend, case, PLAN)

    assert measured["status"] == "ok", measured


def test_a_backend_without_eager_operations_says_so() -> None:
    pytest.importorskip("onnxruntime")
    backend: Backend = make_backend("onnxruntime", "cpu", "float32", {})

    with pytest.raises(Unsupported, match="without a graph"):
        DISPATCH.measure(backend, EAGER, PLAN)
