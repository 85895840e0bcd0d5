"""Layers that Keras does not have, written as its users write them."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from pi_runners.harness.contract import Array


class TiedDense(keras.layers.Layer):
    """Product with the transposed table of an embedding."""

    def __init__(self, embedding: Any, **options: Any) -> None:
        super().__init__(**options)
        self._embedding = embedding

    def call(self, x: Array) -> Array:
        """Multiply two matrices: TensorFlow is slower for a batch of matrices with one."""
        table = tf.convert_to_tensor(self._embedding.embeddings)
        y = tf.matmul(tf.reshape(x, (-1, table.shape[1])), table, transpose_b=True)
        return tf.reshape(y, (-1, *x.shape[1:-1], table.shape[0]))


class Positions(keras.layers.Layer):
    """Adds the rows of a table to a sequence."""

    def __init__(self, rows: int, **options: Any) -> None:
        super().__init__(**options)
        self._rows = rows

    def build(self, shape: Any) -> None:
        self._table = self.add_weight(name="table", shape=(self._rows, shape[-1]))
        super().build(shape)

    def call(self, x: Array, start: int = 0) -> Array:
        return x + tf.convert_to_tensor(self._table)[start : start + x.shape[1]]


class PrependedToken(keras.layers.Layer):
    """Puts one vector before a sequence."""

    def build(self, shape: Any) -> None:
        self._token = self.add_weight(name="token", shape=(1, 1, shape[-1]))
        super().build(shape)

    def call(self, x: Array) -> Array:
        token = tf.convert_to_tensor(self._token)
        return tf.concat([tf.tile(token, [tf.shape(x)[0], 1, 1]), x], axis=1)


class CachedAttention(keras.layers.Layer):
    """Scaled dot-product attention of a new token to earlier ones and to itself."""

    def __init__(self, heads: int, **options: Any) -> None:
        super().__init__(**options)
        self._heads = heads

    def call(self, inputs: Sequence[Array]) -> Tuple[Array, Array, Array]:
        width = inputs[0].shape[-1]
        q, k, v = (
            tf.transpose(tf.reshape(x, (-1, x.shape[1], self._heads, width // self._heads)), (0, 2, 1, 3))
            for x in inputs[:3]
        )
        keys, values = tf.concat([inputs[3], k], axis=2), tf.concat([inputs[4], v], axis=2)
        scores = tf.matmul(q * (width // self._heads) ** -0.5, keys, transpose_b=True)
        mixed = tf.matmul(tf.nn.softmax(scores), values)
        return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (-1, inputs[0].shape[1], width)), keys, values


class PairwiseProducts(keras.layers.Layer):
    """Dot products of all pairs of vectors."""

    def call(self, vectors: Sequence[Array]) -> Array:
        stacked, number = tf.stack(vectors, axis=1), len(vectors)
        products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), (-1, number * number))
        return tf.gather(products, np.ravel_multi_index(np.tril_indices(number, -1), (number, number)), axis=1)


class Rows(keras.layers.Layer):
    """Joins all axes but the last."""

    def call(self, x: Array) -> Array:
        return tf.reshape(x, (-1, x.shape[-1]))
