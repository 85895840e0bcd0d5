"""Reads compiled modules of XLA (``HloProto``): the performance indicators that stand for their instructions.

The messages: https://github.com/openxla/xla/blob/main/xla/service/hlo.proto and ``xla/xla_data.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from knowledge.domain.workload import Direction
from pi_runners.frameworks.tensorflow.profile.messages import parse, text
from pi_runners.profile import operations
from pi_runners.profile.events import shape_of
from pi_runners.profile.timeline import Claim, Kind

_TYPES = {2: "int8", 10: "float16", 11: "float32", 12: "float64", 16: "bfloat16"}
_HEAVY = (
    "convolution", "dot", "custom-call", "sort", "fft", "rng-bit-generator", "gather", "scatter", "reduce",
    "reduce-window",
)  # fmt: skip
"""Instructions that decide the time of a fusion that contains them, the heaviest first."""
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "broadcast", "reshape"})
_COPIES = frozenset({"copy", "transpose", "concatenate", "pad", "slice", "dynamic-slice", "dynamic-update-slice"})
_COMMUNICATION = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
_KINDS = {"add": "add", "subtract": "add", "multiply": "multiply", "divide": "multiply", "tanh": "tanh"}


class _Instruction:
    """An instruction: the fields of its message as texts and tuples."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.name, self.opcode, self.target = text(message.name), text(message.opcode), text(message.target)
        self.dtype, self.shape = _shape(message.shape)
        # JAX names the transposed program of a gradient `transpose(jvp(...))`.
        self.direction: Direction = "backward" if "transpose(" in text(message.metadata.name) else "forward"


class Module:
    """The instructions of a compiled module.

    Attributes:
        name: Its name, such as ``jit_step``.
    """

    def __init__(self, content: bytes) -> None:
        """Read a ``HloProto``.

        Raises:
            WireError: If it is damaged.
        """
        module = parse("Hlo", content).module
        self.name = text(module.name)
        self._computations = {c.id: list(map(_Instruction, c.instructions)) for c in module.computations}
        instructions = [i for computation in self._computations.values() for i in computation]
        self._instructions = {instruction.message.id: instruction for instruction in instructions}
        self._by_name = {instruction.name: instruction for instruction in self._instructions.values()}

    def kind(self, name: str) -> Kind | None:
        """Return the kind of an instruction; ``None`` if the module has no such instruction."""
        outer = self._by_name.get(name)
        if outer is None:
            return None
        inside = [i for i in self._inside(outer, 0) if i.opcode not in _FREE]
        if outer.opcode not in ("fusion", "call") or not inside:
            return Kind(name, _layer(outer), self._claim(outer))
        inner = max(inside, key=_weight)
        arithmetic = [i for i in inside if i.opcode not in _COPIES and i.opcode not in _HEAVY]
        if inner.opcode not in _HEAVY and len(arithmetic) > 1:
            chain = operations.rows("elementwise", inner.shape, "chain")
            return Kind(name, "framework", replace(chain, dtype=inner.dtype))
        return Kind(name, _layer(inner), self._claim(inner))

    def _inside(self, outer: _Instruction, depth: int) -> Iterator[_Instruction]:
        for number in outer.message.called if depth < 4 else ():
            for instruction in self._computations.get(number, ()):
                yield instruction
                if instruction.opcode in ("fusion", "call"):
                    yield from self._inside(instruction, depth + 1)

    def _claim(self, instruction: _Instruction) -> Claim | None:
        inputs = [self._instructions[n] for n in instruction.message.operands if n in self._instructions]
        claim = _claim(instruction, [i.shape for i in inputs])
        dtype = next((i.dtype for i in (instruction, *inputs) if i.dtype), "")
        return claim and replace(claim, dtype=dtype)


def _claim(instruction: _Instruction, shapes: Sequence[tuple[int, ...]]) -> Claim | None:
    """Return the claim of an instruction from the shapes of its operands, without its element type."""
    opcode, direction = instruction.opcode, instruction.direction
    if opcode == "dot" and len(shapes) == 2:
        return _dot(shapes[0], shapes[1], instruction.message.dot)
    if opcode == "convolution" and len(shapes) == 2:
        return _convolution(instruction, shapes[0], shapes[1])
    if opcode == "custom-call":
        return _custom_call(instruction)
    if opcode in ("reduce", "sort", "fft"):
        indicator, kind = ("reduction", "sum") if opcode == "reduce" else (opcode, "")
        return operations.rows(indicator, shapes[0] if shapes else (), kind)
    if opcode in ("gather", "scatter"):
        return operations.claim("embedding", direction=direction)
    if opcode in _KINDS:
        return operations.rows("elementwise", instruction.shape, _KINDS[opcode])
    if opcode in _COPIES or opcode in _FREE or opcode.startswith((*_COMMUNICATION, "while", "conditional")):
        return None
    return operations.claim("elementwise", direction=direction)


