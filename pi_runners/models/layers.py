"""Contract between the definitions of whole models and the frameworks' layers."""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Parameters, Unsupported
from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.models import initial

Pair = Tuple[Array, Array]
"""Keys and values of an attention, or hidden and cell state of a recurrent layer."""


def lacks(what: str) -> Unsupported:
    """Return the error for a layer that a backend does not have."""
    return Unsupported("this backend has no {}".format(what))


class Filters(NamedTuple):
    """Filters of a convolution of images.

    Attributes:
        number: Filters, which are the channels of the result.
        kernel: Height and width.
        stride: Step along both axes.
        groups: Groups of channels.
        bias: Whether a bias is added.
    """

    number: int
    kernel: int
    stride: int = 1
    groups: int = 1
    bias: bool = False

    @property
    def padding(self) -> int:
        """Zeros that are added on every side of an image."""
        return 0 if self.kernel == self.stride else self.kernel // 2

    def weights(self, name: str, channels: int) -> List[initial.InitialWeight]:
        """Return the filters for images with these channels, and the bias if there is one."""
        weight = initial.filters(name, (self.number, channels // self.groups, self.kernel, self.kernel))
        return [weight, initial.bias(name, self.number)] if self.bias else [weight]


class Layers:
    """The layers of one framework, applied by name.

    The first use of a name creates the layer and its weights; later uses with the same name apply the same layer.
    A definition calls these methods in its forward pass.

    Arrays are in the layout that users of the framework prefer. The shapes here are canonical: images are ``(batch,
    channels, height, width)``, sequences ``(batch, length, width)``, filters ``(filters, channels, height, width)``,
    matrices ``(inputs, outputs)``. Recurrent weights are ``(4 hidden, inputs)`` with the gates in the order input,
    forget, cell, output.

    Attributes:
        training: Whether batch normalisation uses and updates the statistics of the batch.
    """

    training = False

    def _weight(self, weight: initial.InitialWeight) -> Array:
        """Return a weight, which is made with its initial value if there is none."""
        raise Unsupported("this backend has no arrays of weights")

    # Layers with weights

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        """Convolution of images; ``kernel // 2`` zeros are added on every side, none if the kernel is the stride."""
        raise lacks("convolution")

    def normalised_convolution(self, name: str, x: Array, filters: Filters, gain: float = 1.0) -> Array:
        """Convolution, and the batch normalisation ``name.norm`` of its result."""
        return self.batch_norm(name + ".norm", self.convolution(name, x, filters), gain)

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        """Transposed convolution with a kernel and a stride of 2 and a bias, which doubles height and width."""
        raise lacks("transposed convolution")

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        """Batch normalisation of images; at first, the running mean is 0 and the running variance 1."""
        raise lacks("batch normalisation")

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        """Product of the last axis with a matrix."""
        raise lacks("dense layer")

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        """Layer normalisation over the last axis."""
        raise lacks("layer normalisation")

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        """Rows of a table by index."""
        raise lacks("embedding")

    def tied_dense(self, name: str, x: Array) -> Array:
        """Product of the last axis with the transposed table of the embedding ``name``, which was applied before."""
        raise lacks("tied layer")

    def add_positions(self, name: str, x: Array, rows: int, start: int = 0) -> Array:
        """Add rows ``start``, ``start + 1``, ... of a table of positions to a sequence."""
        return x + self._weight(initial.table(name, rows, x.shape[-1]))[start : start + x.shape[1]]

    def prepend_token(self, name: str, x: Array) -> Array:
        """Put one learned vector before a sequence."""
        raise lacks("learned token")

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        """Multi-head attention of a sequence to itself.

        The weights are those of four dense layers with biases, ``name.query``, ``.key``, ``.value`` and ``.output``.
        """
        raise lacks("attention")

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        """Attention of one new token to itself and to all earlier ones, with the weights of :meth:`self_attention`.

        Args:
            name: Name of the layer.
            x: The new token (batch, 1, width).
            heads: Number of heads.
            cache: Keys and values of the earlier tokens, each (batch, heads, length, width / heads).

        Returns:
            The result (batch, 1, width), and the cache with the new token.
        """
        raise lacks("attention with a cache")

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        """Recurrent layer: return all hidden states (batch, length, hidden), and the last hidden and cell state.

        The weights are ``name.input``, ``name.recurrent`` and one bias, ``name.bias``. The first state is zero if none
        is given.
        """
        raise lacks("recurrent layer")

    # Layers without weights

    def relu(self, x: Array) -> Array:
        """Rectified linear unit."""
        raise lacks("relu")

    def relu6(self, x: Array) -> Array:
        """Rectified linear unit of at most 6."""
        raise lacks("relu6")

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        """Gaussian error linear unit, exact or by its approximation with tanh (arXiv 1606.08415)."""
        raise lacks("gelu")

    def tanh(self, x: Array) -> Array:
        """Hyperbolic tangent."""
        raise lacks("tanh")

    def add(self, x: Array, y: Array) -> Array:
        """Sum."""
        return x + y

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        """Maximum over windows of images."""
        raise lacks("pooling")

    def global_mean(self, x: Array) -> Array:
        """Mean of images over height and width (batch, channels)."""
        raise lacks("pooling")

    def join_channels(self, x: Array, y: Array) -> Array:
        """Concatenate images along the channel axis."""
        raise lacks("concatenation")

    def join(self, x: Array, y: Array) -> Array:
        """Concatenate along the last axis."""
        raise lacks("concatenation")

    def as_sequence(self, x: Array) -> Array:
        """Turn images (batch, channels, height, width) into sequences of pixels (batch, height * width, channels)."""
        raise lacks("reshape")

    def token(self, x: Array, position: int) -> Array:
        """One token of a sequence (batch, width); -1 is the last one."""
        return x[:, position]

    def attend(self, queries: Array, memory: Array) -> Array:
        """Attention with one head, without weights and without scale, of queries to a sequence (Luong et al. 2015)."""
        raise lacks("attention")

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        """Dot products of all pairs of n vectors (batch, width): (batch, n (n - 1) / 2), the lower triangle by rows."""
        raise lacks("pairwise products")

    def rows(self, x: Array) -> Array:
        """Turn (batch, length, width), or images, into rows (batch * length, width)."""
        raise lacks("reshape")


class Inputs(NamedTuple):
    """One input of a model.

    Attributes:
        kind: ``images`` (numbers, channels first), ``features`` (numbers) or ``indices``.
        shape: Canonical shape.
        high: Number of different indices.
    """

    kind: str
    shape: Tuple[int, ...]
    high: int = 0


def make_inputs(backend: Backend, inputs: Sequence[Inputs]) -> List[Array]:
    """Return random inputs, the same in every framework."""
    arrays = []
    for number, spec in enumerate(inputs):
        if spec.kind == "indices":
            arrays.append(backend.integers([int(n) for n in input_numbers(number, spec)], spec.shape))
        else:
            make = backend.images if spec.kind == "images" else backend.array
            arrays.append(make(random_bytes(300 + number, math.prod(spec.shape)), spec.shape))
    return arrays


def input_numbers(number: int, spec: Inputs) -> List[float]:
    """Return the elements of the input with this number, in canonical order."""
    count = math.prod(spec.shape)
    if spec.kind != "indices":
        return decode(random_bytes(300 + number, count), "float64")
    raw = random_bytes(300 + number, 4 * count)
    return [int.from_bytes(raw[4 * i : 4 * i + 4], "little") % spec.high for i in range(count)]


def make_labels(count: int, classes: int) -> List[int]:
    """Return random classes, the same in every framework."""
    raw = random_bytes(299, 4 * count)
    return [int.from_bytes(raw[4 * i : 4 * i + 4], "little") % classes for i in range(count)]


class BuiltModel(NamedTuple):
    """A model in one framework, for inputs of any size.

    Attributes:
        infer: Returns a call that computes the logits of inputs with these parameters, compiled as users of the
            framework do it.
        train: Returns a training on inputs and labels with these parameters.
        gradient: Returns the loss of inputs and labels with these parameters, in training mode, and the sum of gradient
            times squared weight over all weights: the derivative of the loss in the direction of the squared weights.
    """

    infer: Callable[[Parameters, Sequence[Array]], Callable[[], Any]]
    train: Callable[[Parameters, Sequence[Array], Array], "ModelTraining"]
    gradient: Callable[[Parameters, Sequence[Array], Array], Tuple[float, float]]


class ModelTraining(NamedTuple):
    """A training of a model on one batch.

    Attributes:
        step: Makes one step with the model's optimiser, and returns the loss before it.
        expected: Loss before the first step without compilation; ``None`` if the framework's usual way is measured.
    """

    step: Callable[[], Any]
    expected: Optional[float] = None
