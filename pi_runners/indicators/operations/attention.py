"""Scaled dot-product attention."""

from __future__ import annotations

import math
from operator import mul
from typing import Iterator, List

from pi_runners.harness.contract import Backend, FrameworkAbilities, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.checks.results import EVERY, Result, checker, difference, pick
from pi_runners.indicators.indicator import ITEM_BYTES, Operation

_WORK = 2**24
"""Maximum number of products in a check: about half a second."""
_TOLERANCE = {"float64": 1e-9, "float32": 4e-3, "float16": 2e-2, "bfloat16": 1e-1}


class Attention(Operation):
    """softmax(Q K^T / sqrt(width)) V over (batch, heads, length, width), without a mask."""

    name = operation = "attention"
    needs = ("matmul", "softmax")
    summary = "scaled dot-product attention, no mask (PyTorch: its fused kernels; elsewhere two products and a softmax)"
    corresponds = "FlashAttention's benchmark, forward (https://github.com/Dao-AILab/flash-attention)"
    flops_formula = "4 batch heads length^2 width"
    bytes_formula = "4 item batch heads length width"
    source = "https://github.com/Dao-AILab/flash-attention/blob/main/benchmarks/benchmark_flash_attention.py"
    parameters = {  # noqa: RUF012
        "batch": Parameter("sequences"),
        "heads": Parameter("heads"),
        "length": Parameter("tokens of a sequence"),
        "width": Parameter("width of a head"),
    }
    sets = {  # noqa: RUF012
        "small": ({"batch": 2, "heads": 4, "length": 128, "width": 64},),
        "medium": ({"batch": 4, "heads": 8, "length": 512, "width": 64},),
        "large": ({"batch": 16, "heads": 16, "length": 2048, "width": 128},),
    }

    def flops(self, parameters: Parameters) -> float:
        """Return the operations of the two products; the softmax is not included."""
        p = parameters
        return float(4 * p["batch"] * p["heads"] * p["length"] ** 2 * p["width"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of Q, K and V, read once, and of the result, written once."""
        p = parameters
        return float(4 * ITEM_BYTES[dtype] * p["batch"] * p["heads"] * p["length"] * p["width"])

    def extra_memory(self, parameters: Parameters, dtype: str, framework: FrameworkAbilities) -> float:
        """Return the memory of the scores, scaled scores and exponentials, which fused kernels do not store."""
        p = parameters
        is_composed = framework.algorithms.get(self.operation) == "composed"
        return float(3 * ITEM_BYTES[dtype] * p["batch"] * p["heads"] * p["length"] ** 2 * is_composed)

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare all rows with the definition, or some rows of a large result."""
        p = parameters
        shape = (p["batch"], p["heads"], p["length"], p["width"])
        heads, length, width = p["batch"] * p["heads"], p["length"], p["width"]
        raws = [random_bytes(41 + i, math.prod(shape)) for i in range(3)]
        arrays = [backend.array(raw, shape) for raw in raws]
        run = backend.compile(lambda back, q, k, v: back.attention(q, k, v, width), arrays)
        numbers = whole_numbers("float32")
        field = field_bytes(width * 512**2)
        # Probabilities as integers over `one`: their sums with the values must fit into a field.
        one = 2 ** min(50 if backend.dtype == "float64" else 28, 53 - length.bit_length())

        def head(which: int, number: int) -> bytes:
            return raws[which][number * length * width : (number + 1) * length * width]

        def errors(elements: Result) -> Iterator[float]:
            rows = pick(heads * length, max(2, min(EVERY // width, _WORK // (length * width))))
            yield elements.error_of_others(len(rows) == heads * length)
            for number in sorted({row // length for row in rows}):
                keys = [pack(head(1, number)[j::width], field, numbers) for j in range(width)]
                values = [pack(head(2, number)[t * width : (t + 1) * width], 8, numbers) for t in range(length)]
                for i in [row % length for row in rows if row // length == number]:
                    query = numbers.row(head(0, number)[i * width : (i + 1) * width])
                    scores = unpack(sum(map(mul, query, keys)), length, field)
                    weights = _softmax([score / 255**2 / math.sqrt(width) for score in scores])
                    sums = unpack(sum(map(mul, [round(e * one) for e in weights], values)), width, 8)
                    expected = [x / 255 / one for x in sums]
                    # Root of the sum of squared terms, for values with mean square 1 / 3.
                    scale = math.sqrt(math.fsum(e * e for e in weights) / 3)
                    actual = elements.row((*divmod(number, p["heads"]), i))
                    yield difference(actual, expected, scale)

        return Trial(run, checker(backend, shape, errors), _TOLERANCE[backend.precision])


def _softmax(scores: List[float]) -> List[float]:
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [power / total for power in weights]
