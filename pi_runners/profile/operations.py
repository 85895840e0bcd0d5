"""Performance indicators with their parameters, from the shapes of an operation's arrays; layers of CUDA kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from knowledge.domain.workload import Direction
from pi_runners.indicators import INDICATORS
from pi_runners.profile.timeline import Claim

Shape = Sequence[int]

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "signed char": "int8",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "s8": "int8",
}
"""Element types by their names in traces: of C++, ONNX and XLA."""

_KERNEL_LAYERS = (
    (re.compile(r"nccl|rccl", re.IGNORECASE), "communication"),
    (re.compile(r"memcpy|memset", re.IGNORECASE), "memory copies"),
    (
        re.compile(r"cudnn|winograd|implicit|[dw]grad|fprop|conv|fmha|flash|bn_fw|bn_bw|miopen", re.IGNORECASE),
        "DNN library",
    ),
    (re.compile(r"gemm|gemv|cutlass|cublas|nvjet|xmma|splitKreduce|Cijk", re.IGNORECASE), "BLAS"),
)


def claim(
    indicator: str,
    parameters: dict[str, int | str] | None = None,
    *,
    dtype: str = "",
    direction: Direction = "forward",
) -> Claim:
    """Return a claim; its parameters are left out if they are not valid for the indicator.

    Args:
        indicator: Name of the indicator.
        parameters: Its parameters; ``None`` if they are unknown.
        dtype: Element type as :data:`DTYPES` values.
        direction: Pass of the operation.
    """
    if not parameters or INDICATORS[indicator].complaints(parameters):
        return Claim(indicator, (), dtype, direction)
    canonical = INDICATORS[indicator].canonical(parameters)
    return Claim(indicator, tuple(sorted(canonical.items())), dtype, direction)


def matmul(
    m: int, n: int, k: int, *, batch: int = 1, transposed: tuple[bool, bool] = (False, False), dtype: str = ""
) -> Claim:
    """Return the claim of a product of matrices (batch, m, k) and (batch, k, n), each of which may be transposed."""
    flags = {name: "yes" for name, flag in zip(("transpose_a", "transpose_b"), transposed, strict=True) if flag}
    return claim("matmul", {"m": m, "n": n, "k": k, "batch": batch, **flags}, dtype=dtype)


def convolution(
    images: Shape,
    filters: Shape,
    *,
    stride: Shape,
    padding: Shape,
    dilation: Shape = (1,),
    groups: int = 1,
    dtype: str = "",
    direction: Direction = "forward",
) -> Claim:
    """Return the claim of a convolution.

    Args:
        images: Shape (batch, channels, *spatial).
        filters: Shape (filters, channels / groups, *kernel).
        stride: Step along each axis, or along all.
        padding: Padding along each axis, or along all.
        dilation: Dilation; the indicators have none, so a larger one leaves the parameters out.
        groups: Groups of channels.
        dtype: Element type.
        direction: Pass.
    """
    axes = len(images) - 2
    if axes not in (1, 2, 3) or len(filters) != axes + 2:
        return Claim("conv2d", (), dtype, direction)
    name = f"conv{axes}d"
    if any(step != 1 for step in dilation):
        return Claim(name, (), dtype, direction)
    spatial, kernel = list(images[2:]), list(filters[2:])
    steps, pads = _per_axis(stride, axes), _per_axis(padding, axes)
    parameters: dict[str, int | str] = {
        "batch": images[0],
        "channels": images[1],
        "filters": filters[0],
        "groups": groups,
        "direction": direction or "forward",
    }
    names = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}[axes]
    for common, prefix, lengths in (("size", "", spatial), ("kernel", "kernel_", kernel), ("stride", "stride_", steps)):
        parameters[common] = lengths[0]
        for axis, length in zip(names, lengths, strict=True):
            if length != lengths[0]:
                parameters[prefix + axis] = length
    for axis, pad, length in zip(names, pads, kernel, strict=True):
        if pad != length // 2:
            parameters[f"pad_{axis}"] = pad
    return claim(name, parameters, dtype=dtype, direction=direction)


def _per_axis(lengths: Shape, axes: int) -> list[int]:
    return list(lengths) if len(lengths) == axes else [lengths[0] if lengths else 1] * axes


def rows(indicator: str, shape: Shape, *, kind: str = "", dtype: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of an operation on the rows of an array; its last axis is the row.

    Args:
        indicator: ``softmax``, ``elementwise``, ``reduction``, ``sort``, ``fft`` or ``normalisation``.
        shape: Shape of the array; empty if unknown.
        kind: Value of the parameter ``kind``; empty if the indicator has none, or none fits.
        dtype: Element type.
        direction: Pass.
    """
    if not shape or (indicator in ("elementwise", "reduction", "normalisation") and not kind):
        return Claim(indicator, (), dtype, direction)
    parameters: dict[str, int | str] = {"rows": math.prod(shape[:-1]), "columns": shape[-1]}
    return claim(indicator, {**parameters, **({"kind": kind} if kind else {})}, dtype=dtype, direction=direction)


def batch_normalisation(shape: Shape, *, dtype: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of a batch normalisation of images (batch, channels, *spatial)."""
    if len(shape) < 2:
        return Claim("normalisation", (), dtype, direction)
    return rows(
        "normalisation",
        [shape[0] * math.prod(shape[2:]), shape[1]],
        kind="batch",
        dtype=dtype,
        direction=direction,
    )


def attention(query: Shape, *, dtype: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of attention with a query of shape (batch, heads, length, width)."""
    if len(query) != 4:
        return Claim("attention", (), dtype, direction)
    names = ("batch", "heads", "length", "width")
    return claim("attention", dict(zip(names, query, strict=True)), dtype=dtype, direction=direction)


def embedding(table: Shape, indices: Shape, *, dtype: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of a gather of rows of a table (rows, width)."""
    if len(table) != 2:
        return Claim("embedding", (), dtype, direction)
    return claim(
        "embedding",
        {"rows": table[0], "width": table[1], "lookups": math.prod(indices)},
        dtype=dtype,
        direction=direction,
    )


def recurrent(cell: str, inputs: Shape, hidden: int, *, dtype: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of a recurrent layer.

    Args:
        cell: ``vanilla``, ``lstm`` or ``gru``.
        inputs: Shape (timesteps, batch, width); empty if unknown.
        hidden: Hidden units.
        dtype: Element type.
        direction: Pass.
    """
    if len(inputs) != 3:
        return Claim("recurrent", (), dtype, direction)
    parameters: dict[str, int | str] = {
        "cell": cell,
        "hidden": hidden,
        "batch": inputs[1],
        "timesteps": inputs[0],
        "inputs": 0 if inputs[2] == hidden else inputs[2],
    }
    return claim("recurrent", parameters, dtype=dtype, direction=direction)


def layer_of_kernel(name: str) -> str:
    """Return the layer of a kernel of an accelerator by its name in a trace."""
    return next((layer for pattern, layer in _KERNEL_LAYERS if pattern.search(name)), "framework")
