"""Sample the posterior of a linear regression with NUTS (https://github.com/blackjax-devs/blackjax/issues/746)."""

import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import blackjax
import jax
from jax import numpy as jnp
from jax.scipy import stats

SAMPLES, OBSERVATIONS = 20_000, 1_000

key = jax.random.key(0)
predictor = jax.random.normal(key, (OBSERVATIONS,))
response = 3 * predictor + jax.random.normal(jax.random.fold_in(key, 1), (OBSERVATIONS,))


def log_density(position: dict[str, jax.Array]) -> jax.Array:
    """Return the logarithm of the posterior density."""
    scale = jnp.exp(position["log_scale"])
    residuals = stats.norm.logpdf(response, position["slope"] * predictor, scale)
    return stats.norm.logpdf(position["slope"]) + stats.norm.logpdf(position["log_scale"]) + jnp.sum(residuals)


sampler = blackjax.nuts(log_density, step_size=0.02, inverse_mass_matrix=jnp.ones(2))
first = sampler.init({"slope": jnp.array(3.0), "log_scale": jnp.array(0.0)})


@jax.jit
def sample(seed: jax.Array) -> jax.Array:
    """Return samples of the slope."""

    def step(state: object, own: jax.Array) -> tuple[object, jax.Array]:
        state, _ = sampler.step(own, state)
        return state, state.position["slope"]

    return jax.lax.scan(step, first, jax.random.split(seed, SAMPLES))[1]


# The chain moves: the posterior deviation of the slope is about 1 / sqrt(OBSERVATIONS).
assert float(jnp.std(sample(key))) > 0.01

start = time.perf_counter()
sample(key).block_until_ready()
print(f"seconds: {time.perf_counter() - start:.6f}")
