"""Gradient of the summed squared differences of a 3-D array on the CPU (https://github.com/jax-ml/jax/issues/37465)."""

import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax import numpy as jnp

SIZE, CALLS = 256, 5


def roughness(volume: jax.Array) -> jax.Array:
    """Return the sum of the squared differences along all axes."""
    return sum(jnp.sum(jnp.diff(volume, axis=axis) ** 2) for axis in range(volume.ndim))


gradient = jax.jit(jax.grad(roughness))
volume = jax.random.normal(jax.random.key(0), (SIZE, SIZE, SIZE), dtype=jnp.float32)
gradient(volume).block_until_ready()

start = time.perf_counter()
for _ in range(CALLS):
    gradient(volume).block_until_ready()
print(f"seconds: {time.perf_counter() - start:.6f}")
