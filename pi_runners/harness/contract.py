"""What an indicator and a backend agree on."""

from __future__ import annotations

import io
import math
import random
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

Parameters = Dict[str, Any]
Array = Any
"""A framework's own array, or a symbol for one while a graph is traced."""

LEARNING_RATE = 0.01


class Unsupported(Exception):
    """Raised when a backend cannot run an indicator with these parameters on this device."""


class Trial(NamedTuple):
    """A computation with its check.

    Attributes:
        run: Starts the computation and returns its result, which the device may still be working on.
        check: Takes a result; returns the relative error of the result against a reference.
        tolerance: Largest relative error accepted.
    """

    run: Callable[[], Any]
    check: Callable[[Any], float]
    tolerance: float


class SamplingPlan(NamedTuple):
    """How an indicator is to be sampled.

    Attributes:
        samples: How many samples to take; up to three times as many where they vary.
        min_seconds: Least duration of one sample; calls are repeated within it.
        max_warmup_seconds: The warm-up ends here even where the timings have not settled.
        instruments: Directory of measuring libraries that are no part of the stack, or none.
        archive: The program that holds the harness, for indicators that start processes of their own.
    """

    samples: int
    min_seconds: float
    max_warmup_seconds: float
    instruments: Optional[str] = None
    archive: str = ""


