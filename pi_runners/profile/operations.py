"""Performance indicators with their parameters, from the shapes of an operation's arrays; layers of CUDA kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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

Claims = Callable[[Any], "Claim | None"]
"""Returns the claim of an operation."""
_KERNEL_LAYERS = (
    (re.compile(r"nccl|rccl", re.IGNORECASE), "communication"),
    (re.compile(r"memcpy|memset", re.IGNORECASE), "memory copies"),
    (
        re.compile(r"cudnn|winograd|implicit|[dw]grad|fprop|conv|fmha|flash|bn_fw|bn_bw|miopen", re.IGNORECASE),
        "DNN library",
    ),
    (re.compile(r"gemm|gemv|cutlass|cublas|nvjet|xmma|splitKreduce|Cijk", re.IGNORECASE), "BLAS"),
)


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One run of an operation, as a trace describes it.

    Attributes:
        name: Its kind, such as ``MatMul``.
        inputs: Shapes of the inputs; empty for those that are not arrays.
        outputs: Shapes of the outputs.
        dtype: Element type as :data:`DTYPES` values, or empty.
    """

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    dtype: str = ""

    def input(self, number: int) -> tuple[int, ...]:
        """Return the shape of an input; empty if it is unknown."""
        shape = self.inputs[number] if number < len(self.inputs) else ()
        return shape if all(isinstance(length, int) for length in shape) else ()

    def output(self) -> tuple[int, ...]:
        """Return the shape of the first output; empty if there is none."""
        return self.outputs[0] if self.outputs else ()


def claim_of(operation: TracedOperation, claims: Mapping[str, Claims], kinds: Mapping[str, str]) -> Claim | None:
    """Return the indicator that stands for an operation, with its element type; ``None`` if there is none.

    Args:
        operation: The operation.
        claims: Functions that return the claim of an operation, by its name.
        kinds: Kinds of elementwise operations by name. The indicator's arrays have one shape.
    """
    if operation.name in claims:
        plain = claims[operation.name](operation)
        return plain and replace(plain, dtype=operation.dtype)
    if operation.name not in kinds:
        return None
    kind = kinds[operation.name]
    # Where a trace has no outputs, a missing second input is a number.
    is_like = kind == "tanh" or operation.input(0) == operation.input(1)
    is_like |= len(operation.inputs) < 2 and not operation.outputs
    shape = operation.output() if operation.outputs else operation.input(0)
    return replace(rows("elementwise", shape if is_like else (), kind), dtype=operation.dtype)


def claims_by_name(*groups: tuple[str, Claims]) -> dict[str, Claims]:
    """Return functions by name of the operation, from groups of names, separated by spaces, with their function."""
    return {name: function for names, function in groups for name in names.split()}


def claim(indicator: str, parameters: dict[str, int | str] | None = None, direction: Direction = "forward") -> Claim:
    """Return a claim; its parameters are left out if they are not valid for the indicator.

    Args:
        indicator: Name of the indicator.
        parameters: Its parameters; ``None`` if they are unknown.
        direction: Pass of the operation.
    """
    if not parameters or INDICATORS[indicator].complaints(parameters):
        return Claim(indicator, direction=direction)
    canonical = INDICATORS[indicator].canonical(parameters)
    return Claim(indicator, tuple(sorted(canonical.items())), direction=direction)


def matmul(m: int, n: int, k: int, *, batch: int = 1, transposed: tuple[bool, bool] = (False, False)) -> Claim:
    """Return the claim of a product of matrices (batch, m, k) and (batch, k, n), each of which may be transposed."""
    flags = {name: "yes" for name, flag in zip(("transpose_a", "transpose_b"), transposed, strict=True) if flag}
    return claim("matmul", {"m": m, "n": n, "k": k, "batch": batch, **flags})


