"""Counts the weights and operations of a model, and lists its operations, by running its definition on shapes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameters
from pi_runners.models.layers import Filters, Layers, Pair
from pi_runners.models.network import Network


class Counts(NamedTuple):
    """Size of a model.

    Attributes:
        weights: Number of trainable weights.
        flops: Floating-point operations of the products and convolutions of the forward pass.
        elements: Elements of all results of layers, and of the inputs.
        inputs: Elements of the inputs.
        read_weights: Number of weights that the forward pass reads: of embedding tables only the rows of its indices.
    """

    weights: float
    flops: float
    elements: float
    inputs: float
    read_weights: float


class ModelOperation(NamedTuple):
    """One operation of a model.

    Attributes:
        indicator: Name of the indicator that measures it.
        parameters: Parameters of the indicator.
        calls: Number of calls in one call of the model.
    """

    indicator: str
    parameters: Parameters
    calls: int


class CanonicalShape(NamedTuple):
    """An array without elements.

    Attributes:
        shape: Canonical lengths of the axes.
    """

    shape: Tuple[int, ...]


def count(network: Network, p: Parameters, mode: str) -> Counts:
    """Return the counts of the forward pass."""
    return _count(network, tuple(sorted(p.items())), mode)


@lru_cache(maxsize=1024)
def _count(network: Network, items: Tuple[Tuple[str, Any], ...], mode: str) -> Counts:
    inputs, counter = _run(network, dict(items), mode)
    of_inputs = float(sum(math.prod(i.shape) for i in inputs))
    weights = float(sum(counter.weights.values()))
    return Counts(weights, counter.flops, counter.elements + of_inputs, of_inputs, counter.read_weights)


def operations(network: Network, p: Parameters, mode: str) -> List[ModelOperation]:
    """Return the operations of a model that single indicators measure, in the order of their first call.

    Activations of one input, pooling and copies have no indicator. The scores of an attention are not masked.
    """
    calls = _run(network, p, mode)[1].calls
    return [ModelOperation(name, dict(parameters), number) for (name, parameters), number in calls.items()]


def _run(network: Network, p: Parameters, mode: str) -> Tuple[List[CanonicalShape], CountingLayers]:
    counter = CountingLayers(mode == "training")
    inputs = [CanonicalShape(spec.shape) for spec in network.inputs(p, mode)]
    network.forward(counter, inputs, p, mode)
    return inputs, counter


class CountingLayers(Layers):
    """Applies layers to canonical shapes, and records their operations; in training, those of backward passes, too."""

    def __init__(self, training: bool) -> None:
        self.training = training
        self.calls: Dict[Tuple[str, Tuple[Tuple[str, Any], ...]], int] = {}
        self.weights: Dict[str, int] = {}
        self.flops = 0.0
        self.elements = 0.0
        self.read_weights = 0.0
        self._tables: Dict[str, Tuple[int, int]] = {}

    def _result(self, *shape: int) -> CanonicalShape:
        self.elements += math.prod(shape)
        return CanonicalShape(tuple(shape))

    def _record(self, indicator: str, **parameters: Any) -> None:
        key = indicator, tuple(sorted(parameters.items()))
        self.calls[key] = self.calls.get(key, 0) + 1

    def _record_rows(self, indicator: str, kind: str, x: Array) -> None:
        self._record(indicator, kind=kind, rows=math.prod(x.shape[:-1]), columns=x.shape[-1])

    def _product(self, m: int, n: int, k: int, batch: int = 1) -> None:
        shared = {"batch": batch} if batch > 1 else {}
        self._record("matmul", m=m, n=n, k=k, **shared)
        if self.training:
            self._record("matmul", m=m, n=k, k=n, transpose_b="yes", **shared)
            self._record("matmul", m=k, n=n, k=m, transpose_a="yes", **shared)

    def _add_weight(self, name: str, count: int, read: Optional[int] = None) -> None:
        self.weights[name] = count
        self.read_weights += count if read is None else read

    def _dense(self, name: str, rows: int, inputs: int, width: int, bias: bool) -> None:
        self._add_weight(name, inputs * width + (width if bias else 0))
        self.flops += 2.0 * rows * inputs * width
        self._product(rows, width, inputs)

    def _record_convolution(self, x: Array, filters: Filters) -> None:
        shape = {"batch": x.shape[0], "channels": x.shape[1], "size": x.shape[2]}
        parameters = {**shape, "filters": filters.number, "kernel": filters.kernel}
        parameters.update({n: v for n, v in (("stride", filters.stride), ("groups", filters.groups)) if v != 1})
        if filters.kernel == filters.stride:
            parameters.update(pad_height=0, pad_width=0)
        self._record("conv2d", **parameters)
        if self.training:
            self._record("conv2d", direction="backward", **parameters)

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        self._record_convolution(x, filters)
        weights = [math.prod(weight.shape) for weight in filters.weights(name, x.shape[1])]
        self._add_weight(name, sum(weights))
        height, width = ((n + 2 * filters.padding - filters.kernel) // filters.stride + 1 for n in x.shape[2:])
        self.flops += 2.0 * x.shape[0] * height * width * weights[0]
        return self._result(x.shape[0], filters.number, height, width)

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        batch, channels, height, width = x.shape
        self._product(batch * height * width, 4 * filters, channels)
        self._add_weight(name, channels * filters * 4 + filters)
        self.flops += 2.0 * batch * height * width * channels * filters * 4
        return self._result(batch, filters, 2 * height, 2 * width)

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        # Runtimes fold the normalisation into the convolution when they do not train.
        if self.training:
            self._record("normalisation", kind="batch", rows=math.prod(x.shape) // x.shape[1], columns=x.shape[1])
        self._add_weight(name, 2 * x.shape[1])
        return self._result(*x.shape)

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        self._dense(name, math.prod(x.shape[:-1]), x.shape[-1], width, bias)
        return self._result(*x.shape[:-1], width)

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        self._record_rows("normalisation", "layer", x)
        self._add_weight(name, 2 * x.shape[-1])
        return self._result(*x.shape)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        self._record("embedding", rows=rows, width=width, lookups=math.prod(indices.shape))
        self._tables[name] = rows, width
        self._add_weight(name, rows * width, math.prod(indices.shape) * width)
        return self._result(*indices.shape, width)

    def tied_dense(self, name: str, x: Array) -> Array:
        rows, width = self._tables[name]
        self._product(math.prod(x.shape[:-1]), rows, width)
        self.read_weights += rows * width
        self.flops += 2.0 * math.prod(x.shape[:-1]) * rows * width
        return self._result(*x.shape[:-1], rows)

    def add_positions(self, name: str, x: Array, rows: int, start: int = 0) -> Array:
        self._add_weight(name, rows * x.shape[-1], x.shape[1] * x.shape[-1])
        return self._result(*x.shape)

    def prepend_token(self, name: str, x: Array) -> Array:
        self._add_weight(name, x.shape[-1])
        return self._result(x.shape[0], x.shape[1] + 1, x.shape[2])

    def _attention(self, name: str, x: Array, length: int) -> None:
        batch, queries, width = x.shape
        for part in ("query", "key", "value", "output"):
            self._dense("{}.{}".format(name, part), batch * queries, width, width, True)
            self._result(*x.shape)
        self.flops += 4.0 * batch * queries * length * width

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        batch, length, width = x.shape
        self._record("attention", batch=batch, heads=heads, length=length, width=width // heads)
        self._attention(name, x, length)
        return CanonicalShape(x.shape)

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        batch, _, length, width = cache[0].shape
        self._product(1, length + 1, width, batch * heads)
        self._product(1, width, length + 1, batch * heads)
        self._attention(name, x, length + 1)
        keys, values = (self._result(batch, heads, length + 1, width) for _ in cache)
        return CanonicalShape(x.shape), (keys, values)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        batch, length, inputs = x.shape
        wider = {} if inputs == hidden else {"inputs": inputs}
        self._record("recurrent", cell="lstm", hidden=hidden, batch=batch, timesteps=length, **wider)
        self._add_weight(name, 4 * hidden * (inputs + hidden + 1))
        self.flops += 2.0 * batch * length * 4 * hidden * (inputs + hidden)
        last = CanonicalShape((batch, hidden))
        return self._result(batch, length, hidden), (last, last)

    def relu(self, x: Array) -> Array:
        return self._result(*x.shape)

    relu6 = tanh = relu

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        self._record_rows("elementwise", "tanh", x)
        return self._result(*x.shape)

    def add(self, x: Array, y: Array) -> Array:
        self._record_rows("elementwise", "add", x)
        return self._result(*x.shape)

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        return self._result(*x.shape[:2], *((n + 2 * padding - kernel) // stride + 1 for n in x.shape[2:]))

    def global_mean(self, x: Array) -> Array:
        return self._result(*x.shape[:2])

    def join_channels(self, x: Array, y: Array) -> Array:
        return self._result(x.shape[0], x.shape[1] + y.shape[1], *x.shape[2:])

    def join(self, x: Array, y: Array) -> Array:
        return self._result(*x.shape[:-1], x.shape[-1] + y.shape[-1])

    def as_sequence(self, x: Array) -> Array:
        return CanonicalShape((x.shape[0], math.prod(x.shape[2:]), x.shape[1]))

    def token(self, x: Array, position: int) -> Array:
        return CanonicalShape((x.shape[0], x.shape[2]))

    def attend(self, queries: Array, memory: Array) -> Array:
        batch, length, width = queries.shape
        self._record("attention", batch=batch, heads=1, length=length, width=width)
        self.flops += 4.0 * math.prod(queries.shape) * memory.shape[1]
        return self._result(*queries.shape)

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        number, (batch, width) = len(vectors), vectors[0].shape
        self._product(number, number, width, batch)
        # Frameworks multiply the whole matrix of vectors with itself.
        self.flops += 2.0 * batch * number * number * width
        return self._result(batch, number * (number - 1) // 2)

    def rows(self, x: Array) -> Array:
        width = x.shape[1] if len(x.shape) == 4 else x.shape[-1]
        return CanonicalShape((math.prod(x.shape) // width, width))
