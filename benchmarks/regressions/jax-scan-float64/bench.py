"""Multiply 3 x 3 matrices of float64 with `lax.scan` on the CPU (https://github.com/jax-ml/jax/issues/36799)."""

import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax import lax
from jax import numpy as jnp

STEPS = 2_000_000

jax.config.update("jax_enable_x64", True)
angle = 1e-3
rotation = jnp.array(
    [[jnp.cos(angle), -jnp.sin(angle), 0.0], [jnp.sin(angle), jnp.cos(angle), 0.0], [0.0, 0.0, 1.0]], dtype=jnp.float64
)


@jax.jit
def rotate(matrix: jax.Array) -> jax.Array:
    """Return a matrix that is rotated many times."""
    return lax.scan(lambda carry, _: (rotation @ carry, None), matrix, None, length=STEPS)[0]


identity = jnp.eye(3, dtype=jnp.float64)
rotate(identity).block_until_ready()

start = time.perf_counter()
rotate(identity).block_until_ready()
print(f"seconds: {time.perf_counter() - start:.6f}")
