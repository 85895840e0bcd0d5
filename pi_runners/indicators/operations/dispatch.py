"""Time per operation on tiny arrays: the overhead of Python and of the framework."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from pi_runners.harness.contract import Array, Backend, Parameter, Parameters, SamplingPlan, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.results import checker, difference
from pi_runners.indicators.indicator import ITEM_BYTES, PROCESS_BYTES, UNIT, Indicator, time_trial


class Dispatch(Indicator):
    """A chain of operations on a few numbers, one by one from Python or in one compiled function."""

    name = "dispatch"
    summary = "time per operation on a few numbers: the overhead of Python and of the framework"
    corresponds = (
        "eager_unary_dispatch and jit_simple_dispatch of JAX "
        "(https://github.com/jax-ml/jax/blob/main/benchmarks/api_benchmark.py), the micro-benchmarks of TensorFlow "
        "(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/python/eager/benchmarks_test.py)"
    )
    flops_formula = "elements"
    bytes_formula = "3 item elements"
    source = "counted from the definition"
    sample = "seconds per operation"
    parameters = {  # noqa: RUF012
        "mode": Parameter(
            "`eager`: Python calls every operation; `compiled`: one compiled function of all operations",
            choices=("eager", "compiled"),
        ),
        "operations": Parameter("operations of the chain", most=4096),
        "elements": Parameter("elements of the array", most=65536),
    }
    sets = {  # noqa: RUF012
        size: (
            {"mode": "eager", "operations": 100, "elements": elements},
            {"mode": "compiled", "operations": 1000, "elements": elements},
            {"mode": "compiled", "operations": 1, "elements": elements},
        )
        for size, elements in (("small", 4), ("medium", 64), ("large", 1024))
    }
    dtypes = ("float32", "float64")
    notes = (
        "Every operation multiplies the result of the one before. TensorFlow joins a chain of additions into one "
        "operation, but not a chain of multiplications.",
        "`compiled` with one operation is the time of one call: of a `tf.function`, a function under `jax.jit` or "
        "`torch.compile`, or a session of ONNX Runtime. With many operations, it is the time of one operation in a "
        "graph; XLA and `torch.compile` fuse all of them.",
        "PyTorch compiles only with the setting `compile`. NumPy does not compile; ONNX Runtime has only graphs.",
    )

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return ("multiply", "compile" if parameters.get("mode") == "compiled" else "eager")

    def flops(self, parameters: Parameters) -> float:
        return float(parameters["elements"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of one operation: two arrays read, one written."""
        return float(3 * ITEM_BYTES[dtype] * parameters["elements"])

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the process and of the results of the chain."""
        return PROCESS_BYTES + float(ITEM_BYTES[dtype] * parameters["operations"] * parameters["elements"])

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        return time_trial(_prepare(backend, parameters), backend, plan, parameters["operations"])


def _prepare(backend: Backend, parameters: Parameters) -> Trial:
    operations, elements = parameters["operations"], parameters["elements"]
    first = backend.array(random_bytes(60, elements), (elements,))
    # Factors near 1 keep the products of a long chain near 1.
    factors = backend.array(random_bytes(61, elements), (elements,), 1 / 1024, 1.0)
    start, each = (backend.read_all(array, (slice(0, elements),)) for array in (first, factors))
    expected = [x * y**operations for x, y in zip(start, each)]
    check = checker(backend, (elements,), lambda result: [difference(result.row(()), expected)])
    if parameters["mode"] == "eager":

        def multiply_eagerly(backend: Backend, x: Array, y: Array) -> Array:
            # The operator, not the backend's method, whose call takes a tenth of NumPy's time.
            for _ in range(operations):
                x = x * y
            return x

        run = backend.run_eagerly(multiply_eagerly, [first, factors])
    else:

        def multiply(backend: Backend, x: Array, y: Array) -> Array:
            for _ in range(operations):
                x = backend.multiply(x, y)
            return x

        backend.require_compilation()
        run = backend.compile(multiply, [first, factors])
    # Every operation rounds a number of at most `(1 + 1 / 1024)**operations`.
    return Trial(run, check, (1 + 1 / 1024) ** operations * operations * UNIT[backend.precision])
