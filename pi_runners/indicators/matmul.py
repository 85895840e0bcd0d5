"""Dense matrix multiplication."""

from __future__ import annotations

import math
from typing import Any

from pi_runners.harness.contract import Backend, Parameters, Trial, random_bytes, values
from pi_runners.indicators.indicator import ITEM_BYTES, Indicator

# Unit round-off of the accumulation: TensorFloat-32 and half types multiply with 10 or 7 bits of mantissa.
_ROUND_OFF = {"float64": 2.0**-48, "float32": 2.0**-11, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Matmul(Indicator):
    """C = A B with random A (m, k) and B (k, n)."""

    name = "matmul"
    summary = "dense matrix product of two random matrices"
    flops_formula = "2 m n k"
    sizes = {  # noqa: RUF012
        "small": {"m": 512, "n": 512, "k": 512},
        "medium": {"m": 1024, "n": 1024, "k": 1024},
        "large": {"m": 8192, "n": 8192, "k": 8192},
    }
    backends = ("numpy", "tensorflow", "torch")

    def flops(self, parameters: Parameters) -> float:
        """2 m n k: one multiplication and one addition for each of m n dot products of length k."""
        return float(2 * parameters["m"] * parameters["n"] * parameters["k"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """A and B read once, C written once."""
        m, n, k = parameters["m"], parameters["n"], parameters["k"]
        return float(ITEM_BYTES[dtype] * (m * k + k * n + m * n))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check 16 elements against exactly rounded dot products."""
        m, n, k = parameters["m"], parameters["n"], parameters["k"]
        a, b = random_bytes(1, m * k), random_bytes(2, k * n)
        call = backend.matmul(a, b, m, k, n)

        def check(result: Any) -> float:
            worst = 0.0
            for i, j in ((i * (m - 1) // 3, j * (n - 1) // 3) for i in range(4) for j in range(4)):
                terms = [x * y for x, y in zip(values(a[i * k : (i + 1) * k]), values(b[j::n]))]
                scale = math.sqrt(math.fsum(t * t for t in terms))
                worst = max(worst, abs(call.read(result, (i, j)) - math.fsum(terms)) / scale)
            return worst

        return Trial(call.run, check, _ROUND_OFF[backend.dtype] * 8)
