"""The models in Keras on TensorFlow, in the usual way: layers in float32, with Adam.

Settings: `amp` (`bfloat16` or `float16`, as Keras's policies `mixed_bfloat16` and `mixed_float16`) and `xla`; others
are in the environment. Without `xla`, `jit_compile` is off, which is Keras's default on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers

from benchmarks.reduced_precision.digits import CLASSES, LEARNING_RATE, SIDE, Array
from benchmarks.reduced_precision.experiment import read_arguments, run_training

WIDTH = 64


class Positions(layers.Layer):
    """Adds a trained vector to each token."""

    def build(self, shape: Any) -> None:
        """Make the vectors."""
        self.vectors = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, tokens: Any) -> Any:
        """Return the sum."""
        return tokens + self.vectors


def build(kind: str) -> Any:
    """Return a model with random weights; its last layer is in float32, as Keras's guide demands."""
    inputs = keras.Input((SIDE * SIDE,))
    features = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}[kind](inputs)
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(features))


def _mlp(inputs: Any) -> Any:
    return layers.Dense(128, activation="relu")(layers.Dense(128, activation="relu")(inputs))


def _cnn(inputs: Any) -> Any:
    maps = layers.Reshape((SIDE, SIDE, 1))(inputs)
    maps = layers.Conv2D(16, 3, padding="same", activation="relu")(maps)
    maps = layers.Conv2D(16, 3, padding="same", activation="relu")(maps)
    maps = layers.MaxPooling2D(2)(maps)
    return layers.Flatten()(layers.Conv2D(32, 3, padding="same", activation="relu")(maps))


def _transformer(inputs: Any) -> Any:
    rows = layers.Reshape((SIDE, SIDE))(inputs)
    tokens = Positions()(layers.Dense(WIDTH)(rows))
    for _ in range(2):
        normal = layers.LayerNormalization()(tokens)
        tokens = layers.Add()([tokens, layers.MultiHeadAttention(4, WIDTH // 4)(normal, normal)])
        hidden = layers.Dense(2 * WIDTH, activation="relu")(layers.LayerNormalization()(tokens))
        tokens = layers.Add()([tokens, layers.Dense(WIDTH)(hidden)])
    return layers.GlobalAveragePooling1D()(layers.LayerNormalization()(tokens))


class KerasFramework:
    """Keras on TensorFlow under given settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if "amp" in settings:
            keras.mixed_precision.set_global_policy("mixed_" + settings["amp"])
        self._xla = settings.get("xla") == "on"
        self._models: dict[str, tuple[Any, list[Array]]] = {}

    def _compiled(self, kind: str) -> tuple[Any, list[Array]]:
        """Return the model of a kind, which is compiled once, and the initial variables of its optimiser."""
        if kind not in self._models:
            model = build(kind)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(LEARNING_RATE), loss, jit_compile=self._xla)
            model.optimizer.build(model.trainable_variables)
            self._models[kind] = model, [variable.numpy() for variable in model.optimizer.variables]
        return self._models[kind]

    def train(self, kind: str, seed: int, images: Array, classes: Array) -> list[Array]:
        """Train with Adam; the policy of float16 scales the loss."""
        model, variables = self._compiled(kind)
        keras.utils.set_random_seed(seed)
        model.set_weights(build(kind).get_weights())
        for variable, value in zip(model.optimizer.variables, variables, strict=True):
            variable.assign(value)
        flat = images.reshape(-1, SIDE * SIDE)
        model.fit(flat, classes.reshape(-1), batch_size=images.shape[1], shuffle=False, verbose=0)
        return [np.asarray(weights) for weights in model.get_weights()]

    def logits(self, kind: str, weights: Sequence[Array], images: Array) -> Array:
        """Evaluate in one batch."""
        model, _ = self._compiled(kind)
        model.set_weights(list(weights))
        result: Array = model.predict(images, batch_size=len(images), verbose=0)
        return result


if __name__ == "__main__":
    arguments = read_arguments()
    run_training(KerasFramework(arguments.settings), arguments)
