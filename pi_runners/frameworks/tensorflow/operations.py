"""TensorFlow on the CPU or a CUDA device: traced functions, XLA if the setting `xla` is on, native layout (NHWC)."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

from pi_runners.harness.contract import (
    LEARNING_RATE,
    Array,
    Arrays,
    Backend,
    Call,
    Function,
    Parameters,
    Training,
    Unsupported,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from pi_runners.frameworks.numpy.operations import from_bytes


class TensorflowBackend(Backend):
    """``tf.function`` over raw operations; inputs are arguments, so that constants are not folded."""

    name = "tensorflow"
    dtypes = ("float32", "float64", "float16", "bfloat16", "int8")
    channels_last = True

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        if device == "cuda" and not tf.config.list_physical_devices("GPU"):
            raise Unsupported("this TensorFlow sees no CUDA device")
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        _set_threads(settings)
        if "tf32" in settings:
            tf.config.experimental.enable_tensor_float_32_execution(settings["tf32"] == "on")

    def rewrite_graphs(self, enabled: bool) -> None:
        """Let TensorFlow rewrite graphs of functions for the setting `amp`, or not; it does so for the whole process.

        Raises:
            Unsupported: If TensorFlow does not rewrite to this type on the device.
        """
        amp = self.settings.get("amp", "off")
        if amp == "off":
            return
        if enabled and amp != ("float16" if self.device == "cuda" else "bfloat16"):
            raise Unsupported("TensorFlow rewrites graphs to float16 on CUDA devices and to bfloat16 on CPUs only")
        option = "auto_mixed_precision" if self.device == "cuda" else "auto_mixed_precision_onednn_bfloat16"
        tf.config.optimizer.set_experimental_options({option: enabled})

    def describe(self) -> Dict[str, Any]:
        """Return the versions, and those of CUDA and cuDNN that TensorFlow was built with."""
        build = tf.sysconfig.get_build_info()
        described: Dict[str, Any] = {
            "tensorflow": tf.__version__,
            "tensorflow_numpy": np.__version__,
            "tensorflow_cuda": build.get("cuda_version"),
            "tensorflow_cudnn": build.get("cudnn_version"),
            "tensorflow_threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "tensorflow_interop_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        }
        return described

    def synchronise(self, result: Any) -> None:
        tf.test.experimental.sync_devices()

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        return tf.constant(from_bytes(raw, shape, scale, offset, tf.as_dtype(self.dtype).as_numpy_dtype))

    def _in_layout(self, raw: bytes, shape: Sequence[int], scale: float, axes: Tuple[int, ...]) -> Array:
        plain = from_bytes(raw, shape, scale, 0.0, tf.as_dtype(self.dtype).as_numpy_dtype)
        return tf.constant(np.ascontiguousarray(plain.transpose(axes)))

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        return tf.constant(np.array(numbers, dtype=np.int32).reshape(tuple(shape)))

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        elements = result[tuple(index)]
        if not elements.dtype.is_complex and not elements.dtype.is_integer:
            elements = tf.cast(elements, tf.float64)
        return list(elements.numpy().reshape(-1).tolist())

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        elements = result[tuple(index)]
        if not elements.dtype.is_floating:
            return super().all_finite(result, index)
        return bool(tf.reduce_all(tf.math.is_finite(elements)))

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        jit_compile = True if self.settings.get("xla") == "on" else None
        traced: Callable[..., Any] = tf.function(function, jit_compile=jit_compile, autograph=False)
        return traced

    def compile(self, function: Function, arrays: Arrays, weights: Arrays = ()) -> Call:
        self.rewrite_graphs(True)
        compute = self.trace(lambda *tensors: function(self, *tensors))
        inputs = (*arrays, *weights)
        return lambda: compute(*inputs)

    def pullback(self, function: Function, arrays: Arrays, cotangent: Array) -> Call:
        """Trace the tape; TensorFlow prunes the forward pass where the gradients do not need it."""

        def gradients(upstream: Array, *inputs: Array) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                result = function(self, *inputs)
            return tape.gradient(result, inputs, output_gradients=upstream)

        self.rewrite_graphs(True)
        compute = self.trace(gradients)
        return lambda: compute(cotangent, *arrays)

    def train(self, loss: Function, weights: Arrays, batch: Arrays, rate: float = LEARNING_RATE) -> Training:
        variables = [tf.Variable(weight) for weight in weights]
        current_batch = list(batch)

        def step(*tensors: Array) -> Any:
            with tf.GradientTape() as tape:
                value = loss(self, variables, *tensors)
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(value, variables)]
            squared_norm = tf.add_n([tf.reduce_sum(tf.cast(g, tf.float32) ** 2) for g in gradients])
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(tf.cast(rate, gradient.dtype) * gradient)
            return value, squared_norm

        self.rewrite_graphs(True)
        compute = self.trace(step)

        def feed(fresh: Arrays) -> None:
            current_batch[:] = fresh

        def evaluator(function: Function, arrays: Arrays) -> Call:
            return self.compile(lambda backend, *inputs: function(backend, variables, *inputs), arrays)

        return Training(lambda: compute(*current_batch), feed, evaluator, lambda: variables)

    def load_batches(self, raw: bytes, shape: Sequence[int], batch: int, workers: int) -> Call:
        if workers:
            raise Unsupported("`tf.data` has no worker processes")
        images = np.frombuffer(raw, np.uint8).reshape(tuple(shape)).transpose(0, 2, 3, 1)

        def normalise(image: Array) -> Array:
            return (tf.cast(image, tf.float32) - 127.5) / 127.5

        dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(len(images))
        dataset = dataset.map(normalise, num_parallel_calls=tf.data.AUTOTUNE).batch(batch).prefetch(tf.data.AUTOTUNE)

        def run() -> Tuple[int, float]:
            number, total = 0, 0.0
            for loaded in dataset:
                number += len(loaded)
                total += float(tf.reduce_sum(loaded))
            return number, total

        return run

    def reference(self) -> Backend:
        """Use double precision: mixed precision is enabled for the whole process and rewrites float32 only."""
        return TensorflowBackend(self.device, "float64", {})

    def to_device(self, raw: bytes) -> Tuple[Call, Call]:
        if self.device != "cuda":
            raise Unsupported("there is no transfer on the CPU")
        with tf.device("CPU:0"):
            host = tf.constant(np.frombuffer(raw, np.uint8))
        with tf.device("GPU:0"):
            on_device = tf.identity(host)

        def upload() -> Any:
            with tf.device("GPU:0"):
                return tf.identity(host)

        def download() -> Any:
            with tf.device("CPU:0"):
                return tf.identity(on_device)

        return upload, download

    def matmul(self, a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        options = {"output_type": tf.int32} if self.dtype == "int8" else {}
        return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, **options)

    def convolution(self, x: Array, w: Array, stride: Sequence[int], padding: Sequence[int], groups: int = 1) -> Array:
        """`conv1d`, `conv2d`, `conv3d` or `depthwise_conv2d`; SAME if that pads by the same amounts."""
        kernel = [int(n) for n in w.shape[:-2]]
        same = all(s == 1 and n == 2 * p + 1 for s, p, n in zip(stride, padding, kernel))
        if not same and any(padding):
            # TensorFlow's SAME pads a strided convolution on one side only.
            x = tf.pad(x, [[0, 0]] + [[p, p] for p in padding] + [[0, 0]])
        mode = "SAME" if same else "VALID"
        if groups > 1:
            if len(kernel) != 2 or int(w.shape[-2]) != 1 or int(w.shape[-1]) != groups:
                raise Unsupported("TensorFlow has no grouped convolution on the CPU, only a depthwise one")
            depthwise_filters = tf.transpose(w, (0, 1, 3, 2))
            return tf.nn.depthwise_conv2d(x, depthwise_filters, strides=[1, *stride, 1], padding=mode)
        if len(kernel) == 1:
            return tf.nn.conv1d(x, w, stride=stride[0], padding=mode)
        convolve = tf.nn.conv2d if len(kernel) == 2 else tf.nn.conv3d
        return convolve(x, w, strides=[1, *stride, 1], padding=mode)

    def recurrent(self, cell: str, x: Array, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        """Keras layers: cuDNN on a GPU, a loop in the graph on the CPU."""
        kinds = {"vanilla": tf.keras.layers.SimpleRNN, "lstm": tf.keras.layers.LSTM, "gru": tf.keras.layers.GRU}
        inputs, hidden = shape
        # In a GRU of Keras, the update gate is the first.
        order = {"vanilla": [0], "lstm": [0, 1, 2, 3], "gru": [1, 0, 2]}[cell]
        layer = kinds[cell](
            hidden, use_bias=False, return_sequences=True, dtype=self.dtype, recurrent_initializer="zeros"
        )
        timesteps, batch = int(x.shape[0]), int(x.shape[1])
        layer.build((batch, timesteps, inputs))
        matrices = []
        for raw, width in zip(w, (inputs, hidden)):
            gates = from_bytes(raw, (len(order), hidden, width), scale)[order]
            matrices.append(np.ascontiguousarray(gates.reshape(-1, width).T))
        layer.set_weights(matrices)
        return lambda backend, steps: tf.transpose(layer(tf.transpose(steps, (1, 0, 2))), (1, 0, 2))

    gather = staticmethod(tf.gather)
    relu = staticmethod(tf.nn.relu)
    tanh = staticmethod(tf.tanh)
    total = staticmethod(partial(tf.reduce_sum, axis=-1))
    largest = staticmethod(partial(tf.reduce_max, axis=-1))
    softmax = staticmethod(tf.nn.softmax)

    def layer_norm(self, x: Array, gain: Array, offset: Array) -> Array:
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, gain, 1e-5)

    def batch_norm(self, x: Array, gain: Array, offset: Array, training: bool) -> Array:
        """Fused batch normalisation of NHWC images; through moments for other ranks and types."""
        if x.shape.rank == 4 and x.dtype == tf.float32:
            moments = {} if training else {"mean": tf.zeros_like(gain), "variance": tf.ones_like(gain)}
            outputs = tf.compat.v1.nn.fused_batch_norm(x, gain, offset, epsilon=1e-5, is_training=training, **moments)
            return outputs[0]
        if not training:
            return x * gain + offset
        mean, variance = tf.nn.moments(x, axes=list(range(x.shape.rank - 1)))
        return tf.nn.batch_normalization(x, mean, variance, offset, gain, 1e-5)

    fft = staticmethod(tf.signal.rfft)
    sort = staticmethod(partial(tf.sort, axis=-1))

    def pool(self, x: Array, size: int) -> Array:
        return tf.nn.max_pool(x, size, size, "VALID")

    def spatial_mean(self, x: Array) -> Array:
        return tf.reduce_mean(x, axis=list(range(1, x.shape.rank - 1)))

    def upsample(self, x: Array) -> Array:
        for axis in range(1, x.shape.rank - 1):
            x = tf.repeat(x, 2, axis=axis)
        return x

    def join_channels(self, x: Array, y: Array) -> Array:
        return tf.concat((x, y), axis=-1)

    join = join_channels

    reshape = staticmethod(tf.reshape)
    transpose = staticmethod(tf.transpose)

    def cross_entropy(self, logits: Array, labels: Array) -> Array:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def channels_to_rows(self, x: Array, channels: int) -> Array:
        return tf.reshape(x, (-1, channels))


def _set_threads(settings: Parameters) -> None:
    """Set the numbers of threads; one that TensorFlow uses already is not set again, which would be an error."""
    threads = settings.get("threads")
    for name, number in (("threads", threads), ("interop_threads", settings.get("interop_threads", threads))):
        pool = "inter_op" if name == "interop_threads" else "intra_op"
        get, change = (getattr(tf.config.threading, f"{verb}_{pool}_parallelism_threads") for verb in ("get", "set"))
        if number is not None and get() != number:
            change(number)
            if get() != number:
                raise Unsupported("`{}={}` has no effect: it is {}".format(name, number, get()))
