"""Counts the operations of a model by running it on shapes without data."""

from __future__ import annotations

import math
from typing import Sequence

from pi_runners.harness.contract import Array, Backend
from pi_runners.models.count import CanonicalShape


class CountingBackend(Backend):
    """Sums the floating-point operations of products and convolutions, as MLPerf and DeepBench count.

    Attributes:
        flops: Operations of all calls so far.
        elements: Elements of all results; each is written once and read once.
    """

    name = "counting"

    def __init__(self) -> None:
        super().__init__("cpu", "float32", {})
        self.flops = 0.0
        self.elements = 0.0

    def _result(self, *shape: int) -> CanonicalShape:
        self.elements += math.prod(shape)
        return CanonicalShape(tuple(shape))

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """Count 2 m n k for each product."""
        m, k = (a.shape[-1], a.shape[-2]) if transpose_a else a.shape[-2:]
        n = b.shape[-2] if transpose_b else b.shape[-1]
        lead = a.shape[:-2]
        self.flops += 2.0 * math.prod(lead) * m * n * k
        return self._result(*lead, m, n)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """Count 2 N K P Q C R S."""
        out = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], padding, w.shape[2:], stride)]
        self.flops += 2.0 * x.shape[0] * math.prod(out) * math.prod(w.shape)
        return self._result(x.shape[0], w.shape[0], *out)

    def relu(self, x: Array) -> Array:
        return self._result(*x.shape)

    tanh = relu
    softmax = relu

    def scale(self, x: Array, factor: float) -> Array:
        return self._result(*x.shape)

    def add(self, x: Array, y: Array) -> Array:
        return self._result(*x.shape)

    multiply = add

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        return self._result(*x.shape)

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        return self._result(*x.shape)

    def gather(self, table: Array, indices: Array) -> Array:
        return self._result(*indices.shape, table.shape[-1])

    def pool(self, x: Array, size: int) -> Array:
        return self._result(*x.shape[:2], *(n // size for n in x.shape[2:]))

    def spatial_mean(self, x: Array) -> Array:
        return self._result(*x.shape[:2])

    def upsample(self, x: Array) -> Array:
        return self._result(*x.shape[:2], *(2 * n for n in x.shape[2:]))

    def join_channels(self, x: Array, y: Array) -> Array:
        return self._result(x.shape[0], x.shape[1] + y.shape[1], *x.shape[2:])

    def join(self, x: Array, y: Array) -> Array:
        return self._result(*x.shape[:-1], x.shape[-1] + y.shape[-1])

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """Return a view, which counts as no result."""
        fixed = math.prod([n for n in shape if n > 0])
        return CanonicalShape(tuple(n if n > 0 else math.prod(x.shape) // fixed for n in shape))

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        return self._result(*(x.shape[axis] for axis in axes))

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        return self._result(math.prod(x.shape) // channels, channels)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        return CanonicalShape(())
