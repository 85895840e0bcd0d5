"""ONNX Runtime on the CPU or a CUDA device: graphs of ONNX operators, optimised when the session is created."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import onnxruntime as ort

from pi_runners.frameworks.numpy.operations import from_bytes
from pi_runners.frameworks.onnxruntime.onnx_format import Graph, Symbol
from pi_runners.harness.contract import Array, Arrays, Backend, Call, Function, Parameters, Unsupported

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES = {"sequential": ort.ExecutionMode.ORT_SEQUENTIAL, "parallel": ort.ExecutionMode.ORT_PARALLEL}
_ENTRIES = {"spinning": "session.intra_op.allow_spinning", "flush_denormal": "session.set_denormal_as_zero"}
"""Keys in the configuration of a session (`onnxruntime_session_options_config_keys.h`)."""


def _operator(name: str, **attributes: Any) -> Callable[..., Any]:
    """Return the method for an operator whose result has the shape of its first input, up to the lengths."""
    return lambda backend, *inputs: backend._node(name, inputs, **attributes)


class OnnxruntimeBackend(Backend):
    """Functions are traced into graphs: arrays become inputs, weights constants. There is no backward pass."""

    name = "onnxruntime"
    dtypes = ("float32", "float64", "float16", "int8")

    def __init__(self, device: str, dtype: str, settings: Parameters) -> None:
        super().__init__(device, dtype, settings)
        self._providers = [_PROVIDERS[settings.get("execution_provider", device)]]
        if self._providers[0] not in ort.get_available_providers():
            raise Unsupported("this ONNX Runtime has no {}".format(self._providers[0]))
        if "interop_threads" in settings and settings.get("execution_mode") != "parallel":
            raise Unsupported("`interop_threads` has no effect without `execution_mode=parallel`")
        ort.set_default_logger_severity(3)
        # The last axis of the result of `DFT` holds the real and the imaginary part.
        self._pairs = False
        self._session: Any = None

    def describe(self) -> Dict[str, Any]:
        return {
            "onnxruntime": ort.__version__,
            "onnxruntime_numpy": np.__version__,
            "onnxruntime_providers": ",".join(ort.get_available_providers()),
        }

    def array(self, raw: bytes, shape: Sequence[int], scale: float = 1.0, offset: float = 0.0) -> Array:
        """Make a NumPy array, the input type of sessions."""
        return from_bytes(raw, shape, scale, offset, self.dtype)

    def integers(self, numbers: Sequence[int], shape: Sequence[int]) -> Array:
        return np.array(numbers, dtype=np.int64).reshape(tuple(shape))

    def compile(self, function: Function, arrays: Arrays, weights: Arrays = ()) -> Call:
        graph = Graph()
        symbols = [Symbol(graph, graph.add_input(str(a.dtype), a.shape), str(a.dtype), a.ndim) for a in arrays]
        result = function(self, *symbols, *(self._symbol(graph, w) for w in weights))
        return self.start(result, {symbol.name: array for symbol, array in zip(symbols, arrays)})

    def start(self, output: Symbol, inputs: Dict[str, Array]) -> Call:
        """Create a session for the graph of a symbol, and return a call that computes the symbol."""
        try:
            session = ort.InferenceSession(output.graph.encode(output), self._options(), providers=self._providers)
        except Exception as error:
            # ONNX Runtime raises its own `NotImplemented` for an operator without a kernel.
            if type(error).__name__ == "NotImplemented":
                raise Unsupported(str(error).strip().splitlines()[-1][-300:]) from None
            raise
        # A provider that cannot start is replaced without an error.
        if session.get_providers()[0] != self._providers[0]:
            raise Unsupported("{} cannot be used on this machine".format(self._providers[0]))
        self._session = session
        return lambda: session.run(None, inputs)[0]

    def _options(self) -> Any:
        """Return the options of a session that apply the settings."""
        settings, options = self.settings, ort.SessionOptions()
        if "threads" in settings:
            options.intra_op_num_threads = settings["threads"]
        if "interop_threads" in settings:
            options.inter_op_num_threads = settings["interop_threads"]
        if "graph_optimisation" in settings:
            options.graph_optimization_level = _LEVELS[settings["graph_optimisation"]]
        if "execution_mode" in settings:
            options.execution_mode = _MODES[settings["execution_mode"]]
        for name, entry in _ENTRIES.items():
            if name in settings:
                options.add_session_config_entry(entry, "1" if settings[name] == "on" else "0")
        return options

    def confirm_settings(self) -> Dict[str, Any]:
        """Return the options of the last session, which it reports itself; nothing if there was none."""
        if self._session is None:
            return {}
        options = self._session.get_session_options()
        mode = self.settings.get("execution_mode")
        if mode is not None and options.execution_mode != _MODES[mode]:
            # With one inter-op thread, ONNX Runtime executes operators one after the other.
            raise Unsupported("`execution_mode={}` has no effect: it is {}".format(mode, options.execution_mode.name))
        described = {
            "onnxruntime_provider": self._session.get_providers()[0],
            "onnxruntime_threads": options.intra_op_num_threads,
            "onnxruntime_interop_threads": options.inter_op_num_threads,
            "onnxruntime_graph_optimisation": options.graph_optimization_level.name,
            "onnxruntime_execution_mode": options.execution_mode.name,
        }
        for name, entry in _ENTRIES.items():
            if name in self.settings:
                described["onnxruntime_" + name] = options.get_session_config_entry(entry)
        return described

    def run_eagerly(self, function: Function, arrays: Arrays) -> Call:
        """Refuse: there are only graphs."""
        raise self._lacks("operations without a graph")

    def _symbol(self, graph: Graph, array: Any) -> Symbol:
        dtype = str(array.dtype)
        return Symbol(graph, graph.add_constant(array.tobytes(), dtype, array.shape), dtype, array.ndim)

    def _node(self, operator: str, inputs: Sequence[Symbol], rank: int = -1, **attributes: Any) -> Symbol:
        first = inputs[0]
        name = first.graph.add_node(operator, [i.name for i in inputs], **attributes)[0]
        return Symbol(first.graph, name, first.dtype, first.rank if rank < 0 else rank)

    def _integers_for(self, symbol: Symbol, numbers: Sequence[int]) -> Symbol:
        """Add a constant of integers to the graph of a symbol."""
        return self._symbol(symbol.graph, np.array(list(numbers), dtype=np.int64))

    def _scalar_for(self, symbol: Symbol, number: float) -> Symbol:
        """Add a scalar constant to the graph of a symbol, with its element type."""
        return self._symbol(symbol.graph, np.array(number, dtype=symbol.dtype))

    def matmul(self, a: Symbol, b: Symbol, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        """`MatMul` or `MatMulInteger`; ONNX Runtime fuses the `Transpose` of an operand."""
        swapped = [*range(a.rank - 2), a.rank - 1, a.rank - 2]
        lhs = self._node("Transpose", [a], perm=swapped) if transpose_a else a
        rhs = self._node("Transpose", [b], perm=swapped) if transpose_b else b
        if a.dtype != "int8":
            return self._node("MatMul", [lhs, rhs])
        return self._node("MatMulInteger", [lhs, rhs])._replace(dtype="int32")

    def convolution(
        self, x: Symbol, w: Symbol, stride: Sequence[int], padding: Sequence[int], groups: int = 1
    ) -> Array:
        return self._node("Conv", [x, w], strides=list(stride), pads=[*padding, *padding], group=groups)

    def recurrent(self, cell: str, x: Symbol, w: List[bytes], shape: Tuple[int, int], scale: float) -> Function:
        inputs, hidden = shape
        operator = {"vanilla": "RNN", "lstm": "LSTM", "gru": "GRU"}[cell]
        # Order of the gates in ONNX: input, output, forget, cell (LSTM); update, reset, new (GRU).
        order = {"vanilla": [0], "lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}[cell]
        matrices = [
            from_bytes(raw, (len(order), hidden, width), scale)[order].reshape(1, -1, width).astype(self.dtype)
            for raw, width in zip(w, (inputs, hidden))
        ]

        def run(backend: Backend, steps: Symbol) -> Symbol:
            attributes = {"linear_before_reset": 1} if cell == "gru" else {}
            weights = [self._symbol(steps.graph, s) for s in matrices]
            states = self._node(operator, [steps, *weights], rank=4, hidden_size=hidden, **attributes)
            return self._node("Squeeze", [states, self._integers_for(steps, [1])], rank=3)

        return run

    def scale(self, x: Symbol, factor: float) -> Array:
        return self._node("Mul", [x, self._scalar_for(x, factor)])

    add = _operator("Add")
    multiply = _operator("Mul")
    relu = _operator("Relu")
    tanh = _operator("Tanh")
    softmax = _operator("Softmax", axis=-1)
    layer_norm = _operator("LayerNormalization", axis=-1, epsilon=1e-5)
    join = _operator("Concat", axis=-1)
    join_channels = _operator("Concat", axis=1)

    def gather(self, table: Symbol, indices: Symbol) -> Array:
        return self._node("Gather", [table, indices], rank=indices.rank + 1)

    def total(self, x: Symbol) -> Array:
        return self._node("ReduceSum", [x, self._integers_for(x, [-1])], rank=x.rank - 1, keepdims=0)

    def largest(self, x: Symbol) -> Array:
        return self._node("ReduceMax", [x], rank=x.rank - 1, axes=[-1], keepdims=0)

    def batch_norm(self, x: Symbol, gain: Symbol, offset: Symbol, training: bool) -> Array:
        """Statistics of the batch through `ReduceMean`: `InstanceNormalization` computes those of each image only."""
        if not training:
            return self.add(self.multiply(x, self._by_channel(gain, x)), self._by_channel(offset, x))
        axes = [0, *range(2, x.rank)]
        centred = self._node("Sub", [x, self._node("ReduceMean", [x], axes=axes)])
        variance = self._node("ReduceMean", [self.multiply(centred, centred)], axes=axes)
        deviation = self._node("Sqrt", [self.add(variance, self._scalar_for(x, 1e-5))])
        scaled = self.multiply(self._node("Div", [centred, deviation]), self._by_channel(gain, x))
        return self.add(scaled, self._by_channel(offset, x))

    def _by_channel(self, w: Symbol, x: Symbol) -> Symbol:
        by_channel: Symbol = self.reshape(w, [1, -1] + [1] * (x.rank - 2))
        return by_channel

    def fft(self, x: Symbol) -> Array:
        column = self._node("Unsqueeze", [x, self._integers_for(x, [-1])], rank=x.rank + 1)
        self._pairs = True
        name = x.graph.add_node("DFT", [column.name], axis=x.rank - 1, onesided=1)[0]
        return Symbol(x.graph, name, x.dtype, x.rank + 1)

    def sort(self, x: Symbol) -> Array:
        last = self._node("Shape", [x], start=-1)
        name = x.graph.add_node("TopK", [x.name, last.name], outputs=2, axis=-1, largest=0, sorted=1)[0]
        return x._replace(name=name)

    def pool(self, x: Symbol, size: int) -> Array:
        window = [size] * (x.rank - 2)
        return self._node("MaxPool", [x], kernel_shape=window, strides=window)

    def spatial_mean(self, x: Symbol) -> Array:
        return self._node("ReduceMean", [x], rank=2, axes=list(range(2, x.rank)), keepdims=0)

    def reshape(self, x: Symbol, shape: Sequence[int]) -> Array:
        return self._node("Reshape", [x, self._integers_for(x, shape)], rank=len(shape))

    def transpose(self, x: Symbol, axes: Sequence[int]) -> Array:
        return self._node("Transpose", [x], perm=list(axes))

    def shape_of(self, result: Any) -> Tuple[int, ...]:
        """Return the shape of an array; ONNX Runtime's pair of a complex number counts as one element."""
        return tuple(result.shape[:-1] if self._pairs else result.shape)

    def all_finite(self, result: Any, index: Tuple[Any, ...]) -> bool:
        return bool(np.isfinite(result[tuple(index)]).all())

    def read_all(self, result: Any, index: Tuple[Any, ...]) -> List[Any]:
        elements = np.asarray(result[tuple(index)])
        if self._pairs:
            return [complex(real, imaginary) for real, imaginary in elements.reshape(-1, 2).tolist()]
        return list(elements.reshape(-1).tolist())
