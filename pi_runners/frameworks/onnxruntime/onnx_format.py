"""Encoder of ONNX models, so that a measured environment needs no package except ONNX Runtime.

The fields and their numbers are those of ``onnx.proto`` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), the
encoding is that of Protocol Buffers (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "float16": 10, "float64": 11}
"""TensorProto.DataType."""
_IR_VERSION, _OPSET = 8, 17


class Graph:
    """A graph under construction."""

    def __init__(self) -> None:
        self._nodes: List[bytes] = []
        self._initialisers: List[Any] = []
        self._inputs: List[bytes] = []
        self._count = 0

    def name(self) -> str:
        """Return an unused name."""
        self._count += 1
        return "v{}".format(self._count)

    def add_input(self, dtype: str, shape: Sequence[int]) -> str:
        """Add an input of this element type and shape."""
        name = self.name()
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def add_constant(self, raw: Any, dtype: str, shape: Sequence[int]) -> str:
        """Add a constant tensor from little-endian bytes, or from an array of them; the graph does not copy them."""
        name = self.name()
        head = b"".join(_number(1, length) for length in shape)
        head += _number(2, ELEMENT_TYPES[dtype]) + _text(8, name) + _tag(9, len(raw))
        self._initialisers += (_tag(5, len(head) + len(raw)) + head, raw)
        return name

    def add_node(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> List[str]:
        """Add an operator and return the names of its outputs; an empty input name omits an optional input."""
        names = [self.name() for _ in range(outputs)]
        body = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in names)
        body += _text(4, operator)
        body += b"".join(_field(5, _attribute(key, value)) for key, value in sorted(attributes.items()))
        self._nodes.append(body)
        return names

    def encode(self, output: "Symbol") -> bytes:
        """Return the encoded model with one output, whose lengths are not specified."""
        head = b"".join(_field(1, node) for node in self._nodes) + _text(2, "indicator")
        tail = b"".join(_field(11, value_info) for value_info in self._inputs)
        tail += _field(12, _value_info(output.name, output.dtype, [None] * output.rank))
        graph = [head, *self._initialisers, tail]
        opset = _field(8, _text(1, "") + _number(2, _OPSET))
        # One copy: the weights of a model may be gigabytes.
        return b"".join([_number(1, _IR_VERSION), _tag(7, sum(map(len, graph))), *graph, opset])


class Symbol(NamedTuple):
    """An array of a graph under construction.

    Attributes:
        graph: The graph.
        name: Name in the graph.
        dtype: Element type.
        rank: Number of axes.
    """

    graph: Graph
    name: str
    dtype: str
    rank: int


def _attribute(name: str, value: Any) -> bytes:
    kinds: Dict[type, Any] = {
        float: lambda: _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1),
        int: lambda: _number(3, value) + _number(20, 2),
        str: lambda: _text(4, value) + _number(20, 3),
        list: lambda: b"".join(_number(8, n) for n in value) + _number(20, 7),
    }
    encoded: bytes = _text(1, name) + kinds[type(value)]()
    return encoded


def _value_info(name: str, dtype: str, shape: Sequence[Optional[int]]) -> bytes:
    dims = b"".join(_field(1, b"" if length is None else _number(1, length)) for length in shape)
    tensor = _number(1, ELEMENT_TYPES[dtype]) + _field(2, dims)
    return _text(1, name) + _field(2, _field(1, tensor))


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _tag(field: int, length: int) -> bytes:
    return _varint(field << 3 | 2) + _varint(length)


def _field(field: int, body: bytes) -> bytes:
    return _tag(field, len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())