def _weight(instruction: _Instruction) -> tuple[int, int]:
    """Return how much an instruction decides the time of a fusion that contains it."""
    rank = _HEAVY.index(instruction.opcode) if instruction.opcode in _HEAVY else len(_HEAVY)
    return -rank, math.prod(instruction.shape) * (instruction.opcode not in _COPIES)


def _shape(message: Any) -> tuple[str, tuple[int, ...]]:
    """Return element type and lengths; of a tuple, of its first array."""
    if message.parts and not message.lengths:
        return _shape(message.parts[0])
    return _TYPES.get(message.type, ""), shape_of(list(message.lengths))


def _layer(instruction: _Instruction) -> str:
    opcode = instruction.opcode
    if opcode == "dot" or "gemm" in instruction.target or "matmul" in instruction.target:
        return "BLAS"
    if opcode == "convolution" or "cudnn" in instruction.target or "onednn" in instruction.target:
        return "DNN library"
    if opcode.startswith(_COMMUNICATION):
        return "communication"
    return "memory copies" if opcode in _COPIES else "framework"


_LIBRARY_CALLS = {
    "conv": "conv2d",
    "gemm": "matmul",
    "matmul": "matmul",
    "fmha": "attention",
    "softmax": "softmax",
    "norm": "normalisation",
    "topk": "sort",
    "rnn": "recurrent",
}
"""Indicators by words in the names of called functions; the first word counts."""


def _custom_call(instruction: _Instruction) -> Claim | None:
    target = instruction.target.lower()
    indicators = (indicator for word, indicator in _LIBRARY_CALLS.items() if word in target)
    return next((operations.claim(indicator, direction=instruction.direction) for indicator in indicators), None)


def _dot(a: tuple[int, ...], b: tuple[int, ...], numbers: Any) -> Claim:
    contracted_a, contracted_b = numbers.contracted_left, numbers.contracted_right
    batches_a, batches_b = numbers.batches_left, numbers.batches_right
    if not _are_axes((*contracted_a, *batches_a), a) or not _are_axes((*contracted_b, *batches_b), b):
        return operations.claim("matmul")
    k = math.prod(a[i] for i in contracted_a)
    rows = [i for i in range(len(a)) if i not in contracted_a and i not in batches_a]
    columns = [i for i in range(len(b)) if i not in contracted_b and i not in batches_b]
    return operations.matmul(
        math.prod(a[i] for i in rows),
        math.prod(b[i] for i in columns),
        k,
        batch=math.prod(a[i] for i in batches_a),
        # Stored as (k, m) or (n, k).
        transposed=(
            bool(rows and contracted_a and max(contracted_a) < min(rows)),
            bool(columns and contracted_b and max(columns) < min(contracted_b)),
        ),
    )


def _are_axes(numbers: Iterable[int], shape: tuple[int, ...]) -> bool:
    return all(number < len(shape) for number in numbers)


def _convolution(instruction: _Instruction, images: tuple[int, ...], filters: tuple[int, ...]) -> Claim:
    axes, numbers = instruction.message.window.axes, instruction.message.convolution
    if instruction.direction == "backward" or any(axis.base_dilation > 1 for axis in axes):
        # XLA writes gradients as other convolutions, from which the forward one does not follow.
        return operations.claim(f"conv{len(axes)}d" if axes else "conv2d", direction="backward")
    of_filters = (numbers.kernel_inputs, numbers.kernel_outputs, *numbers.kernel_axes)
    if not _are_axes((numbers.batch, numbers.channels, *numbers.axes), images) or not _are_axes(of_filters, filters):
        return operations.claim("conv2d")
    return operations.convolution(
        (images[numbers.batch], images[numbers.channels], *(images[i] for i in numbers.axes)),
        (filters[numbers.kernel_outputs], filters[numbers.kernel_inputs], *(filters[i] for i in numbers.kernel_axes)),
        stride=[axis.stride or 1 for axis in axes],
        padding=[axis.padding for axis in axes],
        dilation=[axis.dilation or 1 for axis in axes],
        groups=instruction.message.groups or 1,
    )