class Backend:
    """How one framework spells the operations that indicators and models are written in.

    A function over arrays, such as ``lambda b, x, w: b.convolution(x, w, ...)``, is written once; :meth:`compile`,
    :meth:`pullback` and :meth:`train` make it what the framework's users would run. Arrays are made from bytes:
    byte ``b`` stands for ``(b - 127.5) / 127.5``, or for ``b - 128`` where the element type is int8, so that every
    framework computes on the very same numbers.

    Shapes are given with channels first, ``(batch, channels, *spatial)`` and ``(filters, channels, *kernel)``; what
    :meth:`images` and :meth:`filters` return has the framework's native layout, and :meth:`image_index` and
    :meth:`filter_index` translate.
    """

    name = ""
    dtypes: Tuple[str, ...] = ("float32", "float64")
    channels_last = False

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        self.device = device
        self.dtype = dtype
        self.settings = settings
        if dtype not in self.dtypes:
            raise Unsupported("the {} backend has no {}".format(self.name, dtype))

    @property
    def precision(self) -> str:
        """Element type that bounds the error: that of mixed precision where it is on."""
        amp = self.settings.get("amp", "off")
        return self.dtype if amp == "off" else str(amp)

    def describe(self) -> Dict[str, Any]:
        """Return versions and build facts of the framework, text or numbers by name."""
        raise Unsupported("this backend does not describe itself")

    def synchronise(self, result: Any) -> None:
        """Wait until the device has finished what led to ``result``."""

    # Arrays

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        """Make an array of the backend's element type: ``offset`` plus ``scale`` times what the bytes stand for."""
        raise self._lacks("arrays")

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        """Make an array of indices."""
        raise self._lacks("integers")

    def images(self, raw: bytes, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Make images ``(batch, channels, *spatial)`` in native layout."""
        raise self._lacks("images")

    def filters(self, raw: bytes, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Make filters ``(filters, channels, *kernel)`` in native layout."""
        raise self._lacks("filters")

    def image_index(self, index: Tuple[int, ...]) -> Tuple[int, ...]:
        """Translate ``(batch, channel, *spatial)`` into native layout."""
        return (index[0],) + index[2:] + (index[1],) if self.channels_last else index

    def filter_index(self, index: Tuple[int, ...]) -> Tuple[int, ...]:
        """Translate ``(filter, channel, *kernel)`` into native layout."""
        return index[2:] + (index[1], index[0]) if self.channels_last else index

    def read(self, result: Any, index: Tuple[int, ...]) -> Any:
        """Return one element of an array as a Python number."""
        return self.read_all(result, index)[0]

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        """Return every element behind the first axes' indices or slices, as Python numbers."""
        raise self._lacks("arrays")

    def shape_of(self, result: Any) -> Tuple[int, ...]:
        """Return the shape of an array."""
        return tuple(int(length) for length in result.shape)

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        """Whether every element behind the first axes' indices is finite, by the framework's own word."""
        total = sum(self.read_all(result, index))
        return math.isfinite(total.real) and math.isfinite(total.imag)

    # Ways to run a function of (backend, *arrays)

    def compile(
        self, function: Callable[..., Array], arrays: Sequence[Array], weights: Sequence[Array] = ()
    ) -> Callable[[], Any]:
        """Return a call of ``function(backend, *arrays, *weights)``, as the framework's users would make it fast.

        ``weights`` never change: a framework that prepares a model for inference may fold them in.
        """
        held = (*arrays, *weights)
        return lambda: function(self, *held)

    def pullback(
        self, function: Callable[..., Array], arrays: Sequence[Array], cotangent: Array
    ) -> Callable[[], Sequence[Array]]:
        """Return a call that gives the gradients of every array, from the gradient of the result."""
        raise self._lacks("backward pass")

    def train(
        self, loss: Callable[..., Array], weights: Sequence[Array], batch: Sequence[Array], rate: float = LEARNING_RATE
    ) -> "Training":
        """Return what trains ``weights`` by gradient descent on ``loss(backend, weights, *batch)``."""
        raise self._lacks("training")

    def reference(self) -> "Backend":
        """Return a backend of the same framework and device that computes more exactly than half types do."""
        return type(self)(self.device, "float32", {})

    # Transfers

    def to_device(self, raw: bytes) -> Tuple[Callable[[], Any], Callable[[], Any]]:
        """Return calls that copy ``raw`` from host to device and back, through page-locked memory where possible."""
        raise self._lacks("transfers: its arrays are in main memory")

    # Operations

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """Multiply the last two axes; int8 gives int32."""
        raise self._lacks("matmul")

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """Convolve images with filters; ``padding`` zeros are added on both sides of each spatial axis."""
        raise self._lacks("convolution")

    def recurrent(
        self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float
    ) -> Callable[..., Array]:
        """Return a function of ``x`` (timesteps, batch, inputs) that gives every hidden state.

        Args:
            cell: ``vanilla`` (tanh), ``lstm`` or ``gru`` (reset applied after the product, as cuDNN).
            x: The inputs.
            w: Input weights (gates, hidden, inputs) and recurrent weights (gates, hidden, hidden); gates in the order
                input, forget, cell, output, or reset, update, new. There are no biases.
            shape: Inputs and hidden units.
            scale: Factor of the weights.
        """
        raise self._lacks("recurrent layer")

    def attention(self, q: Array, k: Array, v: Array, width: int) -> Array:
        """Scaled dot-product attention over (batch, heads, length, width)."""
        scores = self.matmul(q, k, transpose_b=True)
        return self.matmul(self.softmax(self.scale(scores, width**-0.5)), v)

    def scale(self, x: Array, factor: float) -> Array:
        """Multiply by a number."""
        return x * factor

    def add(self, x: Array, y: Array) -> Array:
        """Add, with broadcasting."""
        return x + y

    def multiply(self, x: Array, y: Array) -> Array:
        """Multiply, with broadcasting."""
        return x * y

    def copy(self, x: Array) -> Array:
        """Copy to fresh memory."""
        raise self._lacks("copy that is not optimised away")

    def gather(self, table: Array, indices: Array) -> Array:
        """Take rows of a table."""
        raise self._lacks("embedding")

    def relu(self, x: Array) -> Array:
        """Rectify."""
        raise self._lacks("relu")

    def tanh(self, x: Array) -> Array:
        """Hyperbolic tangent."""
        raise self._lacks("tanh")

    def total(self, x: Array) -> Array:
        """Sum the last axis."""
        raise self._lacks("reduction")

    def largest(self, x: Array) -> Array:
        """Take the largest of the last axis."""
        raise self._lacks("reduction")

    def softmax(self, x: Array) -> Array:
        """Exponentials of the last axis over their sum."""
        raise self._lacks("softmax")

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        """Normalise the last axis."""
        raise self._lacks("layer normalisation")

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        """Normalise each channel of images: by the batch in training, by a mean of 0 and a variance of 1 otherwise."""
        raise self._lacks("batch normalisation")

    def fft(self, x: Array) -> Array:
        """Discrete Fourier transform of the real last axis, non-negative frequencies."""
        raise self._lacks("fft")

    def sort(self, x: Array) -> Array:
        """Sort the last axis, smallest first."""
        raise self._lacks("sort")

    def pool(self, x: Array, size: int) -> Array:
        """Take the largest of non-overlapping windows of images."""
        raise self._lacks("pooling")

    def spatial_mean(self, x: Array) -> Array:
        """Mean of images over their spatial axes."""
        raise self._lacks("pooling")

    def upsample(self, x: Array) -> Array:
        """Repeat every spatial element of images twice along each axis."""
        raise self._lacks("upsampling")

    def join_channels(self, x: Array, y: Array) -> Array:
        """Put the channels of images behind each other."""
        raise self._lacks("concatenation")

    def join(self, x: Array, y: Array) -> Array:
        """Put the last axes behind each other."""
        raise self._lacks("concatenation")

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """Give the elements another shape."""
        raise self._lacks("reshape")

    def transpose(self, x: Array, axes: Sequence[int]) -> Array:
        """Reorder axes."""
        raise self._lacks("transpose")

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        """Mean cross-entropy of (samples, classes) against class numbers."""
        raise self._lacks("cross-entropy")

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        """Turn images into rows (pixels, channels)."""
        raise self._lacks("reshape")

    def _lacks(self, what: str) -> Unsupported:
        return Unsupported("the {} backend has no {}".format(self.name, what))


class Training(NamedTuple):
    """A model being trained.

    Attributes:
        step: Makes one step; the result's first element is the loss before it, the second the squared norm of the
            gradient.
        loss: Reads the loss of a step's result.
        squared_norm: Reads the squared norm of a step's result.
        feed: Replaces the batch.
        evaluator: Makes a call of ``function(backend, weights, *arrays)`` on the weights of the moment.
        weights: Returns the weights of the moment; the next step may change them in place.
    """

    step: Callable[[], Any]
    loss: Callable[[Any], float]
    squared_norm: Callable[[Any], float]
    feed: Callable[[Sequence[Array]], None]
    evaluator: Callable[[Callable[..., Array], Sequence[Array]], Callable[[], Any]]
    weights: Callable[[], Sequence[Array]]


_NUMBERS = [(byte - 127.5) / 127.5 for byte in range(256)]
_CHUNK_BYTES = 2**22


def decode(raw: bytes, dtype: str) -> List[float]:
    """Return the numbers that bytes stand for."""
    if dtype == "int8":
        return [float(byte - 128) for byte in raw]
    return [_NUMBERS[byte] for byte in raw]


def random_bytes(seed: int, count: int) -> bytes:
    """Return reproducible random bytes; at their most, they take their own size and one chunk of memory."""
    drawn = random.Random(seed)
    if 0 < count <= _CHUNK_BYTES:
        return drawn.getrandbits(8 * count).to_bytes(count, "little")
    # `getrandbits` counts bits in a C int: it gives 256 MiB at most. The chunks are what one call would give.
    made = io.BytesIO()
    # The whole length at once: what grows step by step is copied.
    made.seek(max(0, count - 1))
    made.write(bytes(min(1, count)))
    made.seek(0)
    for start in range(0, count, _CHUNK_BYTES):
        length = min(_CHUNK_BYTES, count - start)
        made.write(drawn.getrandbits(8 * length).to_bytes(length, "little"))
    return made.getvalue()


def product(lengths: Sequence[int]) -> int:
    """Return how many elements a shape has."""
    total = 1
    for length in lengths:
        total *= length
    return total
