"""A training step in JAX with a convolution and products of matrices: the program of the recorded trace."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: Any, x: Any, y: Any) -> Any:
    """Return the weights after a step of gradient descent, and the loss."""

    def loss(weights: Any) -> Any:
        hidden = jax.nn.relu(x @ weights[0]).reshape(8, 16, 8, 16)
        images = jax.lax.conv_general_dilated(
            hidden, weights[2], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.mean((images.reshape(8, -1) @ weights[1] - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return jax.tree.map(lambda a, b: a - 0.01 * b, weights, gradients), value


def main() -> None:
    """Make 60 steps."""
    generator = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return jnp.asarray(generator.standard_normal(shape), jnp.float32)

    weights, x, y = [array(256, 2048), array(512, 32), array(3, 3, 16, 16)], array(8, 256), array(8, 32)
    for _ in range(60):
        weights, value = step(weights, x, y)
    print(float(value))


if __name__ == "__main__":
    main()
