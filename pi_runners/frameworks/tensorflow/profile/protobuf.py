"""Reads messages in the wire format of Protocol Buffers without their definitions.

The format: https://protobuf.dev/programming-guides/encoding/. The traces of TensorFlow and JAX use it; the libraries
that define their messages are part of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

Buffer = memoryview


class WireError(ValueError):
    """Raised when a message is truncated or not in the wire format."""


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: Its number.
        integer: Value of an integer or fixed-width field; 0 for others.
        content: Content of a field with a length; empty for others.
    """

    number: int
    integer: int
    content: Buffer


_EMPTY = memoryview(b"")


def fields(message: Buffer) -> Iterator[Field]:
    """Yield the fields of a message in their order.

    Raises:
        WireError: If the message is truncated or damaged.
    """
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield Field(number, value, _EMPTY)
        elif kind == 2:
            length, position = _varint(message, position)
            if position + length > end:
                raise WireError("a message is truncated")
            yield Field(number, 0, message[position : position + length])
            position += length
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            if position + width > end:
                raise WireError("a message is truncated")
            yield Field(number, int.from_bytes(message[position : position + width], "little"), _EMPTY)
            position += width
        else:
            raise WireError(f"a message has a field of the unknown type {kind}")


def _varint(message: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                raise WireError("an integer has more than 64 bits")
    except IndexError:
        raise WireError("a message is truncated") from None


def integers(field: Field) -> list[int]:
    """Return the integers of a repeated field, which is packed or holds one of them."""
    if not field.content:
        return [field.integer]
    values, position = [], 0
    while position < len(field.content):
        value, position = _varint(field.content, position)
        values.append(value)
    return values


def text(content: Buffer) -> str:
    """Return the text of a field."""
    return bytes(content).decode("utf-8", "replace")
