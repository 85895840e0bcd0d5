"""Reads compiled modules of XLA (``HloProto``): the performance indicators that stand for their instructions.

The messages: https://github.com/openxla/xla/blob/main/xla/service/hlo.proto and ``xla/xla_data.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from knowledge.domain.workload import Direction
from pi_runners.frameworks.tensorflow.profile import protobuf
from pi_runners.frameworks.tensorflow.profile.protobuf import Buffer
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


@dataclass(slots=True)
class _Instruction:
    name: str = ""
    opcode: str = ""
    target: str = ""
    source: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    number: int = 0
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    window: list[dict[int, int]] = field(default_factory=list)
    convolution: dict[int, list[int]] = field(default_factory=dict)
    dot: dict[int, list[int]] = field(default_factory=dict)
    groups: int = 1

    @property
    def direction(self) -> Direction:
        # JAX names the transposed program of a gradient `transpose(jvp(...))`.
        return "backward" if "transpose(" in self.source else "forward"


class Module:
    """The instructions of a compiled module.

    Attributes:
        name: Its name, such as ``jit_step``.
    """

    def __init__(self, message: Buffer) -> None:
        """Read a ``HloProto``."""
        self.name = ""
        self._instructions: dict[int, _Instruction] = {}
        self._computations: dict[int, list[_Instruction]] = {}
        for item in protobuf.fields(message):
            if item.number == 1:
                self._read_module(item.content)
        self._by_name = {instruction.name: instruction for instruction in self._instructions.values()}

    def _read_module(self, message: Buffer) -> None:
        for item in protobuf.fields(message):
            if item.number == 1:
                self.name = protobuf.text(item.content)
            elif item.number == 3:
                instructions, number = [], 0
                for part in protobuf.fields(item.content):
                    if part.number == 2:
                        instructions.append(_instruction(part.content))
                    elif part.number == 5:
                        number = part.integer
                self._computations[number] = instructions
                self._instructions.update({i.number: i for i in instructions})

    def kind(self, name: str) -> Kind | None:
        """Return the kind of an instruction; none if the module has no such instruction."""
        outer = self._by_name.get(name)
        if outer is None:
            return None
        inside = [i for i in self._inside(outer, 0) if i.opcode not in _FREE]
        if outer.opcode not in ("fusion", "call") or not inside:
            return Kind(name, _layer(outer), self._claim(outer))
        inner = max(inside, key=_weight)
        arithmetic = [i for i in inside if i.opcode not in _COPIES and i.opcode not in _HEAVY]
        if inner.opcode not in _HEAVY and len(arithmetic) > 1:
            return Kind(name, "framework", operations.rows("elementwise", inner.shape, kind="chain", dtype=inner.dtype))
        return Kind(name, _layer(inner), self._claim(inner))

    def _inside(self, outer: _Instruction, depth: int) -> Iterator[_Instruction]:
        for number in outer.called if depth < 4 else ():
            for instruction in self._computations.get(number, ()):
                yield instruction
                if instruction.opcode in ("fusion", "call"):
                    yield from self._inside(instruction, depth + 1)

    def _claim(self, instruction: _Instruction) -> Claim | None:
        inputs = [self._instructions[n] for n in instruction.operands if n in self._instructions]
        shapes = [i.shape for i in inputs]
        dtype = next((i.dtype for i in (instruction, *inputs) if i.dtype), "")
        opcode, direction = instruction.opcode, instruction.direction
        if opcode == "dot" and len(shapes) == 2:
            return _dot(shapes[0], shapes[1], instruction.dot, dtype)
        if opcode == "convolution" and len(shapes) == 2:
            return _convolution(instruction, shapes[0], shapes[1], dtype)
        if opcode == "custom-call":
            return _custom_call(instruction, dtype)
        if opcode in ("reduce", "sort", "fft"):
            indicator = {"reduce": "reduction"}.get(opcode, opcode)
            kind = "sum" if opcode == "reduce" else ""
            return operations.rows(indicator, shapes[0] if shapes else (), kind=kind, dtype=dtype)
        if opcode in ("gather", "scatter"):
            return Claim("embedding", (), dtype, direction)
        if opcode in _KINDS:
            return operations.rows("elementwise", instruction.shape, kind=_KINDS[opcode], dtype=dtype)
        if opcode in _COPIES or opcode in _FREE or opcode.startswith((*_COMMUNICATION, "while", "conditional")):
            return None
        return Claim("elementwise", (), dtype, direction)


def _weight(instruction: _Instruction) -> tuple[int, int]:
    """Return how much an instruction decides the time of a fusion that contains it."""
    rank = _HEAVY.index(instruction.opcode) if instruction.opcode in _HEAVY else len(_HEAVY)
    return -rank, math.prod(instruction.shape) * (instruction.opcode not in _COPIES)


def _instruction(message: Buffer) -> _Instruction:
    instruction = _Instruction()
    for item in protobuf.fields(message):
        if item.number == 1:
            instruction.name = protobuf.text(item.content)
        elif item.number == 2:
            instruction.opcode = protobuf.text(item.content)
        elif item.number == 3:
            instruction.dtype, instruction.shape = _shape(item.content)
        elif item.number == 7:
            instruction.source = next(
                (protobuf.text(f.content) for f in protobuf.fields(item.content) if f.number == 2), ""
            )
        elif item.number == 15:
            instruction.window = [
                {f.number: f.integer for f in protobuf.fields(axis.content)}
                for axis in protobuf.fields(item.content)
                if axis.number == 1
            ]
        elif item.number == 16:
            instruction.convolution = _numbers(item.content)
        elif item.number == 28:
            instruction.target = protobuf.text(item.content)
        elif item.number == 30:
            instruction.dot = _numbers(item.content)
        elif item.number == 35:
            instruction.number = item.integer
        elif item.number == 36:
            instruction.operands += protobuf.integers(item)
        elif item.number == 38:
            instruction.called += protobuf.integers(item)
        elif item.number == 50:
            instruction.groups = item.integer
    return instruction


def _numbers(message: Buffer) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for item in protobuf.fields(message):
        numbers.setdefault(item.number, []).extend(protobuf.integers(item))
    return numbers


def _shape(message: Buffer) -> tuple[str, tuple[int, ...]]:
    dtype, lengths = "", []
    for item in protobuf.fields(message):
        if item.number == 2:
            dtype = _TYPES.get(item.integer, "")
        elif item.number == 3:
            lengths += protobuf.integers(item)
        elif item.number == 4 and not lengths:
            # The first array of a tuple.
            return _shape(item.content)
    return dtype, shape_of(lengths)


def _layer(instruction: _Instruction) -> str:
    opcode = instruction.opcode
    if opcode == "dot" or "gemm" in instruction.target or "matmul" in instruction.target:
        return "BLAS"
    if opcode == "convolution" or "cudnn" in instruction.target or "onednn" in instruction.target:
        return "DNN library"
    if opcode.startswith(_COMMUNICATION):
        return "communication"
    return "memory copies" if opcode in _COPIES else "framework"


def _custom_call(instruction: _Instruction, dtype: str) -> Claim | None:
    target = instruction.target.lower()
    for word, indicator in (
        ("conv", "conv2d"),
        ("gemm", "matmul"),
        ("matmul", "matmul"),
        ("fmha", "attention"),
        ("softmax", "softmax"),
        ("norm", "normalisation"),
        ("topk", "sort"),
        ("rnn", "recurrent"),
    ):
        if word in target:
            return Claim(indicator, (), dtype, instruction.direction)
    return None


def _dot(a: tuple[int, ...], b: tuple[int, ...], numbers: dict[int, list[int]], dtype: str) -> Claim:
    contracted_a, contracted_b = numbers.get(1, []), numbers.get(2, [])
    batches_a, batches_b = numbers.get(3, []), numbers.get(4, [])
    if not _are_axes(contracted_a + batches_a, a) or not _are_axes(contracted_b + batches_b, b):
        return Claim("matmul", (), dtype, "forward")
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
        dtype=dtype,
    )


def _are_axes(numbers: list[int], shape: tuple[int, ...]) -> bool:
    return all(number < len(shape) for number in numbers)


def _convolution(instruction: _Instruction, images: tuple[int, ...], filters: tuple[int, ...], dtype: str) -> Claim:
    numbers, window = instruction.convolution, instruction.window
    if instruction.direction == "backward" or any(axis.get(6, 1) > 1 for axis in window):
        # XLA writes gradients as other convolutions, from which the forward one does not follow.
        return Claim(f"conv{len(window)}d" if window else "conv2d", (), dtype, "backward")
    if not _are_axes([i for n in (7, 8, 11) for i in numbers.get(n, [0])], images) or not _are_axes(
        [i for n in (3, 4, 6) for i in numbers.get(n, [0])], filters
    ):
        return Claim("conv2d", (), dtype, "forward")
    spatial = [images[i] for i in numbers.get(11, [])]
    kernel = [filters[i] for i in numbers.get(6, [])]
    # Fields with the number 0 are left out of a message.
    batch, channels = images[numbers.get(7, [0])[0]], images[numbers.get(8, [0])[0]]
    inputs, outputs = filters[numbers.get(3, [0])[0]], filters[numbers.get(4, [0])[0]]
    return operations.convolution(
        (batch, channels, *spatial),
        (outputs, inputs, *kernel),
        stride=[axis.get(2, 1) for axis in window],
        padding=[axis.get(3, 0) for axis in window],
        dilation=[axis.get(5, 1) for axis in window],
        groups=instruction.groups or 1,
        dtype=dtype,
    )
