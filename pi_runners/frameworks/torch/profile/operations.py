"""Operations of PyTorch: their layers, and the performance indicators that stand for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from knowledge.domain.workload import Direction
from pi_runners.profile import operations
from pi_runners.profile.timeline import Claim

_BLAS = frozenset({"addmm", "mm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "_int_mm", "_scaled_mm"})
_COPIES = frozenset(
    {"copy_", "_to_copy", "to", "contiguous", "clone", "cat", "stack", "pin_memory", "_pin_memory", "index_put_"}
)
_LIBRARY = re.compile(
    r"^convolution_backward|mkldnn|cudnn|miopen|onednn|_flash_attention|_efficient_attention|nnpack|xnnpack"
)
_COMMUNICATION = re.compile(r"^(c10d|nccl|gloo|mpi|ucc)(:|$)|^record_param_comms|AllReduce|AllGather|ReduceScatter")
_ADD = frozenset({"add", "add_", "sub", "sub_", "rsub"})
_MULTIPLY = frozenset({"mul", "mul_", "div", "div_"})
_TANH = frozenset({"tanh", "tanh_"})
_ELEMENTWISE = frozenset(
    {"relu", "relu_", "clamp_min", "clamp", "threshold_backward", "gelu", "gelu_backward", "silu", "silu_",
     "silu_backward", "sigmoid", "sigmoid_", "sigmoid_backward", "tanh_backward", "exp", "log", "sqrt", "rsqrt",
     "pow", "neg", "abs", "where", "addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "dropout",
     "native_dropout", "native_dropout_backward", "masked_fill", "masked_fill_", "maximum", "minimum", "hardtanh",
     "leaky_relu", "elu", "hardswish", "mish", "softplus", "sqrt_", "exp_", "pow_", "clamp_", "bernoulli_"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation.

    Attributes:
        name: Name without the prefix ``aten::``.
        shapes: Shape of each input; empty for inputs that are not arrays, a list of shapes for lists of arrays.
        types: C++ type of each input.
        values: Text of each input that is not an array.
    """

    name: str
    shapes: tuple[Any, ...]
    types: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def dtype(self) -> str:
        """Element type of the first input with a floating-point type, or empty."""
        return next((operations.DTYPES[t] for t in self.types if t in operations.DTYPES), "")

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of an input, or an empty one if it is unknown."""
        shape = self.shapes[number] if number < len(self.shapes) else ()
        return shape if all(isinstance(length, int) for length in shape) else ()

    def numbers(self, number: int) -> list[int]:
        """Return the integers of an input such as ``[1, 1]``."""
        text = self.values[number][:1000] if number < len(self.values) else ""
        return [int(n) for n in re.findall(r"-?\b\d{1,12}\b", text)]

    def flag(self, number: int) -> bool:
        """Return whether an input is ``True``."""
        return number < len(self.values) and self.values[number] == "True"


def layer_of(name: str) -> str:
    """Return the layer of an operation by its name in a trace."""
    short = name.partition("::")[2] if name.startswith("aten::") else name
    if short in _BLAS:
        return "BLAS"
    if short in _COPIES:
        return "memory copies"
    if _COMMUNICATION.search(name):
        return "communication"
    return "DNN library" if _LIBRARY.search(short) else "framework"


def claim_of(call: Call) -> Claim | None:
    """Return the indicator that stands for a call, or ``None``."""
    if call.name in _CLAIMS:
        return _CLAIMS[call.name](call)
    if call.name in _ADD or call.name in _MULTIPLY or call.name in _TANH:
        kind = "add" if call.name in _ADD else "multiply" if call.name in _MULTIPLY else "tanh"
        # The indicator's arrays have one shape.
        is_like = len(call.shapes) < 2 or call.shape(0) == call.shape(1) or kind == "tanh"
        return operations.rows("elementwise", call.shape(0) if is_like else (), kind=kind, dtype=call.dtype)
    if call.name in _ELEMENTWISE or call.name.startswith(("_foreach_", "_fused_")):
        return Claim("elementwise", (), call.dtype, "forward")
    return None


def _convolution(call: Call) -> Claim:
    # (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if call.flag(6):
        return Claim("conv2d", (), call.dtype, "forward")
    return operations.convolution(
        call.shape(0),
        call.shape(1),
        stride=call.numbers(3),
        padding=call.numbers(4) or [0],
        dilation=call.numbers(5),
        groups=_first(call.numbers(8), 1),
        dtype=call.dtype,
    )


def _convolution_backward(call: Call) -> Claim:
    # (gradient, input, weight, bias sizes, stride, padding, dilation, transposed, output_padding, groups, mask)
    if call.flag(7):
        return Claim("conv2d", (), call.dtype, "backward")
    return operations.convolution(
        call.shape(1),
        call.shape(2),
        stride=call.numbers(4),
        padding=call.numbers(5) or [0],
        dilation=call.numbers(6),
        groups=_first(call.numbers(9), 1),
        dtype=call.dtype,
        direction="backward",
    )


def _linear(call: Call) -> Claim:
    x, weight = call.shape(0), call.shape(1)
    if len(weight) != 2 or not x:
        return Claim("matmul", (), call.dtype, "forward")
    return operations.matmul(math.prod(x[:-1]), weight[0], weight[1], transposed=(False, True), dtype=call.dtype)


def _product(first: int) -> Callable[[Call], Claim]:
    """Return the claim of a product whose factors are the inputs from a number on."""

    def claim(call: Call) -> Claim:
        a, b = call.shape(first), call.shape(first + 1)
        if len(a) < 2 or len(b) < 2:
            return Claim("matmul", (), call.dtype, "forward")
        if len(b) == 2:
            return operations.matmul(math.prod(a[:-1]), b[1], a[-1], dtype=call.dtype)
        return operations.matmul(a[-2], b[-1], a[-1], batch=math.prod(b[:-2]), dtype=call.dtype)

    return claim


def _batch_norm(number: int, direction: Direction) -> Callable[[Call], Claim]:
    return lambda call: operations.batch_normalisation(call.shape(number), dtype=call.dtype, direction=direction)


def _layer_norm(number: int, direction: Direction) -> Callable[[Call], Claim]:
    def claim(call: Call) -> Claim:
        shape = call.shape(number)
        # The normalised shape is the input after the array, and may have several axes.
        axes = max(1, len(call.numbers(number + 1)))
        rows = (*shape[:-axes], math.prod(shape[-axes:])) if shape else ()
        return operations.rows("normalisation", rows, kind="layer", dtype=call.dtype, direction=direction)

    return claim


def _softmax(direction: Direction) -> Callable[[Call], Claim]:
    return lambda call: operations.rows("softmax", call.shape(0), dtype=call.dtype, direction=direction)


def _rows(indicator: str, kind: str = "") -> Callable[[Call], Claim]:
    return lambda call: operations.rows(indicator, call.shape(0), kind=kind, dtype=call.dtype)


def _attention(number: int, direction: Direction) -> Callable[[Call], Claim]:
    return lambda call: operations.attention(call.shape(number), dtype=call.dtype, direction=direction)


def _embedding(call: Call) -> Claim:
    return operations.embedding(call.shape(0), call.shape(1), dtype=call.dtype)


def _embedding_backward(call: Call) -> Claim:
    gradient = call.shape(0)
    table = (_first(call.numbers(2), 0), gradient[-1]) if gradient else ()
    return operations.embedding(table, call.shape(1), dtype=call.dtype, direction="backward")


def _recurrent(cell: str) -> Callable[[Call], Claim]:
    def claim(call: Call) -> Claim:
        # (input, states, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        shape, states = call.shape(0), call.shapes[1] if len(call.shapes) > 1 else ()
        state = states[0] if states and not isinstance(states[0], int) else states
        if _first(call.numbers(4), 1) != 1 or call.flag(7) or len(shape) != 3 or not state:
            return Claim("recurrent", (), call.dtype, "forward")
        inputs = (shape[1], shape[0], shape[2]) if call.flag(8) else shape
        return operations.recurrent(cell, inputs, state[-1], dtype=call.dtype)

    return claim


def _mkldnn_rnn_backward(call: Call) -> Claim:
    # oneDNN has this layer only for LSTM in PyTorch; the second weight has the shape (4 hidden, hidden).
    weight = call.shape(2)
    if len(weight) != 2:
        return Claim("recurrent", (), call.dtype, "backward")
    return operations.recurrent("lstm", call.shape(0), weight[1], dtype=call.dtype, direction="backward")


def _first(numbers: Sequence[int], otherwise: int) -> int:
    return numbers[0] if numbers else otherwise


_CLAIMS: dict[str, Callable[[Call], Claim]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "linear": _linear,
    "addmm": _product(1),
    "baddbmm": _product(1),
    "mm": _product(0),
    "bmm": _product(0),
    "matmul": _product(0),
    "native_batch_norm": _batch_norm(0, "forward"),
    "batch_norm": _batch_norm(0, "forward"),
    "native_batch_norm_backward": _batch_norm(1, "backward"),
    "cudnn_batch_norm_backward": _batch_norm(0, "backward"),
    "layer_norm": _layer_norm(0, "forward"),
    "native_layer_norm": _layer_norm(0, "forward"),
    "native_layer_norm_backward": _layer_norm(1, "backward"),
    "softmax": _softmax("forward"),
    "_softmax": _softmax("forward"),
    "log_softmax": _softmax("forward"),
    "_log_softmax": _softmax("forward"),
    "_softmax_backward_data": _softmax("backward"),
    "_log_softmax_backward_data": _softmax("backward"),
    "scaled_dot_product_attention": _attention(0, "forward"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, "backward"),
    "_scaled_dot_product_flash_attention_backward": _attention(1, "backward"),
    "_scaled_dot_product_efficient_attention_backward": _attention(1, "backward"),
    "_scaled_dot_product_cudnn_attention_backward": _attention(1, "backward"),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "lstm": _recurrent("lstm"),
    "gru": _recurrent("gru"),
    "rnn_tanh": _recurrent("vanilla"),
    "mkldnn_rnn_layer_backward": _mkldnn_rnn_backward,
    "_cudnn_rnn_backward": lambda call: Claim("recurrent", (), call.dtype, "backward"),
    "sum": _rows("reduction", "sum"),
    "mean": _rows("reduction", "sum"),
    "max": _rows("reduction", "max"),
    "amax": _rows("reduction", "max"),
    "argmax": _rows("reduction"),
    "norm": _rows("reduction"),
    "linalg_vector_norm": _rows("reduction"),
    "sort": _rows("sort"),
    "argsort": _rows("sort"),
    "topk": _rows("sort"),
    "fft_rfft": _rows("fft"),
    "_fft_r2c": _rows("fft"),
}
