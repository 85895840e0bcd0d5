"""Two-dimensional convolution."""

from __future__ import annotations

import math
from typing import Any, Tuple

from pi_runners.harness.contract import Backend, Parameters, Trial, random_bytes
from pi_runners.indicators.indicator import ITEM_BYTES, Indicator

_TOLERANCE = {"float64": 1e-12, "float32": 4e-3, "float16": 1e-2, "bfloat16": 6e-2}


class Conv2d(Indicator):
    """Forward convolution, stride 1, padding that keeps the size."""

    name = "conv2d"
    summary = "forward 2-D convolution, stride 1, same padding (NumPy: im2col and one matrix product)"
    flops_formula = "2 batch filters size^2 channels kernel^2"
    sizes = {  # noqa: RUF012
        "small": {"batch": 8, "channels": 32, "filters": 64, "size": 28, "kernel": 3},
        "medium": {"batch": 16, "channels": 64, "filters": 64, "size": 56, "kernel": 3},
        "large": {"batch": 256, "channels": 128, "filters": 128, "size": 56, "kernel": 3},
    }
    backends = ("numpy", "tensorflow", "torch")

    def parameters_for(self, size: str, backend: str) -> Parameters:
        """NumPy has no convolution: it says that it goes through im2col."""
        extra = {"algorithm": "im2col"} if backend == "numpy" else {}
        return dict(self.sizes[size], **extra)

    def flops(self, parameters: Parameters) -> float:
        """2 N K H W C R S, as DeepBench counts it (padding's zeros included)."""
        p = parameters
        return float(2 * p["batch"] * p["filters"] * p["size"] ** 2 * p["channels"] * p["kernel"] ** 2)

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Input and filters read once, output written once."""
        p = parameters
        pixels = p["batch"] * p["size"] ** 2
        filters = p["filters"] * p["channels"] * p["kernel"] ** 2
        return float(ITEM_BYTES[dtype] * (pixels * (p["channels"] + p["filters"]) + filters))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check 16 outputs, corners among them, against exactly rounded sums."""
        p = parameters
        x = random_bytes(3, p["batch"] * p["channels"] * p["size"] ** 2)
        w = random_bytes(4, p["filters"] * p["channels"] * p["kernel"] ** 2)
        call = backend.conv2d(x, w, p)

        def check(result: Any) -> float:
            worst = 0.0
            for step in range(16):
                index = (
                    step * (p["batch"] - 1) // 15,
                    step * (p["filters"] - 1) // 15,
                    (step % 4) * (p["size"] - 1) // 3,
                    (step // 4) * (p["size"] - 1) // 3,
                )
                expected, scale = _reference(x, w, p, index)
                worst = max(worst, abs(call.read(result, index) - expected) / scale)
            return worst

        return Trial(call.run, check, _TOLERANCE[backend.dtype])


def _reference(x: bytes, w: bytes, p: Parameters, index: Tuple[int, int, int, int]) -> Tuple[float, float]:
    """Return one output element and the root of the sum of its squared terms."""
    image, filter_, row, column = index
    size, kernel, channels = p["size"], p["kernel"], p["channels"]
    terms = []
    for channel in range(channels):
        for dy in range(kernel):
            for dx in range(kernel):
                y, z = row + dy - kernel // 2, column + dx - kernel // 2
                if 0 <= y < size and 0 <= z < size:
                    a = x[((image * channels + channel) * size + y) * size + z]
                    b = w[((filter_ * channels + channel) * kernel + dy) * kernel + dx]
                    terms.append((a - 127.5) / 127.5 * ((b - 127.5) / 127.5))
    return math.fsum(terms), math.sqrt(math.fsum(t * t for t in terms))
