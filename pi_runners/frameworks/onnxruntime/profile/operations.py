"""Operators of ONNX Runtime: their layers, and the performance indicators that stand for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pi_runners.profile import operations
from pi_runners.profile.events import shape_of
from pi_runners.profile.operations import claims_by_name, rows_of
from pi_runners.profile.timeline import Claim

Shape = tuple[int, ...]
_MAX_KERNEL, _MAX_STRIDE = 256, 64

_BLAS = frozenset({"Gemm", "MatMul", "FusedMatMul", "FusedGemm", "QGemm", "MatMulInteger"})
_LIBRARY_PROVIDERS = ("Dnnl", "CUDA", "Tensorrt", "MIGraphX", "OpenVINO", "ROCM")
_COPIES = frozenset(
    {"MemcpyToHost", "MemcpyFromHost", "ReorderInput", "ReorderOutput", "Transpose", "Concat", "Identity", "Cast"}
)
_ELEMENTWISE = frozenset(
    {"Relu", "LeakyRelu", "Sigmoid", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Erf", "Exp", "Log", "Sqrt", "Pow",
     "Clip", "Where", "HardSwish", "HardSigmoid", "Sub", "Div", "Neg", "Abs", "Elu", "Selu", "Softplus"}
)  # fmt: skip
_KINDS = {"Add": "add", "Mul": "multiply", "Tanh": "tanh"}


@dataclass(frozen=True, slots=True)
class Node(operations.TracedOperation):
    """One run of an operator.

    Attributes:
        provider: Execution provider.
    """

    provider: str = ""


def node_of(arguments: dict[str, Any]) -> Node:
    """Return the run that the arguments of an event describe."""
    inputs, input_types = _shapes(arguments.get("input_type_shape"))
    outputs, output_types = _shapes(arguments.get("output_type_shape"))
    types = [operations.DTYPES[name] for name in (*output_types, *input_types) if name in operations.DTYPES]
    return Node(
        name=str(arguments.get("op_name", "")),
        inputs=inputs,
        outputs=outputs,
        dtype=types[0] if types else "",
        provider=str(arguments.get("provider", "")),
    )


def _shapes(value: Any) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Return shapes and types of a value such as ``[{"float": [8, 3]}]``."""
    entries = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    pairs = [pair for entry in entries if isinstance(entry, dict) for pair in entry.items()]
    arrays = [(str(name), shape) for name, shape in pairs if isinstance(shape, list)]
    return tuple(shape_of(shape) for _, shape in arrays), tuple(name for name, _ in arrays)


def layer_of(node: Node) -> str:
    """Return the layer of a run."""
    if node.name in _COPIES:
        return "memory copies"
    # As in the other frameworks, although the provider of the processor has convolutions in its BLAS (MLAS).
    if node.provider.startswith(_LIBRARY_PROVIDERS) or "Conv" in node.name:
        return "DNN library"
    return "BLAS" if node.name in _BLAS else "framework"


def claim_of(node: Node) -> Claim | None:
    """Return the indicator that stands for a run, or ``None``."""
    if node.name in _ELEMENTWISE:
        return Claim("elementwise", (), node.dtype, "forward")
    return operations.claim_of(node, _CLAIMS, _KINDS)


def _convolution(node: Node) -> Claim:
    images, filters, result = node.input(0), node.input(1), node.output()
    axes = len(images) - 2
    if axes < 1 or len(filters) != axes + 2 or len(result) != axes + 2:
        return operations.claim("conv2d")
    # The trace holds no attributes: stride and padding follow from the lengths.
    strides, pads = [], []
    for length, kernel, out in zip(images[2:], filters[2:], result[2:], strict=True):
        stride, pad = _stride(length, kernel, out)
        strides.append(stride)
        pads.append(pad)
    groups = images[1] // filters[1] if filters[1] and images[1] % filters[1] == 0 else 1
    return operations.convolution(images, filters, stride=strides, padding=pads, groups=groups)


def _stride(length: int, kernel: int, out: int) -> tuple[int, int]:
    """Return the smallest step with the padding nearest to half of the kernel that gives a length of the result."""
    if kernel > _MAX_KERNEL:
        return 1, kernel // 2
    for stride in range(1, min(max(2, length), _MAX_STRIDE)):
        for pad in sorted(range(kernel), key=lambda p: abs(p - kernel // 2)):
            if (length + 2 * pad - kernel) // stride + 1 == out:
                return stride, pad
    return 1, kernel // 2


def _product(node: Node) -> Claim:
    a, result = node.input(0), node.output()
    if len(a) < 2 or len(result) < 2:
        return operations.claim("matmul")
    # A constant second factor is packed before, and is not among the inputs.
    b = node.input(1)
    if len(a) > 2 and len(b) > 2:
        return operations.matmul(result[-2], result[-1], a[-1], batch=math.prod(result[:-2]))
    rows = math.prod(result[:-1])
    return operations.matmul(rows, result[-1], math.prod(a) // rows if rows else 0)


def _recurrent(cell: str) -> Callable[[Node], Claim]:
    # The result has the shape (timesteps, directions, batch, hidden).
    def claim(node: Node) -> Claim:
        result = node.output()
        if len(result) != 4 or result[1] != 1:
            return operations.claim("recurrent")
        return operations.recurrent(cell, node.input(0), result[3])

    return claim


_CLAIMS = claims_by_name(
    ("Conv FusedConv NhwcFusedConv", _convolution),
    ("Gemm FusedGemm MatMul FusedMatMul", _product),
    ("LSTM", _recurrent("lstm")),
    ("GRU", _recurrent("gru")),
    ("RNN", _recurrent("vanilla")),
    ("Softmax LogSoftmax", rows_of("softmax")),
    ("LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization", rows_of("normalisation", "layer")),
    ("BatchNormalization", lambda node: operations.batch_normalisation(node.input(0))),
    ("Attention MultiHeadAttention GroupQueryAttention", lambda node: operations.claim("attention")),
    ("Gather", operations.embedding_of),
    ("ReduceSum ReduceMean", rows_of("reduction", "sum")),
    ("ReduceMax", rows_of("reduction", "max")),
    ("TopK", rows_of("sort")),
)
