"""Whole models as graphs of ONNX operators, in the form in which ``torch.onnx`` exports them."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from pi_runners.frameworks.onnxruntime.onnx_format import Graph, Symbol
from pi_runners.harness.contract import Array, Backend, Parameters, Unsupported
from pi_runners.models import initial
from pi_runners.models.count import count
from pi_runners.models.layers import BuiltModel, Filters, Layers, Pair
from pi_runners.models.network import Network

_MOST_BYTES = 2**31
"""Limit of Protocol Buffers."""


class Value(NamedTuple):
    """An array of a graph.

    Attributes:
        name: Name in the graph.
        shape: Shape, which is fixed.
    """

    name: str
    shape: Tuple[int, ...]


class OnnxLayers(Layers):
    """Layers that add operators to a graph; images are channels first.

    Args:
        backend: Backend that makes arrays.
        weights: Initial weights by name; new ones are added.
    """

    def __init__(self, backend: Backend, weights: Dict[str, Any]) -> None:
        self.graph = Graph()
        self._backend = backend
        self._weights = weights
        self._constants: Dict[str, Value] = {}

    def input(self, array: Any) -> Value:
        """Add an input with the shape and element type of an array."""
        return Value(self.graph.add_input(str(array.dtype), array.shape), array.shape)

    def _constant(self, array: Any) -> Value:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return Value(self.graph.add_constant(raw, str(array.dtype), array.shape), array.shape)

    def _integers(self, *numbers: int) -> Value:
        return self._constant(np.array(numbers, dtype=np.int64))

    def _number(self, number: float) -> Value:
        return self._constant(np.array(number, dtype=self._backend.dtype))

    def _initial(self, weight: initial.InitialWeight) -> Any:
        if weight.name not in self._weights:
            array = self._backend.array(weight.raw, weight.shape, weight.scale, weight.offset)
            self._weights[weight.name] = array
        return self._weights[weight.name]

    def _weight(self, weight: initial.InitialWeight, transposed: bool = False) -> Value:
        if weight.name not in self._constants:
            array = self._initial(weight)
            self._constants[weight.name] = self._constant(array.swapaxes(0, 1) if transposed else array)
        return self._constants[weight.name]

    def _node(self, operator: str, inputs: Sequence[Value], shape: Sequence[int], **attributes: Any) -> Value:
        return Value(self.graph.add_node(operator, [i.name for i in inputs], **attributes)[0], tuple(shape))

    def _reshape(self, x: Value, *shape: int) -> Value:
        return self._node("Reshape", [x, self._integers(*shape)], shape)

    def _transpose(self, x: Value, *axes: int) -> Value:
        return self._node("Transpose", [x], [x.shape[axis] for axis in axes], perm=list(axes))

    def _matmul(self, x: Value, y: Value) -> Value:
        return self._node("MatMul", [x, y], (*x.shape[:-1], y.shape[-1]))

    def _concat(self, x: Value, y: Value, axis: int) -> Value:
        shape = list(x.shape)
        shape[axis] += y.shape[axis]
        return self._node("Concat", [x, y], shape, axis=axis)

    def _softmax(self, x: Value) -> Value:
        return self._node("Softmax", [x], x.shape, axis=-1)

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        return self._node(
            "Conv",
            [x, *map(self._weight, filters.weights(name, x.shape[1]))],
            (x.shape[0], filters.number, *_windows(x, filters.kernel, filters.stride, filters.padding)),
            dilations=[1, 1],
            group=filters.groups,
            kernel_shape=[filters.kernel] * 2,
            pads=[filters.padding] * 4,
            strides=[filters.stride] * 2,
        )

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        batch, channels, height, width = x.shape
        weights = [
            self._weight(initial.filters(name, (filters, channels, 2, 2)), transposed=True),
            self._weight(initial.bias(name, filters)),
        ]
        shape = (batch, filters, 2 * height, 2 * width)
        return self._node("ConvTranspose", [x, *weights], shape, kernel_shape=[2, 2], strides=[2, 2])

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        width = x.shape[1]
        weights = map(self._weight, initial.norm(name, width, gain))
        statistics = [self._constant(fill(width, dtype=self._backend.dtype)) for fill in (np.zeros, np.ones)]
        return self._node("BatchNormalization", [x, *weights, *statistics], x.shape, epsilon=1e-5)

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        """`Gemm` for rows, otherwise `MatMul` and `Add`."""
        weight, *offsets = initial.dense(name, x.shape[-1], width, bias)
        if not bias:
            return self._matmul(x, self._weight(weight))
        offset, shape = self._weight(offsets[0]), (*x.shape[:-1], width)
        if len(x.shape) == 2:
            return self._node("Gemm", [x, self._weight(weight, transposed=True), offset], shape, transB=1)
        return self._node("Add", [offset, self._matmul(x, self._weight(weight))], shape)

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        weights = map(self._weight, initial.norm(name, x.shape[-1]))
        return self._node("LayerNormalization", [x, *weights], x.shape, axis=-1, epsilon=epsilon)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        return self._node("Gather", [self._weight(initial.table(name, rows, width)), indices], (*indices.shape, width))

    def tied_dense(self, name: str, x: Array) -> Array:
        return self._matmul(x, self._transpose(self._constants[name + ".table"], 1, 0))

    def add_positions(self, name: str, x: Array, rows: int, start: int = 0) -> Array:
        _, length, width = x.shape
        ends = [self._integers(number) for number in (start, start + length, 0)]
        table = self._weight(initial.table(name, rows, width))
        return self.add(x, self._node("Slice", [table, *ends], (length, width)))

    def prepend_token(self, name: str, x: Array) -> Array:
        shape = (x.shape[0], 1, x.shape[2])
        token = self._weight(initial.table(name, 1, x.shape[2]))
        return self._concat(self._node("Expand", [token, self._integers(*shape)], shape), x, 1)

    def _heads(self, name: str, x: Array, heads: int) -> List[Value]:
        batch, length, width = x.shape
        projected = (self.dense(name + part, x, width) for part in (".query", ".key", ".value"))
        return [self._transpose(self._reshape(y, batch, length, heads, width // heads), 0, 2, 1, 3) for y in projected]

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        q, k, v = self._heads(name, x, heads)
        return self._attention(name, q, k, v, causal)

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        q, *new = self._heads(name, x, heads)
        keys, values = (self._concat(old, y, 2) for old, y in zip(cache, new))
        return self._attention(name, q, keys, values), (keys, values)

    def _attention(self, name: str, q: Value, k: Value, v: Value, causal: bool = False) -> Array:
        batch, heads, length, width = q.shape
        keys = self._transpose(k, 0, 1, 3, 2)
        q, keys = (self._node("Mul", [x, self._number(width**-0.25)], x.shape) for x in (q, keys))
        scores = self._matmul(q, keys)
        if causal:
            mask = np.where(np.tri(length, dtype=bool), 0.0, -np.inf).astype(self._backend.dtype)
            scores = self.add(scores, self._constant(mask))
        mixed = self._transpose(self._matmul(self._softmax(scores), v), 0, 2, 1, 3)
        return self.dense(name + ".output", self._reshape(mixed, batch, length, heads * width), heads * width)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        """`LSTM`, whose gates are in the order input, output, forget, cell and whose second bias is 0."""
        batch, length, inputs = x.shape
        weights = [self._initial(weight) for weight in initial.recurrent(name, inputs, hidden)]
        gates = [w.reshape(4, hidden, -1)[[0, 3, 1, 2]].reshape(1, *w.shape) for w in weights]
        gates[2] = np.concatenate([gates[2], np.zeros_like(gates[2])], axis=1)
        names = [v.name for v in (self._transpose(x, 1, 0, 2), *map(self._constant, gates))]
        if state is not None:
            names += ["", *(self._reshape(s, 1, batch, hidden).name for s in state)]
        results = self.graph.add_node("LSTM", names, outputs=3, hidden_size=hidden)
        shapes = ((length, 1, batch, hidden), (1, batch, hidden), (1, batch, hidden))
        outputs, h, c = (Value(result, shape) for result, shape in zip(results, shapes))
        last = self._reshape(h, batch, hidden), self._reshape(c, batch, hidden)
        squeezed = self._node("Squeeze", [outputs, self._integers(1)], (length, batch, hidden))
        return self._transpose(squeezed, 1, 0, 2), last

    def relu(self, x: Array) -> Array:
        return self._node("Relu", [x], x.shape)

    def relu6(self, x: Array) -> Array:
        return self._node("Clip", [x, self._number(0), self._number(6)], x.shape)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        def scaled(y: Value, factor: float) -> Value:
            return self._node("Mul", [y, self._number(factor)], y.shape)

        def increased(y: Value) -> Value:
            return self._node("Add", [y, self._number(1)], y.shape)

        if not approximate:
            error = self._node("Erf", [self._node("Div", [x, self._number(math.sqrt(2))], x.shape)], x.shape)
            return scaled(self._node("Mul", [x, increased(error)], x.shape), 0.5)
        cube = self._node("Mul", [x, self._node("Mul", [x, x], x.shape)], x.shape)
        inner = scaled(self.add(x, scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
        return scaled(self._node("Mul", [x, increased(self.tanh(inner))], x.shape), 0.5)

    def tanh(self, x: Array) -> Array:
        return self._node("Tanh", [x], x.shape)

    def add(self, x: Array, y: Array) -> Array:
        return self._node("Add", [x, y], x.shape)

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        shape = (*x.shape[:2], *_windows(x, kernel, stride, padding))
        return self._node("MaxPool", [x], shape, kernel_shape=[kernel] * 2, pads=[padding] * 4, strides=[stride] * 2)

    def global_mean(self, x: Array) -> Array:
        pooled = self._node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))
        return self._node("Flatten", [pooled], x.shape[:2], axis=1)

    def join_channels(self, x: Array, y: Array) -> Array:
        return self._concat(x, y, 1)

    def join(self, x: Array, y: Array) -> Array:
        return self._concat(x, y, -1)

    def as_sequence(self, x: Array) -> Array:
        return self._transpose(self._reshape(x, *x.shape[:2], math.prod(x.shape[2:])), 0, 2, 1)

    def token(self, x: Array, position: int) -> Array:
        index = self._constant(np.array(position, dtype=np.int64))
        return self._node("Gather", [x, index], (x.shape[0], x.shape[2]), axis=1)

    def attend(self, queries: Array, memory: Array) -> Array:
        scores = self._matmul(queries, self._transpose(memory, 0, 2, 1))
        return self._matmul(self._softmax(scores), memory)

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        """`MatMul` of the concatenated vectors, and `Gather` of the lower triangle."""
        number, (batch, width) = len(vectors), vectors[0].shape
        columns = [self._node("Unsqueeze", [v, self._integers(1)], (batch, 1, width)) for v in vectors]
        stacked = self._node("Concat", columns, (batch, number, width), axis=1)
        products = self._matmul(stacked, self._transpose(stacked, 0, 2, 1))
        places = np.ravel_multi_index(np.tril_indices(number, -1), (number, number)).astype(np.int64)
        inputs = [self._reshape(products, batch, number * number), self._constant(places)]
        return self._node("Gather", inputs, (batch, len(places)), axis=1)

    def rows(self, x: Array) -> Array:
        """`Reshape`, and before it `Transpose` for images."""
        last = self._transpose(x, 0, 2, 3, 1) if len(x.shape) == 4 else x
        return self._reshape(last, math.prod(last.shape[:-1]), last.shape[-1])


def build(backend: Any, network: Network, p: Parameters, mode: str, inputs: Sequence[Array]) -> BuiltModel:
    """Return a model; see :meth:`Backend.build_model`. Every inference has its own graph and session.

    The method `start` of the backend returns a call that computes a symbol of a graph from arrays by name of the input.
    """
    if count(network, p, mode).weights * np.dtype(backend.dtype).itemsize >= _MOST_BYTES:
        raise Unsupported("the weights exceed 2 GiB, the limit of an ONNX file")
    weights: Dict[str, Any] = {}

    def infer(p: Parameters, batch: Sequence[Array]) -> Callable[[], Any]:
        layers = OnnxLayers(backend, weights)
        inputs = [layers.input(array) for array in batch]
        logits = network.forward(layers, inputs, p, mode)
        symbol = Symbol(layers.graph, logits.name, backend.dtype, len(logits.shape))
        call: Callable[[], Any] = backend.start(symbol, {value.name: array for value, array in zip(inputs, batch)})
        return call

    def train(p: Parameters, batch: Sequence[Array], labels: Array) -> Any:
        raise Unsupported("ONNX Runtime has no training")

    return BuiltModel(infer, train, train)


def _windows(x: Value, kernel: int, stride: int, padding: int) -> List[int]:
    """Return height and width of the result of a convolution or pooling."""
    return [(length + 2 * padding - kernel) // stride + 1 for length in x.shape[2:]]