def convolution(
    images: Shape,
    filters: Shape,
    *,
    stride: Shape,
    padding: Shape,
    dilation: Shape = (1,),
    groups: int = 1,
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
        direction: Pass.
    """
    axes = len(images) - 2
    if axes not in (1, 2, 3) or len(filters) != axes + 2:
        return claim("conv2d", direction=direction)
    name = f"conv{axes}d"
    if any(step != 1 for step in dilation):
        return claim(name, direction=direction)
    kernel, pads = list(filters[2:]), _per_axis(padding, axes)
    parameters: dict[str, int | str] = {
        "batch": images[0],
        "channels": images[1],
        "filters": filters[0],
        "groups": groups,
        "direction": direction or "forward",
    }
    names = ("depth", "height", "width")[-axes:]
    for common, prefix, lengths in (
        ("size", "", list(images[2:])),
        ("kernel", "kernel_", kernel),
        ("stride", "stride_", _per_axis(stride, axes)),
    ):
        parameters[common] = lengths[0]
        parameters.update({prefix + axis: n for axis, n in zip(names, lengths, strict=True) if n != lengths[0]})
    parameters.update({f"pad_{axis}": pad for axis, pad, n in zip(names, pads, kernel, strict=True) if pad != n // 2})
    return claim(name, parameters, direction)


def _per_axis(lengths: Shape, axes: int) -> list[int]:
    return list(lengths) if len(lengths) == axes else [lengths[0] if lengths else 1] * axes


def rows(indicator: str, shape: Shape, kind: str = "", direction: Direction = "forward") -> Claim:
    """Return the claim of an operation on the rows of an array; its last axis is the row.

    Args:
        indicator: ``softmax``, ``elementwise``, ``reduction``, ``sort``, ``fft`` or ``normalisation``.
        shape: Shape of the array; empty if unknown.
        kind: Value of the parameter ``kind``; empty if the indicator has none, or none fits.
        direction: Pass.
    """
    if not shape or (indicator in ("elementwise", "reduction", "normalisation") and not kind):
        return claim(indicator, direction=direction)
    parameters: dict[str, int | str] = {"rows": math.prod(shape[:-1]), "columns": shape[-1]}
    return claim(indicator, {**parameters, **({"kind": kind} if kind else {})}, direction)


def rows_of(
    indicator: str, kind: str = "", direction: Direction = "forward", number: int = 0
) -> Callable[[TracedOperation], Claim]:
    """Return a function that returns the claim of an operation on the rows of the input with this number."""
    return lambda operation: rows(indicator, operation.input(number), kind, direction)


def batch_normalisation(shape: Shape, direction: Direction = "forward") -> Claim:
    """Return the claim of a batch normalisation of images (batch, channels, *spatial)."""
    array = [shape[0] * math.prod(shape[2:]), shape[1]] if len(shape) > 1 else []
    return rows("normalisation", array, "batch", direction)


def attention(query: Shape, direction: Direction = "forward") -> Claim:
    """Return the claim of attention with a query of shape (batch, heads, length, width)."""
    names = ("batch", "heads", "length", "width")
    return claim("attention", dict(zip(names, query, strict=True)) if len(query) == 4 else None, direction)


def embedding(table: Shape, indices: Shape, direction: Direction = "forward") -> Claim:
    """Return the claim of a gather of rows of a table (rows, width)."""
    if len(table) != 2:
        return claim("embedding", direction=direction)
    return claim("embedding", {"rows": table[0], "width": table[1], "lookups": math.prod(indices)}, direction)


def embedding_of(operation: TracedOperation) -> Claim:
    """Return the claim of a gather from the first input by the indices in the second."""
    return embedding(operation.input(0), operation.input(1))


def recurrent(cell: str, inputs: Shape, hidden: int, direction: Direction = "forward") -> Claim:
    """Return the claim of a recurrent layer.

    Args:
        cell: ``vanilla``, ``lstm`` or ``gru``.
        inputs: Shape (timesteps, batch, width); empty if unknown.
        hidden: Hidden units.
        direction: Pass.
    """
    if len(inputs) != 3:
        return claim("recurrent", direction=direction)
    timesteps, batch, width = inputs
    parameters: dict[str, int | str] = {"cell": cell, "hidden": hidden, "batch": batch, "timesteps": timesteps}
    return claim("recurrent", {**parameters, "inputs": 0 if width == hidden else width}, direction)


def layer_of_kernel(name: str) -> str:
    """Return the layer of a kernel of an accelerator by its name in a trace."""
    return next((layer for pattern, layer in _KERNEL_LAYERS if pattern.search(name)), "framework")
