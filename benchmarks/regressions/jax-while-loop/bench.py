"""Count with `lax.while_loop` on the CPU (https://github.com/jax-ml/jax/issues/25190)."""

import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax import lax
from jax import numpy as jnp

STEPS = 2**22

numbers = jnp.arange(STEPS)


@jax.jit
def count(limit: jax.Array) -> jax.Array:
    """Return the number of steps until the largest number reaches a limit."""

    def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        largest, place = state
        return jnp.maximum(largest, numbers[place]), place + 1

    return lax.while_loop(lambda state: state[0] < limit, body, (jnp.int32(0), jnp.int32(0)))[1]


limit = jnp.max(numbers)
count(limit).block_until_ready()

start = time.perf_counter()
assert int(count(limit)) == STEPS
print(f"seconds: {time.perf_counter() - start:.6f}")
