"""Records of values, and their hashes: the same content has the same identity on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

# Created once: creating an encoder takes longer than encoding a small record.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class StrictRecord:
    """A dataclass that pydantic reads from records of files; a field that it does not have is an error."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}


def canonical_json(value: Any) -> str:
    """Return a value as JSON with sorted keys and no spaces.

    Raises:
        ValueError: If the value contains NaN or an infinity, which JSON does not support.
    """
    return _ENCODER.encode(value)


def hash_of_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def content_hash(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, in hexadecimal."""
    return hash_of_text(canonical_json(value))


def plain(value: Any) -> Any:
    """Return a value as JSON-ready data that is equal in every process.

    Dataclasses are their public fields, sets are sorted, and other values are their text. A function is `None`: it
    belongs to the program.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        return None
    if is_dataclass(value):
        # Private fields are computed from the others.
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if not f.name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((plain(item) for item in value), key=canonical_json)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)
