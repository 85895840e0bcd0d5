"""NumPy on the CPU: BLAS and NumPy's own loops; no backward pass."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from pi_runners.harness.contract import GATES, Array, Backend, Function, advance


class NumpyBackend(Backend):
    """Matrix products through BLAS; convolution through im2col and one matrix product; recurrence as a loop."""

    name = "numpy"
    dtypes = ("float32", "float64")
    on_processors = "NumPy"

    def describe(self) -> Dict[str, Any]:
        """Return the version and, from NumPy 1.25 on, the BLAS it was built with."""
        described: Dict[str, Any] = {"numpy": np.__version__}
        try:
            blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
            described["blas"] = "{} {}".format(blas.get("name"), blas.get("version"))
            described["blas_build"] = str(blas.get("openblas configuration", ""))[:200]
        except (TypeError, KeyError):
            # NumPy before 1.25 only prints its configuration.
            described["blas"] = None
        return described

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        return from_bytes(raw, shape, scale, offset, self.dtype)

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        return np.array(numbers, dtype=np.int64).reshape(tuple(shape))

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        return list(np.asarray(result[tuple(index)]).reshape(-1).tolist())

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        return bool(np.isfinite(result[tuple(index)]).all())

    def copy(self, x: Array) -> Array:
        return x.copy()

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        lhs = np.swapaxes(a, -1, -2) if transpose_a else a
        rhs = np.swapaxes(b, -1, -2) if transpose_b else b
        return np.matmul(lhs, rhs)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """Gather patches (im2col), then one matrix product for each group."""
        axes = tuple(range(2, x.ndim))
        padded = np.pad(x, ((0, 0), (0, 0)) + tuple((p, p) for p in padding))
        patches = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=axes)
        patches = patches[(slice(None), slice(None)) + tuple(slice(None, None, s) for s in stride)]
        spatial = patches.shape[2 : 2 + len(axes)]
        group_channels = x.shape[1] // groups
        # (groups, channels * kernel, batch * pixels)
        order = (1,) + tuple(range(2 + len(axes), patches.ndim)) + (0,) + tuple(range(2, 2 + len(axes)))
        columns = patches.transpose(order).reshape(groups, group_channels * int(np.prod(w.shape[2:])), -1)
        product = np.matmul(w.reshape(groups, w.shape[0] // groups, -1), columns)
        return np.moveaxis(product.reshape((w.shape[0], x.shape[0]) + spatial), 0, 1)

    def recurrent(self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        """One product for the inputs of all timesteps, then a Python loop over them."""
        inputs, hidden = shape
        gates = GATES[cell]
        to_input = np.ascontiguousarray(self.array(w[0], (gates * hidden, inputs), scale).T)
        to_hidden = np.ascontiguousarray(self.array(w[1], (gates * hidden, hidden), scale).T)

        def run(backend: Backend, steps: Array) -> Array:
            state = np.zeros((steps.shape[1], hidden), dtype=self.dtype)
            memory = state
            outputs = np.empty(steps.shape[:2] + (hidden,), dtype=self.dtype)
            for t, from_input in enumerate(np.matmul(steps, to_input)):
                state, memory = advance(np, _sigmoid, cell, from_input, np.matmul(state, to_hidden), state, memory)
                outputs[t] = state
            return outputs

        return run

    def gather(self, table: Array, indices: Array) -> Array:
        return np.take(table, indices, axis=0)

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def total(self, x: Array) -> Array:
        return x.sum(axis=-1)

    def largest(self, x: Array) -> Array:
        return x.max(axis=-1)

    def softmax(self, x: Array) -> Array:
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        powers /= powers.sum(axis=-1, keepdims=True)
        return powers

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * gain + offset

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        axes = (0,) + tuple(range(2, x.ndim))
        form = (1, -1) + (1,) * (x.ndim - 2)
        if not training:
            return x * gain.reshape(form) + offset.reshape(form)
        centred = x - x.mean(axis=axes, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + 1e-5)
        return scaled * gain.reshape(form) + offset.reshape(form)

    def fft(self, x: Array) -> Array:
        """`rfft`; NumPy before 2 computes it in double precision."""
        return np.fft.rfft(x)

    def sort(self, x: Array) -> Array:
        return np.sort(x, axis=-1)

    def join(self, x: Array, y: Array) -> Array:
        return np.concatenate((x, y), axis=-1)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        return x.transpose(tuple(axes))

    def spatial_mean(self, x: Array) -> Array:
        return x.mean(axis=tuple(range(2, x.ndim)))


_CHUNK = 2**20
"""Elements to convert at a time."""


def from_bytes(
    raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0, dtype: Any = "float64"
) -> Any:
    """Return the numbers that bytes encode, computed in double precision, in chunks to use less memory."""
    if np.dtype(dtype) == np.int8:
        return (np.frombuffer(raw, np.uint8).astype(np.int16) - 128).astype(np.int8).reshape(tuple(shape))
    numbers = np.empty(len(raw), dtype=dtype)
    for start in range(0, len(raw), _CHUNK):
        chunk = np.frombuffer(raw, np.uint8, min(_CHUNK, len(raw) - start), start).astype(np.float64)
        numbers[start : start + len(chunk)] = ((chunk - 127.5) / 127.5 * scale + offset).astype(dtype)
    return numbers.reshape(tuple(shape))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
