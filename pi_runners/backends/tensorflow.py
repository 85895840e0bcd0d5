"""TensorFlow on the CPU or a CUDA device: compiled functions without XLA, native layout (NHWC)."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Sequence, Tuple

from pi_runners.harness.contract import Backend, Call, Parameters, Unsupported
from pi_runners.indicators.training import LEARNING_RATE, weight_scales, weight_shapes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf


class TensorflowBackend(Backend):
    """``tf.function`` over raw operations; inputs are arguments, so that nothing is folded away."""

    name = "tensorflow"

    def __init__(self, device: str, dtype: str) -> None:
        super().__init__(device, dtype)
        if device == "cuda" and not tf.config.list_physical_devices("GPU"):
            raise Unsupported("this TensorFlow sees no CUDA device")
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")

    def describe(self) -> Dict[str, Any]:
        """Return the version and build facts."""
        build = tf.sysconfig.get_build_info()
        described: Dict[str, Any] = {
            "tensorflow": tf.__version__,
            "tensorflow_numpy": np.__version__,
            "tensorflow_cuda": build.get("cuda_version"),
            "tensorflow_cudnn": build.get("cudnn_version"),
        }
        return described

    def synchronise(self, result: Any) -> None:
        """Wait for every device."""
        tf.test.experimental.sync_devices()

    def _tensor(self, raw: bytes, shape: Tuple[int, ...], axes: Tuple[int, ...], scale: float = 1.0) -> Any:
        """Make a tensor from logical shape and the order of axes that TensorFlow wants."""
        plain = (np.frombuffer(raw, dtype=np.uint8).astype(np.float64) - 127.5) / 127.5 * scale
        return tf.cast(tf.constant(np.ascontiguousarray(plain.reshape(shape).transpose(axes))), self.dtype)

    def matmul(self, a: bytes, b: bytes, m: int, k: int, n: int) -> Call:
        """Multiply ``a`` (m, k) with ``b`` (k, n)."""
        left, right = self._tensor(a, (m, k), (0, 1)), self._tensor(b, (k, n), (0, 1))
        compute = tf.function(tf.linalg.matmul)
        return Call(lambda: compute(left, right), lambda result, index: float(result[index]))

    def conv2d(self, x: bytes, w: bytes, parameters: Parameters) -> Call:
        """Convolve in NHWC."""
        p = parameters
        images = self._tensor(x, (p["batch"], p["channels"], p["size"], p["size"]), (0, 2, 3, 1))
        filters = self._tensor(w, (p["filters"], p["channels"], p["kernel"], p["kernel"]), (2, 3, 1, 0))
        compute = tf.function(lambda i, f: tf.nn.conv2d(i, f, strides=1, padding="SAME"))
        return Call(lambda: compute(images, filters), lambda result, i: float(result[i[0], i[2], i[3], i[1]]))

    def training_step(self, images: bytes, labels: Sequence[int], weights: List[bytes], parameters: Parameters) -> Call:
        """One SGD step through a gradient tape."""
        p = parameters
        batch = self._tensor(images, (p["batch"], 3, p["size"], p["size"]), (0, 2, 3, 1))
        targets = tf.constant(list(labels))
        axes: List[Tuple[int, ...]] = [(2, 3, 1, 0), (2, 3, 1, 0), (1, 0)]
        first, second, dense = (
            tf.Variable(self._tensor(raw, shape, order, scale))
            for raw, shape, order, scale in zip(weights, weight_shapes(p), axes, weight_scales(p))
        )
        # Explicit margins: TensorFlow's SAME pads a strided convolution on one side only, PyTorch on both.
        margins = [[0, 0], [1, 1], [1, 1], [0, 0]]

        def step(inputs: Any, expected: Any) -> Any:
            with tf.GradientTape() as tape:
                hidden = tf.nn.relu(tf.nn.conv2d(inputs, first, strides=1, padding=margins))
                hidden = tf.nn.relu(tf.nn.conv2d(hidden, second, strides=2, padding=margins))
                logits = tf.linalg.matmul(tf.reduce_mean(hidden, axis=(1, 2)), dense)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=expected, logits=logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, (first, second, dense))
            squared_norm = tf.add_n([tf.reduce_sum(tf.cast(g, tf.float32) ** 2) for g in gradients])
            for weight, gradient in zip((first, second, dense), gradients):
                weight.assign_sub(LEARNING_RATE * gradient)
            return loss, squared_norm

        compute = tf.function(step)
        return Call(lambda: compute(batch, targets), lambda result, index: float(result[index[0]]))
