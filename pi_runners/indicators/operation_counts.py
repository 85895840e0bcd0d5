"""Counts what a model computes by running it on shapes alone."""

from __future__ import annotations

from typing import NamedTuple, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, product


class Shape(NamedTuple):
    """An array without elements.

    Attributes:
        shape: Its lengths, channels first.
    """

    shape: Tuple[int, ...]


class CountingBackend(Backend):
    """Adds up the floating-point operations of products and convolutions, as MLPerf and DeepBench count.

    Attributes:
        flops: Of everything that was called so far.
        elements: Elements of every result, each of which is written once and read once.
    """

    name = "counting"

    def __init__(self) -> None:
        super().__init__("cpu", "float32", {})
        self.flops = 0.0
        self.elements = 0.0

    def _made(self, *shape: int) -> Shape:
        self.elements += product(shape)
        return Shape(tuple(shape))

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """2 m n k for each product."""
        m, k = (a.shape[-1], a.shape[-2]) if transpose_a else a.shape[-2:]
        n = b.shape[-2] if transpose_b else b.shape[-1]
        lead = a.shape[:-2]
        self.flops += 2.0 * product(lead) * m * n * k
        return self._made(*lead, m, n)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """2 N K P Q C R S."""
        out = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(x.shape[2:], padding, w.shape[2:], stride)]
        self.flops += 2.0 * x.shape[0] * product(out) * product(w.shape)
        return self._made(x.shape[0], w.shape[0], *out)

    def relu(self, x: Array) -> Array:
        """The same shape."""
        return self._made(*x.shape)

    tanh = relu
    softmax = relu

    def scale(self, x: Array, factor: float) -> Array:
        """The same shape."""
        return self._made(*x.shape)

    def add(self, x: Array, y: Array) -> Array:
        """The same shape."""
        return self._made(*x.shape)

    multiply = add

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        """The same shape."""
        return self._made(*x.shape)

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        """The same shape."""
        return self._made(*x.shape)

    def gather(self, table: Array, indices: Array) -> Array:
        """One row an index."""
        return self._made(*indices.shape, table.shape[-1])

    def pool(self, x: Array, size: int) -> Array:
        """Shorter spatial axes."""
        return self._made(*x.shape[:2], *(n // size for n in x.shape[2:]))

    def spatial_mean(self, x: Array) -> Array:
        """No spatial axes."""
        return self._made(*x.shape[:2])

    def upsample(self, x: Array) -> Array:
        """Longer spatial axes."""
        return self._made(*x.shape[:2], *(2 * n for n in x.shape[2:]))

    def join_channels(self, x: Array, y: Array) -> Array:
        """The channels of both."""
        return self._made(x.shape[0], x.shape[1] + y.shape[1], *x.shape[2:])

    def join(self, x: Array, y: Array) -> Array:
        """The last axes of both."""
        return self._made(*x.shape[:-1], x.shape[-1] + y.shape[-1])

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """A view."""
        known = product([n for n in shape if n > 0])
        return Shape(tuple(n if n > 0 else product(x.shape) // known for n in shape))

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        """Axes in another order."""
        return self._made(*(x.shape[axis] for axis in axes))

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        """Pixels as rows."""
        return self._made(product(x.shape) // channels, channels)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        """One number."""
        return Shape(())
