"""Parses the messages in traces of TensorFlow and JAX, of which `messages.toml` defines the fields that are read.

The library `protobuf` parses them; the packages that contain the complete definitions are as large as TensorFlow. As it
keeps all of a message in memory, several times the size of the file, large messages are parsed in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import tomllib
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

_PART_BYTES = 2**18
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types: https://protobuf.dev/programming-guides/encoding/."""
_TYPES = {"uint64": FieldDescriptorProto.TYPE_UINT64, "bytes": FieldDescriptorProto.TYPE_BYTES}


class WireError(ValueError):
    """Raised when a message is truncated or damaged."""


def parse(name: str, content: Any) -> Any:
    """Return a message.

    Args:
        name: Its name in `messages.toml`.
        content: Its bytes.

    Raises:
        WireError: If it is truncated or damaged.
    """
    try:
        return _classes()[name].FromString(bytes(content))
    except DecodeError as error:
        raise WireError(f"a message is truncated or damaged ({error})") from None


def fields(message: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Yield the fields of a message: number, encoded field, and its content if it is a text, bytes or a message.

    Raises:
        WireError: If the message is truncated or damaged.
    """
    place = 0
    while place < len(message):
        start = place
        tag, place = _varint(message, place)
        begin = place
        if tag & 7 == _LENGTH:
            length, begin = _varint(message, place)
            place = begin + length
        elif tag & 7 == _VARINT:
            place = _varint(message, place)[1]
        elif tag & 7 in (_EIGHT_BYTES, _FOUR_BYTES):
            place += 8 if tag & 7 == _EIGHT_BYTES else 4
        else:
            raise WireError(f"a field has the unknown type {tag & 7}")
        if place > len(message):
            raise WireError("a message is truncated")
        yield tag >> 3, message[start:place], message[begin:place]


def split(message: memoryview, number: int) -> tuple[bytes, list[memoryview]]:
    """Split a message that has a long repeated field. Each part is a message: a field may be split at each element.

    Args:
        message: The encoded message.
        number: The field's number.

    Returns:
        The message without these elements, and messages of about 250 kB, each with some elements.

    Raises:
        WireError: If the message is truncated or damaged.
    """
    others, parts = bytearray(), list[memoryview]()
    first = place = 0
    for field, encoded, _ in fields(message):
        if field != number or place - first > _PART_BYTES:
            parts.append(message[first:place])
            first = place
        place += len(encoded)
        if field != number:
            others += encoded
            first = place
    return bytes(others), [part for part in (*parts, message[first:]) if part]


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return a number, and the place after it."""
    number = shift = 0
    for byte in message[place : place + 10]:
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
    raise WireError("a number is truncated or damaged")


def text(content: bytes) -> str:
    """Return the text of a field."""
    return content.decode("utf-8", "replace")


@cache
def _classes() -> dict[str, Any]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    file = FileDescriptorProto(name="trace.proto", package="trace", syntax="proto2")
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = FieldDescriptorProto.LABEL_REPEATED if kind.endswith("*") else FieldDescriptorProto.LABEL_OPTIONAL
            added, kind = message.field.add(name=field, number=number, label=label), kind.rstrip("*")
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".trace.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"trace.{name}")) for name in tables}
