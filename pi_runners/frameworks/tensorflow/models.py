"""Whole models from Keras layers, trained with ``compile`` and ``train_on_batch``.

Keras 2 (up to TensorFlow 2.15) and Keras 3 compile the training step with XLA in different cases, if the setting
``xla`` is absent. Keras 2 (``jit_compile=None``) never does. Keras 3 (``jit_compile="auto"``) does if TensorFlow lists
a device other than CPUs and if all layers support XLA; on a machine without a GPU it does not. Keras 3.5 traces the
training step in every call of ``train_on_batch``; Keras 3.8 and newer trace it once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from pi_runners.frameworks.numpy.operations import from_bytes
from pi_runners.frameworks.tensorflow.keras_layers import (
    CachedAttention,
    PairwiseProducts,
    Positions,
    PrependedToken,
    Rows,
    TiedDense,
)
from pi_runners.frameworks.tensorflow.operations import TensorflowBackend
from pi_runners.harness.contract import Array, Backend, Parameters
from pi_runners.models import initial
from pi_runners.models.layers import BuiltModel, Filters, Layers, ModelTraining, Pair
from pi_runners.models.network import Network

_IMAGE_AXES = (0, 2, 3, 1)
"""Channels last."""
_FILTER_AXES = (2, 3, 1, 0)
"""Height, width, channels, filters."""
_OTHER_FILTER_AXES = (2, 3, 0, 1)
"""Height, width, filters, channels: transposed convolutions, and depthwise ones, whose filters are their channels."""


class KerasLayers(Layers):
    """Applies Keras layers to symbols of the functional API, and keeps them by name."""

    def __init__(self, dtype: str, policy: Any, training: bool) -> None:
        self._weight_dtype = dtype
        self._dtype = policy
        self.training = training
        self._named: Dict[str, Any] = {}

    def _apply(self, name: str, make: Callable[..., Any], weights: Sequence[Any], x: Any, **arguments: Any) -> Any:
        """Apply the layer of a name; if there is none, make it and set its weights in the order of Keras."""
        layer = self._named.get(name)
        if layer is not None:
            return layer(x, **arguments)
        layer = self._named[name] = make(dtype=self._dtype)
        # The first application creates the weights.
        y = layer(x, **arguments)
        layer.set_weights([np.reshape(value, w.shape) for value, w in zip(weights, layer.weights)])
        return y

    def _value(self, weight: initial.InitialWeight, axes: Optional[Tuple[int, ...]] = None) -> Any:
        dtype = tf.as_dtype(self._weight_dtype).as_numpy_dtype
        value = from_bytes(weight.raw, weight.shape, weight.scale, weight.offset, dtype)
        return value if axes is None else value.transpose(axes)

    def convolution(self, name: str, x: Array, filters: Filters) -> Array:
        """`Conv2D` or `DepthwiseConv2D`, after `ZeroPadding2D` if it is strided."""
        channels, (number, kernel, stride, groups, bias) = x.shape[-1], filters
        if filters.padding and stride > 1:
            # `same` pads a strided convolution on one side only.
            x = keras.layers.ZeroPadding2D(filters.padding, dtype=self._dtype)(x)
        mode = "same" if filters.padding and stride == 1 else "valid"
        depthwise = channels == groups == number
        weight, *biases = filters.weights(name, channels)
        values = [self._value(weight, _OTHER_FILTER_AXES if depthwise else _FILTER_AXES), *map(self._value, biases)]

        if depthwise:
            make = partial(keras.layers.DepthwiseConv2D, kernel, stride, mode, use_bias=bias)
        else:
            make = partial(keras.layers.Conv2D, number, kernel, stride, mode, groups=groups, use_bias=bias)
        return self._apply(name, make, values, x)

    def transposed_convolution(self, name: str, x: Array, filters: int) -> Array:
        weight = initial.filters(name, (filters, x.shape[-1], 2, 2))
        values = [self._value(weight, _OTHER_FILTER_AXES), self._value(initial.bias(name, filters))]
        return self._apply(name, partial(keras.layers.Conv2DTranspose, filters, 2, 2), values, x)

    def batch_norm(self, name: str, x: Array, gain: float = 1.0) -> Array:
        width = x.shape[-1]
        values = list(map(self._value, initial.norm(name, width, gain)))
        values += [np.zeros(width, values[0].dtype), np.ones(width, values[0].dtype)]
        return self._apply(name, partial(keras.layers.BatchNormalization, epsilon=1e-5), values, x)

    def dense(self, name: str, x: Array, width: int, bias: bool = True) -> Array:
        values = list(map(self._value, initial.dense(name, x.shape[-1], width, bias)))
        return self._apply(name, partial(keras.layers.Dense, width, use_bias=bias), values, x)

    def layer_norm(self, name: str, x: Array, epsilon: float = 1e-5) -> Array:
        values = list(map(self._value, initial.norm(name, x.shape[-1])))
        return self._apply(name, partial(keras.layers.LayerNormalization, epsilon=epsilon), values, x)

    def embedding(self, name: str, indices: Array, rows: int, width: int) -> Array:
        values = [self._value(initial.table(name, rows, width))]
        return self._apply(name, partial(keras.layers.Embedding, rows, width), values, indices)

    def tied_dense(self, name: str, x: Array) -> Array:
        """A layer that multiplies with the table of an `Embedding`."""
        return TiedDense(self._named[name], dtype=self._dtype)(x)

    def add_positions(self, name: str, x: Array, rows: int, start: int = 0) -> Array:
        values = [self._value(initial.table(name, rows, x.shape[-1]))]
        return self._apply(name, partial(Positions, rows), values, x, start=start)

    def prepend_token(self, name: str, x: Array) -> Array:
        return self._apply(name, PrependedToken, [self._value(initial.table(name, 1, x.shape[-1]))], x)

    def self_attention(self, name: str, x: Array, heads: int, causal: bool = False) -> Array:
        width = x.shape[-1]
        parts = [initial.dense(name + part, width, width) for part in (".query", ".key", ".value", ".output")]
        values = [self._value(weight) for part in parts for weight in part]
        make = partial(keras.layers.MultiHeadAttention, heads, width // heads)
        # Its arguments are the queries, the values and, by default the values, the keys.
        return self._apply(name, make, values, x, value=x, use_causal_mask=causal)

    def cached_attention(self, name: str, x: Array, heads: int, cache: Pair) -> Tuple[Array, Pair]:
        """A layer for the cache between `Dense` layers: `MultiHeadAttention` has none."""
        width = x.shape[-1]
        q, k, v = (self.dense(name + part, x, width) for part in (".query", ".key", ".value"))
        mixed, keys, values = CachedAttention(heads, dtype=self._dtype)([q, k, v, *cache])
        return self.dense(name + ".output", mixed, width), (keys, values)

    def lstm(self, name: str, x: Array, hidden: int, state: Optional[Pair] = None) -> Tuple[Array, Pair]:
        matrix, recurrent, bias = (self._value(w) for w in initial.recurrent(name, x.shape[-1], hidden))
        options = {"unit_forget_bias": False, "return_sequences": True, "return_state": True}
        # The usual initialiser of the recurrent weights, a QR decomposition, has no bfloat16.
        make = partial(keras.layers.LSTM, hidden, recurrent_initializer="zeros", **options)
        arguments = {} if state is None else {"initial_state": list(state)}
        outputs, h, c = self._apply(name, make, [matrix.T, recurrent.T, bias], x, **arguments)
        return outputs, (h, c)

    def relu(self, x: Array) -> Array:
        return keras.layers.ReLU(dtype=self._dtype)(x)

    def relu6(self, x: Array) -> Array:
        return keras.layers.ReLU(6.0, dtype=self._dtype)(x)

    def gelu(self, x: Array, approximate: bool = False) -> Array:
        activation = _approximate_gelu if approximate else "gelu"
        return keras.layers.Activation(activation, dtype=self._dtype)(x)

    def tanh(self, x: Array) -> Array:
        return keras.layers.Activation("tanh", dtype=self._dtype)(x)

    def add(self, x: Array, y: Array) -> Array:
        return keras.layers.Add(dtype=self._dtype)([x, y])

    def max_pool(self, x: Array, kernel: int, stride: int, padding: int = 0) -> Array:
        """`MaxPooling2D`, after `ZeroPadding2D`, as in `keras.applications`: it is used for positive inputs only."""
        if padding:
            x = keras.layers.ZeroPadding2D(padding, dtype=self._dtype)(x)
        return keras.layers.MaxPooling2D(kernel, stride, dtype=self._dtype)(x)

    def global_mean(self, x: Array) -> Array:
        return keras.layers.GlobalAveragePooling2D(dtype=self._dtype)(x)

    def join(self, x: Array, y: Array) -> Array:
        return keras.layers.Concatenate(dtype=self._dtype)([x, y])

    join_channels = join

    def as_sequence(self, x: Array) -> Array:
        return keras.layers.Reshape((-1, x.shape[-1]), dtype=self._dtype)(x)

    def attend(self, queries: Array, memory: Array) -> Array:
        return keras.layers.Attention(dtype=self._dtype)([queries, memory])

    def pairwise_products(self, vectors: Sequence[Array]) -> Array:
        return PairwiseProducts(dtype=self._dtype)(list(vectors))

    def rows(self, x: Array) -> Array:
        """A layer; in training nothing, because labels have the axes of the logits there."""
        return x if self.training else Rows(dtype=self._dtype)(x)


def _approximate_gelu(x: Array) -> Array:
    return keras.activations.gelu(x, approximate=True)


class _KerasModel:
    """A `keras.Model` for each size, all with the same layers."""

    def __init__(self, backend: Backend, network: Network, mode: str) -> None:
        self._definition = network, mode
        self._dtype = backend.dtype
        amp = backend.settings.get("amp", "off")
        self._is_mixed = amp != "off"
        # A string would do in Keras 3, but Keras 2 accepts only element types as such.
        policy = keras.mixed_precision.Policy("mixed_" + amp) if self._is_mixed else backend.dtype
        self._layers = KerasLayers(backend.dtype, policy, mode == "training")
        self._models: Dict[Tuple[Tuple[str, Any], ...], Any] = {}

    def sized(self, p: Parameters) -> Any:
        """Return the model for inputs with these parameters."""
        key = tuple(sorted(p.items()))
        if key not in self._models:
            network, mode = self._definition
            symbols = []
            for spec in network.inputs(p, mode):
                shape = [spec.shape[axis] for axis in _IMAGE_AXES] if spec.kind == "images" else spec.shape
                dtype = "int32" if spec.kind == "indices" else self._dtype
                symbols.append(keras.Input(shape=tuple(shape[1:]), dtype=dtype))
            logits = network.forward(self._layers, symbols, p, mode)
            if self._is_mixed:
                # As https://www.tensorflow.org/guide/mixed_precision: the outputs have float32.
                logits = keras.layers.Activation("linear", dtype="float32")(logits)
            self._models[key] = keras.Model(symbols, logits)
        return self._models[key]


def build(
    backend: TensorflowBackend, network: Network, p: Parameters, mode: str, inputs: Sequence[Array]
) -> BuiltModel:
    """Return a model; see :meth:`Backend.build_model`. Layers are created from shapes alone."""
    # Keras has its own mixed precision.
    backend.rewrite_graphs(False)
    models = _KerasModel(backend, network, mode)

    def infer(p: Parameters, batch: Sequence[Array]) -> Callable[[], Any]:
        model = models.sized(p)
        compute = backend.trace(lambda *arrays: model(_pack(arrays), training=False))
        return lambda: compute(*batch)

    def train(p: Parameters, batch: Sequence[Array], labels: Array) -> ModelTraining:
        model = models.sized(p)
        if network.optimiser == "adamw":
            optimiser = keras.optimizers.AdamW(1e-5, weight_decay=0.01)
        else:
            optimiser = keras.optimizers.SGD(0.01, momentum=0.9)
        xla = backend.settings.get("xla", "auto")
        options = {} if xla == "auto" else {"jit_compile": xla == "on"}
        model.compile(optimizer=optimiser, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
        # With its variables made here and not by the first step, TensorFlow traces the step once instead of twice.
        optimiser.build(model.trainable_variables)
        packed, shaped = _pack(batch), _shape_labels(model, labels)

        def step() -> Any:
            # Some versions of Keras 3, such as 3.12, return the mean loss of all steps since the last reset.
            model.reset_metrics()
            return model.train_on_batch(packed, shaped)

        return ModelTraining(step)

    def gradient(p: Parameters, batch: Sequence[Array], labels: Array) -> Tuple[float, float]:
        model = models.sized(p)
        weights = model.trainable_variables
        shaped = _shape_labels(model, labels)

        def differentiate(*arrays: Array) -> Any:
            with tf.GradientTape() as tape:
                logits = model(_pack(arrays), training=True)
                precise = logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=shaped, logits=precise)
                loss = tf.reduce_mean(losses)
            sums = [
                tf.reduce_sum(tf.cast(g, tf.float64) * tf.cast(w, tf.float64) ** 2)
                for g, w in zip(tape.gradient(loss, weights), weights)
                if g is not None
            ]
            return loss, tf.add_n(sums)

        loss, derivative = backend.trace(differentiate)(*batch)
        return float(loss), float(derivative)

    return BuiltModel(infer, train, gradient)


def _pack(arrays: Sequence[Array]) -> Any:
    """Return the argument of a model: one array, or a list of several."""
    return arrays[0] if len(arrays) == 1 else list(arrays)


def _shape_labels(model: Any, labels: Array) -> Array:
    """Return labels with the axes of the logits of a training."""
    return tf.reshape(labels, [-1, *model.output_shape[1:-1]])
