"""JAX on the CPU or a CUDA device: every function is compiled with `jit`; channels last."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Dict, List, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pi_runners.frameworks.numpy.operations import from_bytes
from pi_runners.harness.contract import (
    GATES,
    LEARNING_RATE,
    Array,
    Arrays,
    Backend,
    Call,
    Function,
    Parameters,
    Training,
    Unsupported,
    advance,
)
from pi_runners.harness.settings import error_output


class JaxBackend(Backend):
    """``jax.jit`` over ``jax.numpy`` and ``jax.lax``; inputs are arguments, so that XLA does not fold constants."""

    name = "jax"
    dtypes = ("float32", "float64", "float16", "bfloat16", "int8")
    channels_last = True
    imports = ("jax", "jax.numpy")

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        jax.config.update("jax_enable_x64", dtype == "float64")
        if "tf32" in settings:
            precision = "tensorfloat32" if settings["tf32"] == "on" else "highest"
            jax.config.update("jax_default_matmul_precision", precision)
        try:
            self.jax_device = jax.devices("cuda" if device == "cuda" else "cpu")[0]
        except RuntimeError:
            raise Unsupported("this JAX sees no {} device".format(device)) from None
        _refuse_ignored_flags()

    def describe(self) -> Dict[str, Any]:
        """Return the versions of JAX, jaxlib and NumPy, and XLA's version of the platform."""
        import jaxlib

        return {
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "jax_numpy": np.__version__,
            "jax_platform_version": str(getattr(self.jax_device.client, "platform_version", ""))[:200],
        }

    def synchronise(self, result: Any) -> None:
        jax.block_until_ready(result)

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        return self._put(from_bytes(raw, shape, scale, offset, jnp.dtype(self.dtype)), self.dtype)

    def _in_layout(self, raw: bytes, shape: Sequence[int], scale: float, axes: Tuple[int, ...]) -> Array:
        numbers = from_bytes(raw, shape, scale, 0.0, jnp.dtype(self.dtype))
        return self._put(np.ascontiguousarray(numbers.transpose(axes)), self.dtype)

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        return self._put(np.array(numbers, dtype=np.int32).reshape(tuple(shape)), "int32")

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        elements = np.asarray(result)[tuple(index)]
        if not np.iscomplexobj(elements) and elements.dtype.kind != "i":
            elements = elements.astype(np.float64)
        return list(np.asarray(elements).reshape(-1).tolist())

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        return bool(jnp.isfinite(result[tuple(index)]).all())

    def _put(self, host_array: Any, dtype: str) -> Array:
        with jax.default_device(self.jax_device):
            return jax.device_put(jnp.asarray(host_array, dtype=dtype), self.jax_device)

    def _call(self, function: Function, arrays: Arrays) -> Call:
        compute = jax.jit(function)
        if self.device == "cuda":
            return lambda: compute(*arrays)
        # On the CPU, calls may overlap: the last one can be ready before earlier ones are.
        return lambda: jax.block_until_ready(compute(*arrays))

    def compile(self, function: Function, arrays: Arrays, weights: Arrays = ()) -> Call:
        return self._call(lambda *inputs: function(self, *inputs), (*arrays, *weights))

    def run_eagerly(self, function: Function, arrays: Arrays) -> Call:
        """Wait for the result on the CPU, as compiled calls do."""
        if self.device == "cuda":
            return super().run_eagerly(function, arrays)
        return lambda: jax.block_until_ready(function(self, *arrays))

    def pullback(self, function: Function, arrays: Arrays, cotangent: Array) -> Call:
        """Compile the vector-Jacobian product; XLA drops the forward pass where the gradients do not need it."""

        def gradients(upstream: Array, *inputs: Array) -> Any:
            return jax.vjp(lambda *primals: function(self, *primals), *inputs)[1](upstream)

        return self._call(gradients, (cotangent, *arrays))

    def train(self, loss: Function, weights: Arrays, batch: Arrays, rate: float = LEARNING_RATE) -> Training:
        """Train by a compiled step that returns the new weights."""
        state: Dict[str, Any] = {"weights": list(weights), "batch": list(batch)}

        def step(weights: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(lambda w: loss(self, w, *batch))(weights)
            squared_norm = sum(jnp.sum(g.astype(jnp.float32) ** 2) for g in gradients)
            return value, squared_norm, [w - (rate * g).astype(w.dtype) for w, g in zip(weights, gradients)]

        compute = jax.jit(step)

        def run() -> Any:
            value, squared_norm, state["weights"] = compute(state["weights"], state["batch"])
            if self.device == "cpu":
                jax.block_until_ready(state["weights"])
            return value, squared_norm

        def feed(fresh: Arrays) -> None:
            state["batch"] = list(fresh)

        def evaluator(function: Function, arrays: Arrays) -> Call:
            evaluate = jax.jit(lambda weights, *inputs: function(self, weights, *inputs))
            return lambda: jax.block_until_ready(evaluate(state["weights"], *arrays))

        return Training(run, feed, evaluator, lambda: state["weights"])

    def to_device(self, raw: bytes) -> Tuple[Call, Call]:
        if self.device != "cuda":
            raise Unsupported("there is no transfer on the CPU")
        host = np.frombuffer(raw, np.uint8)
        on_device = jax.device_put(host, self.jax_device)

        def download() -> Any:
            # A JAX array caches its host copy: copy a fresh array each time.
            return np.asarray(jax.device_put(on_device, self.jax_device, may_alias=False))

        return lambda: jax.device_put(host, self.jax_device), download

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """`jnp.matmul`; int8 accumulates in int32."""
        lhs = jnp.swapaxes(a, -1, -2) if transpose_a else a
        rhs = jnp.swapaxes(b, -1, -2) if transpose_b else b
        if self.dtype == "int8":
            return jnp.matmul(lhs, rhs, preferred_element_type=jnp.int32)
        return jnp.matmul(lhs, rhs)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        layouts = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}
        return lax.conv_general_dilated(
            x,
            w,
            window_strides=tuple(stride),
            padding=[(p, p) for p in padding],
            dimension_numbers=layouts[len(stride)],
            feature_group_count=groups,
        )

    def recurrent(self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        """One product for the inputs of all timesteps, then `lax.scan` over them."""
        inputs, hidden = shape
        gates = GATES[cell]
        to_input = self.array(w[0], (gates * hidden, inputs), scale)
        to_hidden = self.array(w[1], (gates * hidden, hidden), scale)

        def run(backend: Backend, steps: Array) -> Array:
            zero = jnp.zeros((steps.shape[1], hidden), dtype=steps.dtype)

            def step(carry: Any, from_input: Array) -> Any:
                state, memory = carry
                from_state = jnp.matmul(state, to_hidden.T)
                state, memory = advance(jnp, jax.nn.sigmoid, cell, from_input, from_state, state, memory)
                return (state, memory), state

            return lax.scan(step, (zero, zero), jnp.matmul(steps, to_input.T))[1]

        return run

    copy = staticmethod(jnp.copy)

    gather = staticmethod(partial(jnp.take, axis=0))
    relu = staticmethod(jax.nn.relu)
    tanh = staticmethod(jnp.tanh)
    total = staticmethod(partial(jnp.sum, axis=-1))
    largest = staticmethod(partial(jnp.max, axis=-1))
    softmax = staticmethod(jax.nn.softmax)

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred * lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * gain + offset

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        if not training:
            return x * gain + offset
        axes = tuple(range(x.ndim - 1))
        centred = x - x.mean(axis=axes)
        return centred * lax.rsqrt((centred * centred).mean(axis=axes) + 1e-5) * gain + offset

    fft = staticmethod(jnp.fft.rfft)
    sort = staticmethod(partial(jnp.sort, axis=-1))

    def pool(self, x: Array, size: int) -> Array:
        window = (1,) + (size,) * (x.ndim - 2) + (1,)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def spatial_mean(self, x: Array) -> Array:
        return x.mean(axis=tuple(range(1, x.ndim - 1)))

    def upsample(self, x: Array) -> Array:
        for axis in range(1, x.ndim - 1):
            x = jnp.repeat(x, 2, axis=axis)
        return x

    def join_channels(self, x: Array, y: Array) -> Array:
        return jnp.concatenate((x, y), axis=-1)

    join = join_channels

    reshape = staticmethod(jnp.reshape)
    transpose = staticmethod(jnp.transpose)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        log_likelihoods = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(log_likelihoods)

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        return jnp.reshape(x, (-1, channels))


def _refuse_ignored_flags() -> None:
    """Refuse flags of XLA that it ignores: it says so when it reads them, for the first compilation."""
    jax.jit(lambda x: x + 1)(1.0)
    for flag in os.environ.get("XLA_FLAGS", "").split():
        name = flag.lstrip("-").partition("=")[0]
        for line in error_output().splitlines():
            if name in line and "no longer supported" in line:
                raise Unsupported("XLA ignores `{}`: it is no longer supported".format(flag))
