"""Whole models in JAX: functions of a dictionary of weights under ``jax.jit``, with the optimisers written out."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pi_runners.frameworks.jax.operations import JaxBackend
from pi_runners.harness.contract import Array, Backend, Parameters, Unsupported, advance
from pi_runners.models import initial
from pi_runners.models.layers import BuiltModel, Filters, Layers, ModelTraining, Pair
from pi_runners.models.network import Network

Arrays = Dict[str, Any]
"""Arrays by name: a pytree."""
_DECAY, _RATE = 0.9, 0.1
"""Factors of the old and the new value in running statistics and in moments."""


class JaxLayers(Layers):
    """Layers that read weights from a dictionary; images are channels last, filters HWIO.

    Attributes:
        training: Whether batch normalisation uses the statistics of the batch.
        statistics: Running means and variances by name; in training, those after this batch.
    """

    def __init__(self, weights: Arrays, statistics: Arrays, training: bool) -> None:
        self.training = training
        self.statistics = dict(statistics)
        self._weights = weights

    def _weight(self, weight: initial.InitialWeight) -> Array:
        return self._weights[weight.name]

    def _running(self, name: str, width: int) -> Tuple[Array, Array]:
        mean, variance = self.statistics[name]
        return mean, variance

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        weight, *bias = map(self._weight, filters.weights(name, x.shape[-1]))
        y = lax.conv_general_dilated(
            x,
            weight,
            window_strides=(filters.stride,) * 2,
            padding=[(filters.padding,) * 2] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=filters.groups,
        )
        return y + bias[0] if bias else y

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        # As for the gradient of a convolution, the outputs are the input channels of the kernel.
        y = lax.conv_transpose(
            x,
            self._weight(initial.filters(name, (filters, x.shape[-1], 2, 2))),
            strides=(2, 2),
            padding="VALID",
            dimension_numbers=("NHWC", "HWOI", "NHWC"),
            transpose_kernel=True,
        )
        return y + self._weight(initial.bias(name, filters))

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        """Mean and variance in single precision or better, as in Flax."""
        width = x.shape[-1]
        mean, variance = self._running(name, width)
        wide = x.astype(mean.dtype)
        if self.training:
            batch_mean, batch_variance = wide.mean(axis=(0, 1, 2)), wide.var(axis=(0, 1, 2))
            self.statistics[name] = (
                _DECAY * mean + _RATE * batch_mean,
                _DECAY * variance + _RATE * batch_variance,
            )
            mean, variance = batch_mean, batch_variance
        gains, offsets = map(self._weight, initial.norm(name, width, gain))
        return ((wide - mean) * (lax.rsqrt(variance + 1e-5) * gains) + offsets).astype(x.dtype)

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        weight, *offsets = map(self._weight, initial.dense(name, x.shape[-1], width, bias))
        y = jnp.matmul(x, weight)
        return y + offsets[0] if bias else y

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        """Mean and variance in single precision or better, as in Flax."""
        gains, offsets = map(self._weight, initial.norm(name, x.shape[-1]))
        wide = x.astype(_wide(x.dtype))
        centred = wide - wide.mean(axis=-1, keepdims=True)
        scale = lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + epsilon)
        return (centred * scale * gains + offsets).astype(x.dtype)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        return jnp.take(self._weight(initial.table(name, rows, width)), indices, axis=0)

    def tied_dense(self, name: str, x: Array) -> Array:
        return jnp.matmul(x, self._weights[name + ".table"].T)

    def prepend_token(self, name: str, x: Array) -> Array:
        token = self._weight(initial.table(name, 1, x.shape[-1]))
        return jnp.concatenate((jnp.broadcast_to(token, (x.shape[0], 1, x.shape[-1])), x), axis=1)

    def _heads(self, name: str, x: Array, heads: int) -> List[Array]:
        projected = [self.dense(name + part, x, x.shape[-1]) for part in (".query", ".key", ".value")]
        return [y.reshape(*x.shape[:2], heads, -1) for y in projected]

    def _attention(self, q: Array, k: Array, v: Array, **options: Any) -> Array:
        return jax.nn.dot_product_attention(q, k, v, **options)

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        mixed = self._attention(*self._heads(name, x, heads), is_causal=causal)
        return self.dense(name + ".output", mixed.reshape(x.shape), x.shape[-1])

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        q, *new = self._heads(name, x, heads)
        keys, values = (jnp.concatenate((old, y.swapaxes(1, 2)), axis=2) for old, y in zip(cache, new))
        mixed = self._attention(q, keys.swapaxes(1, 2), values.swapaxes(1, 2))
        return self.dense(name + ".output", mixed.reshape(x.shape), x.shape[-1]), (keys, values)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        """One product for the inputs of all timesteps, then `lax.scan` over them."""
        to_input, to_hidden, bias = (self._weight(w) for w in initial.recurrent(name, x.shape[-1], hidden))
        zero = jnp.zeros((x.shape[0], hidden), dtype=x.dtype)

        def step(carry: Any, from_input: Array) -> Any:
            h, c = advance(jnp, jax.nn.sigmoid, "lstm", from_input, jnp.matmul(carry[0], to_hidden.T), *carry)
            return (h, c), h

        last, outputs = lax.scan(step, state or (zero, zero), jnp.matmul(x.swapaxes(0, 1), to_input.T) + bias)
        return outputs.swapaxes(0, 1), last

    relu = staticmethod(jax.nn.relu)
    relu6 = staticmethod(jax.nn.relu6)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        return jax.nn.gelu(x, approximate=approximate)

    tanh = staticmethod(jnp.tanh)

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        edges = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), edges)

    def global_mean(self, x: Array) -> Array:
        return jnp.mean(x, axis=(1, 2))

    def join(self, x: Array, y: Array) -> Array:
        return jnp.concatenate((x, y), axis=-1)

    join_channels = join

    def as_sequence(self, x: Array) -> Array:
        return x.reshape(x.shape[0], -1, x.shape[-1])

    def attend(self, queries: Array, memory: Array) -> Array:
        head = memory[:, :, None]
        return self._attention(queries[:, :, None], head, head, scale=1.0)[:, :, 0]

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        stacked = jnp.stack(vectors, axis=1)
        rows, columns = np.tril_indices(len(vectors), -1)
        return jnp.einsum("bnw,bmw->bnm", stacked, stacked)[:, rows, columns]

    def rows(self, x: Array) -> Array:
        return x.reshape(-1, x.shape[-1])


class _Collector(JaxLayers):
    """Collects the weights that a forward pass uses, while JAX traces its shapes."""

    def __init__(self, backend: Backend) -> None:
        super().__init__({}, {}, training=False)
        self.collected: Dict[str, initial.InitialWeight] = {}
        self._backend = backend
        self._dtype = jnp.dtype(backend.dtype)

    def _weight(self, weight: initial.InitialWeight) -> Array:
        shape = weight.shape
        if len(shape) == 4:
            shape = (*shape[2:], shape[1], shape[0])
        self.collected[weight.name] = weight
        zeros = jnp.zeros(shape, dtype=self._dtype)
        # For tied layers, which have no weights of their own.
        self._weights[weight.name] = zeros
        return zeros

    def _attention(self, q: Array, k: Array, v: Array, **options: Any) -> Array:
        # Without this, the error would come from XLA, when the model is compiled.
        if self._backend.device == "cpu" and self._backend.dtype == "float16":
            raise Unsupported("`jax.nn.dot_product_attention` does not support float16 on the CPU")
        return super()._attention(q, k, v, **options)

    def _running(self, name: str, width: int) -> Tuple[Array, Array]:
        wide = _wide(self._dtype)
        mean, variance = np.zeros(width, wide), np.ones(width, wide)
        self.statistics[name] = mean, variance
        return mean, variance


def build(backend: JaxBackend, network: Network, p: Parameters, mode: str, inputs: Sequence[Array]) -> BuiltModel:
    """Return a model; see :meth:`Backend.build_model`. The shapes of the inputs determine the shapes of the weights."""
    collector = _Collector(backend)
    jax.eval_shape(lambda *arrays: network.forward(collector, arrays, p, mode), *inputs)
    weights = {name: weight.make(backend) for name, weight in collector.collected.items()}
    # Weights and running statistics; in training, also moments and the number of steps. A step reuses their memory.
    state: List[Any] = [weights, jax.device_put(collector.statistics, backend.jax_device)]

    def forward(weights: Arrays, statistics: Arrays, p: Parameters, batch: Sequence[Array]) -> Tuple[Array, Arrays]:
        layers = JaxLayers(weights, statistics, mode == "training")
        return network.forward(layers, batch, p, mode), layers.statistics

    def loss(
        weights: Arrays, statistics: Arrays, p: Parameters, batch: Sequence[Array], labels: Array
    ) -> Tuple[Array, Arrays]:
        logits, statistics = forward(weights, statistics, p, batch)
        logs = jax.nn.log_softmax(logits.astype(_wide(logits.dtype)))
        return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1)), statistics

    def infer(p: Parameters, batch: Sequence[Array]) -> Callable[[], Any]:
        compute = jax.jit(lambda weights, statistics, *arrays: forward(weights, statistics, p, arrays)[0])
        return lambda: _ready(backend, compute(*state[:2], *batch))

    def train(p: Parameters, batch: Sequence[Array], labels: Array) -> ModelTraining:
        update = _UPDATES[network.optimiser]

        def compute(
            weights: Arrays, statistics: Arrays, moments: Arrays, steps: Array, labels: Array, *arrays: Array
        ) -> Tuple[Array, Arrays, Arrays, Arrays, Array]:
            differentiate = jax.value_and_grad(loss, has_aux=True)
            (value, statistics), gradients = differentiate(weights, statistics, p, arrays, labels)
            steps = steps + 1
            changed = {name: update(w, gradients[name], moments[name], steps) for name, w in weights.items()}
            weights, moments = ({name: pair[i] for name, pair in changed.items()} for i in (0, 1))
            return value, weights, statistics, moments, steps

        compiled = jax.jit(compute, donate_argnums=(0, 1, 2, 3))
        zeros = {name: (np.zeros(w.shape, w.dtype),) * _MOMENTS[network.optimiser] for name, w in weights.items()}
        state[2:] = jax.device_put([zeros, np.int32(0)], backend.jax_device)

        def step() -> Any:
            value, *changed = compiled(*state, labels, *batch)
            state[:] = changed
            _ready(backend, state)
            return value

        return ModelTraining(step)

    def gradient(p: Parameters, batch: Sequence[Array], labels: Array) -> Tuple[float, float]:
        def derive(weights: Arrays, statistics: Arrays, labels: Array, *arrays: Array) -> Tuple[Array, Array]:
            (value, _), gradients = jax.value_and_grad(loss, has_aux=True)(weights, statistics, p, arrays, labels)
            wide = _wide(value.dtype)
            return value, sum(jnp.sum(gradients[n].astype(wide) * w.astype(wide) ** 2) for n, w in weights.items())

        value, derivative = jax.jit(derive)(*state[:2], labels, *batch)
        return float(value), float(derivative)

    return BuiltModel(infer, train, gradient)


def _ready(backend: Backend, result: Any) -> Any:
    # On the CPU, calls may overlap: the last one can be ready before earlier ones are.
    return jax.block_until_ready(result) if backend.device == "cpu" else result


def _wide(dtype: Any) -> Any:
    """Return the element type for statistics and the loss: single precision or better."""
    return jnp.promote_types(dtype, jnp.float32)


def _sgd(w: Array, g: Array, moments: Tuple[Array], steps: Array) -> Tuple[Array, Tuple[Array]]:
    """Gradient descent with momentum."""
    momentum = _DECAY * moments[0] + g
    return w - 0.01 * momentum, (momentum,)


def _adamw(w: Array, g: Array, moments: Tuple[Array, Array], steps: Array) -> Tuple[Array, Tuple[Array, Array]]:
    """Adam with decoupled weight decay (arXiv 1711.05101)."""
    first, second = _DECAY * moments[0] + _RATE * g, 0.999 * moments[1] + 0.001 * g * g
    direction = first / (1 - _DECAY**steps) / (jnp.sqrt(second / (1 - 0.999**steps)) + 1e-8)
    return (w - 1e-5 * (direction + 0.01 * w)).astype(w.dtype), (first, second)


_UPDATES: Dict[str, Callable[..., Any]] = {"sgd": _sgd, "adamw": _adamw}
_MOMENTS = {"sgd": 1, "adamw": 2}
