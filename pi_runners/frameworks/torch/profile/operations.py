"""Operations of PyTorch: their layers, and the performance indicators that stand for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from knowledge.domain.workload import Direction
from pi_runners.profile import operations
from pi_runners.profile.operations import claims_by_name, rows_of
from pi_runners.profile.timeline import Claim

_BLAS = frozenset({"addmm", "mm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "_int_mm", "_scaled_mm"})
_COPIES = frozenset(
    {"copy_", "_to_copy", "to", "contiguous", "clone", "cat", "stack", "pin_memory", "_pin_memory", "index_put_"}
)
_LIBRARY = re.compile(
    r"^convolution_backward|mkldnn|cudnn|miopen|onednn|_flash_attention|_efficient_attention|nnpack|xnnpack"
)
_COMMUNICATION = re.compile(r"^(c10d|nccl|gloo|mpi|ucc)(:|$)|^record_param_comms|AllReduce|AllGather|ReduceScatter")
_KINDS = {
    **dict.fromkeys(("add", "add_", "sub", "sub_", "rsub"), "add"),
    **dict.fromkeys(("mul", "mul_", "div", "div_"), "multiply"),
    **dict.fromkeys(("tanh", "tanh_"), "tanh"),
}
_ELEMENTWISE = frozenset(
    {"relu", "relu_", "clamp_min", "clamp", "threshold_backward", "gelu", "gelu_backward", "silu", "silu_",
     "silu_backward", "sigmoid", "sigmoid_", "sigmoid_backward", "tanh_backward", "exp", "log", "sqrt", "rsqrt",
     "pow", "neg", "abs", "where", "addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "dropout",
     "native_dropout", "native_dropout_backward", "masked_fill", "masked_fill_", "maximum", "minimum", "hardtanh",
     "leaky_relu", "elu", "hardswish", "mish", "softplus", "sqrt_", "exp_", "pow_", "clamp_", "bernoulli_"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call(operations.TracedOperation):
    """One call of an operation; its name is without the prefix ``aten::``.

    Attributes:
        values: Text of each input that is not an array.
    """

    values: tuple[str, ...] = ()

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
    claim = operations.claim_of(call, _CLAIMS, _KINDS)
    if claim is None and (call.name in _ELEMENTWISE or call.name.startswith(("_foreach_", "_fused_"))):
        return Claim("elementwise", (), call.dtype, "forward")
    return claim


def _convolution(images: int, stride: int, direction: Direction) -> Callable[[Call], Claim]:
    """Return the claim of a convolution, from the numbers of the inputs with the images and with the stride."""

    def claim(call: Call) -> Claim:
        # (images, filters, ..., stride, padding, dilation, transposed, output_padding, groups)
        is_transposed = call.flag(stride + 3)
        return operations.convolution(
            () if is_transposed else call.input(images),
            call.input(images + 1),
            stride=call.numbers(stride),
            padding=call.numbers(stride + 1) or [0],
            dilation=call.numbers(stride + 2),
            groups=_first(call.numbers(stride + 5), 1),
            direction=direction,
        )

    return claim


def _linear(call: Call) -> Claim:
    x, weight = call.input(0), call.input(1)
    if len(weight) != 2 or not x:
        return operations.claim("matmul")
    return operations.matmul(math.prod(x[:-1]), weight[0], weight[1], transposed=(False, True))


def _product(first: int) -> Callable[[Call], Claim]:
    """Return the claim of a product whose factors are the inputs from a number on."""

    def claim(call: Call) -> Claim:
        a, b = call.input(first), call.input(first + 1)
        if len(a) < 2 or len(b) < 2:
            return operations.claim("matmul")
        if len(b) == 2:
            return operations.matmul(math.prod(a[:-1]), b[1], a[-1])
        return operations.matmul(a[-2], b[-1], a[-1], batch=math.prod(b[:-2]))

    return claim


def _batch_norm(number: int, direction: Direction) -> Callable[[Call], Claim]:
    return lambda call: operations.batch_normalisation(call.input(number), direction)


def _layer_norm(number: int, direction: Direction) -> Callable[[Call], Claim]:
    def claim(call: Call) -> Claim:
        shape = call.input(number)
        # The normalised shape is the input after the array, and may have several axes.
        axes = max(1, len(call.numbers(number + 1)))
        rows = (*shape[:-axes], math.prod(shape[-axes:])) if shape else ()
        return operations.rows("normalisation", rows, "layer", direction)

    return claim


def _attention(number: int, direction: Direction) -> Callable[[Call], Claim]:
    return lambda call: operations.attention(call.input(number), direction)


def _embedding_backward(call: Call) -> Claim:
    gradient = call.input(0)
    table = (_first(call.numbers(2), 0), gradient[-1]) if gradient else ()
    return operations.embedding(table, call.input(1), "backward")


def _recurrent(cell: str) -> Callable[[Call], Claim]:
    def claim(call: Call) -> Claim:
        # (input, states, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        shape, states = call.input(0), call.inputs[1] if len(call.inputs) > 1 else ()
        state = states[0] if states and not isinstance(states[0], int) else states
        if _first(call.numbers(4), 1) != 1 or call.flag(7) or len(shape) != 3 or not state:
            return operations.claim("recurrent")
        inputs = (shape[1], shape[0], shape[2]) if call.flag(8) else shape
        return operations.recurrent(cell, inputs, state[-1])

    return claim


def _mkldnn_rnn_backward(call: Call) -> Claim:
    # oneDNN has this layer only for LSTM in PyTorch; the second weight has the shape (4 hidden, hidden).
    weight = call.input(2)
    if len(weight) != 2:
        return operations.claim("recurrent", direction="backward")
    return operations.recurrent("lstm", call.input(0), weight[1], "backward")


def _first(numbers: Sequence[int], otherwise: int) -> int:
    return numbers[0] if numbers else otherwise


_CLAIMS = claims_by_name(
    ("convolution", _convolution(0, 3, "forward")),
    ("convolution_backward", _convolution(1, 4, "backward")),
    ("linear", _linear),
    ("addmm baddbmm", _product(1)),
    ("mm bmm matmul", _product(0)),
    ("native_batch_norm batch_norm", _batch_norm(0, "forward")),
    ("native_batch_norm_backward", _batch_norm(1, "backward")),
    ("cudnn_batch_norm_backward", _batch_norm(0, "backward")),
    ("layer_norm native_layer_norm", _layer_norm(0, "forward")),
    ("native_layer_norm_backward", _layer_norm(1, "backward")),
    ("softmax _softmax log_softmax _log_softmax", rows_of("softmax")),
    ("_softmax_backward_data _log_softmax_backward_data", rows_of("softmax", direction="backward")),
    ("scaled_dot_product_attention", _attention(0, "forward")),
    (
        "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward",
        _attention(1, "backward"),
    ),
    ("embedding", operations.embedding_of),
    ("embedding_dense_backward", _embedding_backward),
    ("lstm", _recurrent("lstm")),
    ("gru", _recurrent("gru")),
    ("rnn_tanh", _recurrent("vanilla")),
    ("mkldnn_rnn_layer_backward", _mkldnn_rnn_backward),
    ("_cudnn_rnn_backward", lambda call: operations.claim("recurrent", direction="backward")),
    ("sum mean", rows_of("reduction", "sum")),
    ("max amax", rows_of("reduction", "max")),
    ("argmax norm linalg_vector_norm", rows_of("reduction")),
    ("sort argsort topk", rows_of("sort")),
    ("fft_rfft _fft_r2c", rows_of("fft")),
)
