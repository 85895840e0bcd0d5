"""Shapes of the operations of a TensorFlow program, which its traces do not hold.

The hooks of TensorFlow write them from the graphs of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from knowledge.domain.workload import Direction
from pi_runners.frameworks.tensorflow.profile.operations import claim_of
from pi_runners.profile import operations
from pi_runners.profile.events import TraceError
from pi_runners.profile.operations import claims_by_name, rows_of
from pi_runners.profile.timeline import Claim

_CALL = "StatefulPartitionedCall/"
"""A called function is inlined into the function that calls it, and its operations get this prefix."""
_MAX_PRODUCERS = 5
_KINDS = {"AddV2": "add", "Add": "add", "Sub": "add", "Mul": "multiply", "RealDiv": "multiply", "Tanh": "tanh"}

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Described:
    """An operation as the hooks of TensorFlow describe it."""

    operator: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    element_type: str
    producer: str
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Operation(operations.TracedOperation):
    attributes: Mapping[str, str] = field(default_factory=dict)
    producer: str = ""

    def flag(self, name: str) -> bool:
        return self.attributes.get(name) == "True"


class GraphShapes:
    """The operations of the graphs of a program."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the graphs of a program.

        Args:
            path: File that the program's hooks wrote; without it, or if it does not exist, there are no shapes.

        Raises:
            TraceError: If it is not such a file.
        """
        self._operations: dict[str, _Operation] = {}
        if path is None or not path.is_file():
            return
        try:
            content = TypeAdapter(dict[str, _Described]).validate_json(path.read_bytes())
        except ValidationError as error:
            raise TraceError(f"`{path}` does not hold the graphs of a program: {error.errors()[0]['msg']}") from None
        types = operations.DTYPES.values()
        for name, o in content.items():
            dtype = o.element_type if o.element_type in types else ""
            self._operations[name] = _Operation(o.operator, o.inputs, o.outputs, dtype, o.attributes, o.producer)

    def claim(self, operator: str, path: str) -> Claim | None:
        """Return the indicator that stands for an operation of a trace, with its shapes if they are known.

        Args:
            operator: Kind of the operation, which TensorFlow may have changed, such as ``_MklFusedMatMul``.
            path: Its name in the trace.
        """
        plain = claim_of(operator)
        operation = self._operations.get(path.replace(_CALL, ""))
        if plain is None or operation is None:
            return plain
        # A fused operation has the name of its last one; those before it are its producers.
        for _ in range(_MAX_PRODUCERS):
            claim = claim_of(operation.name)
            if claim is not None and claim.indicator == plain.indicator:
                return _shaped(operation, claim)
            producer = self._operations.get(operation.producer)
            if producer is None:
                break
            operation = producer
        return plain


def _shaped(operation: _Operation, plain: Claim) -> Claim:
    claim = operations.claim_of(operation, _CLAIMS, _KINDS)
    if claim is None and operation.name in _CLAIMS:
        return plain
    return claim or Claim(plain.indicator, (), operation.dtype, plain.direction)


def _matmul(operation: _Operation) -> Claim | None:
    a, b, result = operation.input(0), operation.input(1), operation.output()
    if len(a) < 2 or len(b) < 2 or len(result) < 2:
        return None
    transposed_a = operation.flag("transpose_a") or operation.flag("adj_x")
    transposed_b = operation.flag("transpose_b") or operation.flag("adj_y")
    k = a[-2] if transposed_a else a[-1]
    flags = (transposed_a, transposed_b)
    if len(b) == 2 and not (transposed_a and len(a) > 2):
        rows = math.prod(result[:-1])
        return operations.matmul(rows, result[-1], k, transposed=flags)
    batch = math.prod(result[:-2])
    return operations.matmul(result[-2], result[-1], k, batch=batch, transposed=flags)


def _einsum(operation: _Operation) -> Claim | None:
    inputs, _, output = operation.attributes.get("equation", "").partition("->")
    a, _, b = inputs.partition(",")
    if len(a) != len(operation.input(0)) or len(b) != len(operation.input(1)) or not b or not output:
        return None
    lengths = dict(zip(a + b, operation.input(0) + operation.input(1), strict=True))

    def product(labels: set[str]) -> int:
        return math.prod(lengths[label] for label in labels)

    both = set(a) & set(b)
    return operations.matmul(
        product((set(a) - set(b)) & set(output)),
        product((set(b) - set(a)) & set(output)),
        product(both - set(output)),
        batch=product(both & set(output)),
    )


def _convolution(images: int | None, filters: int | None, direction: Direction) -> Callable[[_Operation], Claim | None]:
    """Return the claim of a convolution, from the numbers of the inputs; ``None`` is the number of the output."""

    def claim(operation: _Operation) -> Claim | None:
        x = operation.output() if images is None else operation.input(images)
        w = operation.output() if filters is None else operation.input(filters)
        if len(x) != 4 or len(w) != 4:
            return None
        layout = operation.attributes.get("data_format", "NHWC")
        axes = [layout.index(axis) for axis in "NCHW"]
        numbers = [int(n) for n in operation.attributes.get("strides", "1 1 1 1").split()]
        is_depthwise = operation.name.startswith("Depthwise")
        kernel, (inputs, outputs) = w[:2], w[2:]
        padding = [length // 2 if operation.attributes.get("padding") == "SAME" else 0 for length in kernel]
        shape = tuple(x[axis] for axis in axes)
        return operations.convolution(
            shape,
            (inputs * outputs if is_depthwise else outputs, 1 if is_depthwise else inputs, *kernel),
            stride=[numbers[layout.index(axis)] for axis in "HW"],
            padding=padding,
            groups=inputs if is_depthwise else max(1, shape[1] // max(1, inputs)),
            direction=direction,
        )

    return claim


def _batch_norm(operation: _Operation) -> Claim | None:
    shape = operation.input(0)
    if operation.attributes.get("data_format", "NHWC") == "NHWC" and shape:
        shape = (shape[0], shape[-1], *shape[1:-1])
    direction: Direction = "backward" if "Grad" in operation.name else "forward"
    return operations.batch_normalisation(shape, direction)


_CLAIMS = claims_by_name(
    ("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3", _matmul),
    ("Einsum", _einsum),
    ("Conv2D DepthwiseConv2dNative", _convolution(0, 1, "forward")),
    ("Conv2DBackpropInput DepthwiseConv2dNativeBackpropInput", _convolution(None, 1, "backward")),
    ("Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter", _convolution(0, None, "backward")),
    ("FusedBatchNormV3 FusedBatchNormGradV3", _batch_norm),
    ("Softmax LogSoftmax SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits", rows_of("softmax")),
    ("Sum Mean", rows_of("reduction", "sum")),
    ("Max", rows_of("reduction", "max")),
    ("TopKV2", rows_of("sort")),
    ("GatherV2", operations.embedding_of),
    ("UnsortedSegmentSum", lambda o: operations.embedding(o.output(), o.input(1), "backward")),
)
