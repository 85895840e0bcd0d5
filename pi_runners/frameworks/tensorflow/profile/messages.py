"""Parses the messages in traces of TensorFlow and JAX, of which `messages.toml` defines the fields that are read.

The library `protobuf` parses them; the packages that contain the complete definitions are as large as TensorFlow.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import tomllib
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

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
        return _classes()[name].FromString(content)
    except DecodeError as error:
        raise WireError(f"a message is truncated or damaged ({error})") from None


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
