"""The models in JAX, as functions that are compiled with `jax.jit`, with Adam.

Setting: `amp` (`bfloat16`: weights in float32, computation in the other type, as the modules of Flax do it with
`dtype`); others are in the environment. `float16` does not run: `dot_product_attention` does not support it on a CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from benchmarks.reduced_precision.digits import CLASSES, LEARNING_RATE, SIDE, Array
from benchmarks.reduced_precision.experiment import read_arguments, run_training

WIDTH, HEADS = 64, 4
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp": {"first": (SIDE * SIDE, 128), "second": (128, 128), "head": (128, CLASSES)},
    "cnn": {"first": (3, 3, 1, 16), "second": (3, 3, 16, 16), "third": (3, 3, 16, 32), "head": (512, CLASSES)},
    "transformer": {
        "embedding": (SIDE, WIDTH),
        "positions": (SIDE, WIDTH),
        **{
            f"{name}{block}": shape
            for block in range(2)
            for name, shape in {
                "qkv": (WIDTH, 3 * WIDTH),
                "output": (WIDTH, WIDTH),
                "up": (WIDTH, 2 * WIDTH),
                "down": (2 * WIDTH, WIDTH),
            }.items()
        },
        "head": (WIDTH, CLASSES),
    },
}
"""Shapes of the weights; each has a bias of its last dimension, too."""


def initial(kind: str, seed: int) -> dict[str, Any]:
    """Return initial weights of variance 2 / inputs, and biases of zero."""
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in SHAPES[kind].items():
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        weights[name] = jnp.asarray(scale * generator.normal(size=shape), jnp.float32)
        weights[name + "_bias"] = jnp.zeros(shape[-1], jnp.float32)
    return weights


def forward(kind: str, dtype: str, weights: Mapping[str, Any], images: Any) -> Any:
    """Return the logits of images, computed in a type, as float32."""
    weights = {name: value.astype(dtype) for name, value in weights.items()}
    features = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer}[kind](weights, images.astype(dtype))
    return _dense(weights, "head", features).astype(jnp.float32)


def _dense(weights: Mapping[str, Any], name: str, inputs: Any) -> Any:
    return inputs @ weights[name] + weights[name + "_bias"]


def _mlp(weights: Mapping[str, Any], images: Any) -> Any:
    return jax.nn.relu(_dense(weights, "second", jax.nn.relu(_dense(weights, "first", images))))


def _cnn(weights: Mapping[str, Any], images: Any) -> Any:
    def convolve(name: str, maps: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        maps = jax.lax.conv_general_dilated(maps, weights[name], (1, 1), "SAME", dimension_numbers=layout)
        return jax.nn.relu(maps + weights[name + "_bias"])

    maps = convolve("second", convolve("first", images.reshape(-1, SIDE, SIDE, 1)))
    maps = convolve("third", maps.reshape(-1, SIDE // 2, 2, SIDE // 2, 2, 16).max(axis=(2, 4)))
    return maps.reshape(len(images), -1)


def _normalise(tokens: Any) -> Any:
    wide = tokens.astype(jnp.float32)
    wide = (wide - wide.mean(axis=-1, keepdims=True)) / jnp.sqrt(wide.var(axis=-1, keepdims=True) + 1e-6)
    return wide.astype(tokens.dtype)


def _transformer(weights: Mapping[str, Any], images: Any) -> Any:
    tokens = _dense(weights, "embedding", images.reshape(-1, SIDE, SIDE)) + weights["positions"]
    for block in range(2):
        qkv = _dense(weights, f"qkv{block}", _normalise(tokens)).reshape(-1, SIDE, 3, HEADS, WIDTH // HEADS)
        attended = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
        tokens += _dense(weights, f"output{block}", attended.reshape(-1, SIDE, WIDTH))
        hidden = jax.nn.relu(_dense(weights, f"up{block}", _normalise(tokens)))
        tokens += _dense(weights, f"down{block}", hidden)
    return _normalise(tokens).mean(axis=1)


def _loss(kind: str, dtype: str, weights: Mapping[str, Any], images: Any, classes: Any) -> Any:
    scores = jax.nn.log_softmax(forward(kind, dtype, weights, images))
    return -jnp.take_along_axis(scores, classes[:, None], axis=1).mean()


@functools.partial(jax.jit, static_argnames=("kind", "dtype"))
def fit(kind: str, dtype: str, weights: Mapping[str, Any], images: Any, classes: Any) -> Any:
    """Return the weights after one step of Adam for each batch (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1)."""
    gradient = jax.grad(_loss, argnums=2)
    zeros = jax.tree.map(jnp.zeros_like, weights)

    def step(state: Any, batch: Any) -> tuple[Any, None]:
        weights, first, second, number = state
        slope = gradient(kind, dtype, weights, *batch)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slope)
        rate = LEARNING_RATE * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
        weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return (weights, first, second, number + 1), None

    return jax.lax.scan(step, (weights, zeros, zeros, 1.0), (images, classes))[0][0]


class JaxFramework:
    """JAX under given settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._dtype = settings.get("amp", "float32")

    def train(self, kind: str, seed: int, images: Array, classes: Array) -> list[Array]:
        """Train with Adam; the order of the weights is that of their names."""
        weights = fit(kind, self._dtype, initial(kind, seed), images, classes)
        return [np.asarray(weights[name]) for name in sorted(weights)]

    def logits(self, kind: str, weights: Sequence[Array], images: Array) -> Array:
        """Evaluate in one batch."""
        by_name = dict(zip(sorted(initial(kind, 0)), weights, strict=True))
        result: Array = np.asarray(jax.jit(forward, static_argnums=(0, 1))(kind, self._dtype, by_name, images))
        return result


if __name__ == "__main__":
    arguments = read_arguments()
    run_training(JaxFramework(arguments.settings), arguments)
