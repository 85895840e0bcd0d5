"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any, List

from pi_runners.harness.contract import Backend, Parameters, Trial, decode, random_bytes
from pi_runners.indicators.indicator import ITEM_BYTES, Operation, Parameter, corners

_TOLERANCE = {"float64": 1e-12, "float32": 4e-3, "float16": 2e-2, "bfloat16": 1e-1}


class Attention(Operation):
    """softmax(Q K^T / sqrt(width)) V over (batch, heads, length, width), without a mask."""

    name = "attention"
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

    def parameters_for(self, parameters: Parameters, backend: str) -> Parameters:
        """What has no fused operator says that it is composed."""
        return dict(parameters, **({} if backend == "torch" else {"algorithm": "composed"}))

    def complaints(self, parameters: Parameters) -> List[str]:
        """The algorithm is no parameter of the user's."""
        return super().complaints({k: v for k, v in parameters.items() if k != "algorithm"})

    def flops(self, parameters: Parameters) -> float:
        """Two products; the softmax is not counted."""
        p = parameters
        return float(4 * p["batch"] * p["heads"] * p["length"] ** 2 * p["width"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Q, K and V read once, the result written once."""
        p = parameters
        return float(4 * ITEM_BYTES[dtype] * p["batch"] * p["heads"] * p["length"] * p["width"])

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """The scores, too."""
        p = parameters
        scores = p["batch"] * p["heads"] * p["length"] ** 2
        return float(super().memory(parameters, dtype) + 2 * ITEM_BYTES[dtype] * scores)

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check one element of some rows against the definition."""
        p = parameters
        shape = (p["batch"], p["heads"], p["length"], p["width"])
        length, width = p["length"], p["width"]
        count = p["batch"] * p["heads"] * length * width
        raws = [random_bytes(41 + i, count) for i in range(3)]
        arrays = [backend.array(raw, shape) for raw in raws]
        run = backend.compile(lambda back, q, k, v: back.attention(q, k, v, width), arrays)

        def row(which: int, start: int) -> List[float]:
            return decode(raws[which][start : start + width], "float32")

        def check(result: Any) -> float:
            worst = 0.0
            for b, h, i, j in corners(shape, 4):
                head = (b * p["heads"] + h) * length * width
                query = row(0, head + i * width)
                scores = [
                    math.fsum(x * y for x, y in zip(query, row(1, head + t * width))) / math.sqrt(width)
                    for t in range(length)
                ]
                top = max(scores)
                powers = [math.exp(s - top) for s in scores]
                total = math.fsum(powers)
                terms = [e / total * row(2, head + t * width)[j] for t, e in enumerate(powers)]
                scale = math.sqrt(math.fsum(t * t for t in terms))
                worst = max(worst, abs(backend.read(result, (b, h, i, j)) - math.fsum(terms)) / scale)
            return worst

        return Trial(run, check, _TOLERANCE[backend.precision])
