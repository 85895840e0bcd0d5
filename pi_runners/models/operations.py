"""The single operations that a model consists of, as indicators with their parameters."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameters
from pi_runners.models.count import CanonicalShape, CountingLayers
from pi_runners.models.layers import Filters, Pair
from pi_runners.models.network import Network


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


def operations(network: Network, p: Parameters, mode: str) -> List[ModelOperation]:
    """Return the operations of a model that single indicators measure, in the order of their first call.

    Activations of one input, pooling and copies have no indicator. The scores of an attention are not masked.
    """
    recorder = _RecordingLayers(mode == "training")
    network.forward(recorder, [CanonicalShape(spec.shape) for spec in network.inputs(p, mode)], p, mode)
    return [ModelOperation(name, dict(parameters), calls) for (name, parameters), calls in recorder.calls.items()]


class _RecordingLayers(CountingLayers):
    """Records the operations of layers, and of their backward passes in training."""

    def __init__(self, with_backward: bool) -> None:
        super().__init__()
        self.calls: Dict[Tuple[str, Tuple[Tuple[str, Any], ...]], int] = {}
        self._with_backward = with_backward

    def _record(self, indicator: str, **parameters: Any) -> None:
        key = indicator, tuple(sorted(parameters.items()))
        self.calls[key] = self.calls.get(key, 0) + 1

    def _product(self, m: int, n: int, k: int, batch: int = 1) -> None:
        shared = {"batch": batch} if batch > 1 else {}
        self._record("matmul", m=m, n=n, k=k, **shared)
        if self._with_backward:
            self._record("matmul", m=m, n=k, k=n, transpose_b="yes", **shared)
            self._record("matmul", m=k, n=n, k=m, transpose_a="yes", **shared)

    def _dense(self, name: str, rows: int, inputs: int, width: int, bias: bool) -> None:
        super()._dense(name, rows, inputs, width, bias)
        self._product(rows, width, inputs)

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        parameters = {
            "batch": x.shape[0],
            "channels": x.shape[1],
            "filters": filters.number,
            "size": x.shape[2],
            "kernel": filters.kernel,
            "stride": filters.stride,
            "groups": filters.groups,
        }
        if filters.kernel == filters.stride:
            parameters.update(pad_height=0, pad_width=0)
        defaults = {"stride": 1, "groups": 1}
        changed = {n: v for n, v in parameters.items() if defaults.get(n) != v}
        self._record("conv2d", **changed)
        if self._with_backward:
            self._record("conv2d", direction="backward", **changed)
        return super().convolution(name, x, filters)

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        self._product(math.prod(x.shape) // x.shape[1], 4 * filters, x.shape[1])
        return super().transposed_convolution(name, x, filters)

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        # Runtimes fold the normalisation into the convolution when they do not train.
        if self._with_backward:
            self._record("normalisation", kind="batch", rows=math.prod(x.shape) // x.shape[1], columns=x.shape[1])
        return super().batch_norm(name, x, gain)

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        self._record("normalisation", kind="layer", rows=math.prod(x.shape[:-1]), columns=x.shape[-1])
        return super().layer_norm(name, x, epsilon)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        self._record("embedding", rows=rows, width=width, lookups=math.prod(indices.shape))
        return super().embedding(name, indices, rows, width)

    def tied_dense(self, name: str, x: Array) -> Array:
        rows, width = self._tables[name]
        self._product(math.prod(x.shape[:-1]), rows, width)
        return super().tied_dense(name, x)

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        batch, length, width = x.shape
        self._record("attention", batch=batch, heads=heads, length=length, width=width // heads)
        return super().self_attention(name, x, heads, causal)

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        batch, _, width = x.shape
        length = cache[0].shape[2] + 1
        self._product(1, length, width // heads, batch * heads)
        self._product(1, width // heads, length, batch * heads)
        return super().cached_attention(name, x, heads, cache)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        batch, length, inputs = x.shape
        wider = {} if inputs == hidden else {"inputs": inputs}
        self._record("recurrent", cell="lstm", hidden=hidden, batch=batch, timesteps=length, **wider)
        return super().lstm(name, x, hidden, state)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        self._record("elementwise", kind="tanh", rows=math.prod(x.shape[:-1]), columns=x.shape[-1])
        return super().gelu(x, approximate)

    def add(self, x: Array, y: Array) -> Array:
        self._record("elementwise", kind="add", rows=math.prod(x.shape[:-1]), columns=x.shape[-1])
        return super().add(x, y)

    def attend(self, queries: Array, memory: Array) -> Array:
        batch, length, width = queries.shape
        self._record("attention", batch=batch, heads=1, length=length, width=width)
        return super().attend(queries, memory)

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        batch, width = vectors[0].shape
        self._product(len(vectors), len(vectors), width, batch)
        return super().pairwise_products(vectors)
