"""Dense matrix multiplication, of single matrices and of batches."""

from __future__ import annotations

import math
from operator import mul
from typing import Iterator, List, Tuple

from pi_runners.harness.contract import Backend, Parameter, Parameters, Trial
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.checks.results import (
    EVERY,
    GROUP,
    Result,
    checker,
    difference,
    pick,
    random_signs,
    signed_sum,
)
from pi_runners.indicators.indicator import ITEM_BYTES, ROUND_OFF, Operation

_WORK = 2**28
"""Maximum number of products of a factor and a field in a check: about a second."""
_YES_NO = ("no", "yes")


class Matmul(Operation):
    """C = A B with random A (m, k) and B (k, n), or batches of them."""

    name = "matmul"
    needs = ("matmul",)
    summary = "dense matrix product of random matrices: single, batched, transposed; int8 accumulates in int32"
    corresponds = "DeepBench GEMM (https://github.com/baidu-research/DeepBench)"
    flops_formula = "2 batch m n k"
    bytes_formula = "item batch (m k + k n + m n)"
    source = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/"
    parameters = {  # noqa: RUF012
        "m": Parameter("rows of A and C"),
        "n": Parameter("columns of B and C"),
        "k": Parameter("columns of A, rows of B"),
        "batch": Parameter("matrix products in one call", default=1),
        "transpose_a": Parameter("A is stored as (k, m)", choices=_YES_NO, default="no"),
        "transpose_b": Parameter("B is stored as (n, k)", choices=_YES_NO, default="no"),
    }
    dtypes = ("float32", "float64", "float16", "bfloat16", "int8")
    sets = {  # noqa: RUF012
        "small": (
            {"m": 512, "n": 512, "k": 512},
            {"m": 128, "n": 128, "k": 64, "batch": 48},
            {"m": 512, "n": 512, "k": 512, "transpose_b": "yes"},
        ),
        "medium": (
            {"m": 1024, "n": 1024, "k": 1024},
            {"m": 512, "n": 512, "k": 64, "batch": 96},
            {"m": 1024, "n": 1024, "k": 1024, "transpose_b": "yes"},
        ),
        "large": (
            {"m": 8192, "n": 8192, "k": 8192},
            {"m": 2048, "n": 2048, "k": 128, "batch": 128},
            {"m": 8192, "n": 8192, "k": 8192, "transpose_b": "yes"},
        ),
    }

    def flops(self, parameters: Parameters) -> float:
        """Return one multiplication and one addition for each step of batch m n dot products of length k."""
        p = self.complete(parameters)
        return float(2 * p["batch"] * p["m"] * p["n"] * p["k"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of A and B, read once, and of C, written once (int8: as int32)."""
        p = self.complete(parameters)
        m, n, k = p["m"], p["n"], p["k"]
        out = 4 if dtype == "int8" else ITEM_BYTES[dtype]
        return float(p["batch"] * (ITEM_BYTES[dtype] * (m * k + k * n) + out * m * n))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Compare signed sums of rows with exact sums: of all rows, or of some rows of a large result."""
        p = parameters
        batch, m, n, k = p["batch"], p["m"], p["n"], p["k"]
        transposed_a, transposed_b = p["transpose_a"] == "yes", p["transpose_b"] == "yes"
        raw_a, raw_b = random_bytes(1, batch * m * k), random_bytes(2, batch * k * n)
        lead: Tuple[int, ...] = (batch,) if batch > 1 else ()
        a = backend.array(raw_a, lead + ((k, m) if transposed_a else (m, k)))
        b = backend.array(raw_b, lead + ((n, k) if transposed_b else (k, n)))
        run = backend.compile(lambda back, x, y: back.matmul(x, y, transposed_a, transposed_b), [a, b])
        numbers = whole_numbers(backend.dtype)
        width = field_bytes(GROUP * k * 256**2 * (4 if numbers.step == 2 else 1))

        def row(t: int, i: int) -> List[int]:
            return numbers.row(_line(raw_a[t * m * k : (t + 1) * m * k], i, m, k, transposed_a))

        def packed(t: int) -> List[int]:
            part = raw_b[t * k * n : (t + 1) * k * n]
            return [pack(_line(part, i, k, n, transposed_b), width, numbers) for i in range(k)]

        def errors(elements: Result) -> Iterator[float]:
            most = max(1, min(EVERY // (GROUP * n), _WORK // (k * n)))
            groups_per_matrix = -(-m // GROUP)
            groups = pick(batch * groups_per_matrix, most)
            yield elements.error_of_others(len(groups) == batch * groups_per_matrix)
            for t in sorted({group // groups_per_matrix for group in groups}):
                columns = packed(t)
                for start in [group % groups_per_matrix * GROUP for group in groups if group // groups_per_matrix == t]:
                    rows = range(start, min(m, start + GROUP))
                    signs = random_signs(len(rows))
                    factors = signed_sum((row(t, i) for i in rows), signs)
                    exact = unpack(sum(map(mul, factors, columns)), n, width)
                    actual = signed_sum((elements.row((t, i) if lead else (i,)) for i in rows), signs)
                    scale = math.sqrt(k * len(rows)) * numbers.spread**2
                    yield difference(actual, [x / numbers.denominator**2 for x in exact], scale)

        return Trial(run, checker(backend, lead + (m, n), errors), ROUND_OFF[backend.precision] * 8)


def _line(raw: bytes, i: int, lines: int, length: int, transposed: bool) -> bytes:
    """Return row ``i`` of a matrix (lines, length), which may be stored transposed."""
    return raw[i::lines] if transposed else raw[i * length : (i + 1) * length]
