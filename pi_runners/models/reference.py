"""Whole models in NumPy, in double precision: the results that every framework must agree with.

``python -m pi_runners.models.reference`` computes the expected results of all models and blocks, and writes
``expected.json``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from pi_runners.harness.contract import Array, Parameters
from pi_runners.models import NETWORKS, initial
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.layers import Filters, Layers, Pair, input_numbers, make_labels
from pi_runners.models.network import Network

_STEP = 1e-6
"""Step of the first estimate of the central difference, relative to the squared weights."""
_CHANGE = 1e-11
"""Change of the loss in the second estimate, relative to the loss; round-off is 1e-4 of it at most."""
_LOGITS = 8
"""Number of logits of each row that are stored."""
EXPECTED = Path(__file__).with_name("expected.json")


class ReferenceLayers(Layers):
    """Layers in double precision, with arrays in canonical shapes.

    Attributes:
        training: Whether batch normalisation uses the statistics of the batch.
    """

    def __init__(self, training: bool = False) -> None:
        self.training = training
        self._weights: Dict[str, Any] = {}
        self._shift = 0.0

    def move(self, shift: float) -> None:
        """Add ``shift`` times the squared initial weights to all weights; not cumulative."""
        self._shift = shift

    def _weight(self, weight: initial.InitialWeight) -> Any:
        if weight.name not in self._weights:
            numbers = (np.frombuffer(weight.raw, np.uint8).astype(np.float64) - 127.5) / 127.5
            self._weights[weight.name] = (weight.offset + weight.scale * numbers).reshape(weight.shape)
        value = self._weights[weight.name]
        return value + self._shift * value * value if self._shift else value

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        weight, *bias = map(self._weight, filters.weights(name, x.shape[1]))
        y = _convolve(x, weight, filters.stride, filters.padding, filters.groups)
        return y + bias[0][:, None, None] if bias else y

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        weight = self._weight(initial.filters(name, (filters, x.shape[1], 2, 2)))
        batch, _, height, width = x.shape
        y = np.einsum("bchw,fcij->bfhiwj", x, weight).reshape(batch, filters, 2 * height, 2 * width)
        return y + self._weight(initial.bias(name, filters))[:, None, None]

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        gains, offsets = (self._weight(w)[:, None, None] for w in initial.norm(name, x.shape[1], gain))
        if not self.training:
            return x / math.sqrt(1 + 1e-5) * gains + offsets
        mean, variance = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * gains + offsets

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        weight, *offsets = map(self._weight, initial.dense(name, x.shape[-1], width, bias))
        return x @ weight + offsets[0] if bias else x @ weight

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        normalised = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
        gains, offsets = map(self._weight, initial.norm(name, x.shape[-1]))
        return normalised * gains + offsets

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        return self._weight(initial.table(name, rows, width))[indices]

    def tied_dense(self, name: str, x: Array) -> Array:
        rows = len(self._weights[name + ".table"])
        return x @ self._weight(initial.table(name, rows, x.shape[-1])).T

    def prepend_token(self, name: str, x: Array) -> Array:
        token = self._weight(initial.table(name, 1, x.shape[-1]))
        return np.concatenate([np.broadcast_to(token, (len(x), 1, x.shape[-1])), x], axis=1)

    def _heads(self, name: str, x: Array, heads: int) -> List[Any]:
        projected = [self.dense(name + part, x, x.shape[-1]) for part in (".query", ".key", ".value")]
        return [y.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for y in projected]

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        q, k, v = self._heads(name, x, heads)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)
        return self._merge(name, _softmax(scores) @ v)

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        q, *new = self._heads(name, x, heads)
        keys, values = (np.concatenate(pair, axis=2) for pair in zip(cache, new))
        scores = q @ keys.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        return self._merge(name, _softmax(scores) @ values), (keys, values)

    def _merge(self, name: str, mixed: Any) -> Any:
        batch, heads, length, width = mixed.shape
        return self.dense(name + ".output", mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1), heads * width)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        w, u, b = (self._weight(weight) for weight in initial.recurrent(name, x.shape[-1], hidden))
        h, c = state or (np.zeros((len(x), hidden)), np.zeros((len(x), hidden)))
        outputs = []
        for step in range(x.shape[1]):
            i, f, g, o = np.split(x[:, step] @ w.T + h @ u.T + b, 4, axis=-1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs, axis=1), (h, c)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def relu6(self, x: Array) -> Array:
        return np.clip(x, 0, 6)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        if approximate:
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    def tanh(self, x: Array) -> Array:
        return np.tanh(x)

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        padded = np.pad(x, edges, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
        return windows[:, :, ::stride, ::stride].max(axis=(-1, -2))

    def global_mean(self, x: Array) -> Array:
        return x.mean(axis=(2, 3))

    def join_channels(self, x: Array, y: Array) -> Array:
        return np.concatenate([x, y], axis=1)

    def join(self, x: Array, y: Array) -> Array:
        return np.concatenate([x, y], axis=-1)

    def as_sequence(self, x: Array) -> Array:
        return x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)

    def attend(self, queries: Array, memory: Array) -> Array:
        return _softmax(queries @ memory.swapaxes(-1, -2)) @ memory

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        stacked = np.stack(vectors, axis=1)
        rows, columns = np.tril_indices(len(vectors), -1)
        return (stacked @ stacked.swapaxes(-1, -2))[:, rows, columns]

    def rows(self, x: Array) -> Array:
        return (np.moveaxis(x, 1, -1) if x.ndim == 4 else x).reshape(-1, x.shape[1] if x.ndim == 4 else x.shape[-1])


def _convolve(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    batch, channels, height, width = windows.shape[:4]
    grouped = windows.reshape(batch, groups, channels // groups, height, width, *w.shape[2:])
    filters = w.reshape(groups, len(w) // groups, *w.shape[1:])
    return np.einsum("bgchwij,gfcij->bgfhw", grouped, filters, optimize=True).reshape(batch, len(w), height, width)


def _softmax(x: Any) -> Any:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _cross_entropy(logits: Any, labels: Sequence[int]) -> float:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=-1)) - shifted[np.arange(len(labels)), list(labels)]
    return float(losses.mean())


def expected_results(network: Network) -> Dict[str, Any]:
    """Return the logits of the probe by mode, its loss in training, and the derivative of the loss.

    The derivative is a central difference in the direction of the squared weights: unlike the weights themselves, it is
    not a direction in which batch normalisation leaves the loss unchanged.
    """
    results: Dict[str, Any] = {"logits": {}}
    for mode in network.modes:
        inputs = _inputs(network, network.probe, mode)
        layers = ReferenceLayers()
        if mode != "training":
            logits = network.forward(layers, inputs, network.probe, mode)
            results["logits"][mode] = [[float("{:.9g}".format(v)) for v in row[:_LOGITS]] for row in logits[:2]]
            continue
        layers.training = True
        loss, derivative = _loss_and_derivative(network, layers, inputs)
        results["loss"] = float("{:.9g}".format(loss))
        results["derivative"] = float("{:.6g}".format(derivative))
    return results


def _loss_and_derivative(network: Network, layers: ReferenceLayers, inputs: Sequence[Array]) -> Tuple[float, float]:
    labels = make_labels(*network.logits_shape(network.probe, "training"))

    def loss(shift: float) -> float:
        layers.move(shift)
        return _cross_entropy(network.forward(layers, inputs, network.probe, "training"), labels)

    at_start = loss(0.0)
    estimate = _central_difference(loss, _STEP)
    # A short step: rectifiers that switch within it spoil the difference.
    return at_start, _central_difference(loss, _CHANGE * at_start / abs(estimate))


def _central_difference(function: Callable[[float], float], step: float) -> float:
    return (function(step) - function(-step)) / (2 * step)


def _inputs(network: Network, p: Parameters, mode: str) -> List[Any]:
    return [
        np.array(input_numbers(number, spec)).reshape(spec.shape) for number, spec in enumerate(network.inputs(p, mode))
    ]


if __name__ == "__main__":
    networks = {**NETWORKS, **BLOCKS}
    EXPECTED.write_text(json.dumps({n: expected_results(network) for n, network in networks.items()}, indent=1) + "\n")
