"""NumPy: what BLAS gives, on the CPU."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from pi_runners.harness.contract import Backend, Call, Parameters, Unsupported


class NumpyBackend(Backend):
    """Matrix products through BLAS; convolution through im2col and one matrix product."""

    name = "numpy"

    def __init__(self, device: str, dtype: str) -> None:
        super().__init__(device, dtype)
        if device != "cpu":
            raise Unsupported("NumPy runs on the CPU only")
        if dtype not in ("float32", "float64"):
            raise Unsupported("NumPy has no BLAS for {}".format(dtype))

    def describe(self) -> Dict[str, Any]:
        """Return the version and, where NumPy tells, the BLAS it was built with."""
        described: Dict[str, Any] = {"numpy": np.__version__}
        try:
            blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
            described["blas"] = "{} {}".format(blas.get("name"), blas.get("version"))
            described["blas_build"] = str(blas.get("openblas configuration", ""))[:200]
        except (TypeError, KeyError):
            # NumPy before 1.25 only prints its configuration.
            described["blas"] = None
        return described

    def _array(self, raw: bytes, shape: Tuple[int, ...]) -> Any:
        array = (np.frombuffer(raw, dtype=np.uint8).astype(np.float64) - 127.5) / 127.5
        return array.astype(self.dtype).reshape(shape)

    def matmul(self, a: bytes, b: bytes, m: int, k: int, n: int) -> Call:
        """Multiply ``a`` (m, k) with ``b`` (k, n)."""
        left, right = self._array(a, (m, k)), self._array(b, (k, n))
        return Call(lambda: np.matmul(left, right), lambda result, index: float(result[index]))

    def conv2d(self, x: bytes, w: bytes, parameters: Parameters) -> Call:
        """Gather patches (im2col), then one matrix product."""
        p = parameters
        batch, channels, size, kernel = p["batch"], p["channels"], p["size"], p["kernel"]
        margin = kernel // 2
        images = self._array(x, (batch, channels, size, size))
        filters = self._array(w, (p["filters"], channels * kernel * kernel))

        def run() -> Any:
            padded = np.pad(images, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
            patches = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
            columns = patches.transpose(1, 4, 5, 0, 2, 3).reshape(channels * kernel * kernel, -1)
            return np.matmul(filters, columns).reshape(p["filters"], batch, size, size)

        return Call(run, lambda result, i: float(result[i[1], i[0], i[2], i[3]]))
