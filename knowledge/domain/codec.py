"""Frozen dataclasses as JSON-ready values, and back, by the types of their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from packaging.version import Version

_T = TypeVar("_T")


def encoded(value: Any) -> Any:
    """Return a value as JSON-ready data: a dataclass is the list of its fields, a mapping a list of pairs."""
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return [encoded(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [[encoded(key), encoded(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [encoded(item) for item in value]
    return str(value) if isinstance(value, Version) else value


def decoded(kind: type[_T], data: Any) -> _T:
    """Return the value of a type from the data of :func:`encoded`.

    The type is a dataclass, ``Version``, ``tuple``, ``Mapping``, a type of JSON, or one of them or `None`.
    """
    value: _T = _decoder(kind)(data)  # type: ignore[arg-type]
    return value


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    parts, origin = get_args(kind), get_origin(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [field.name for field in fields(kind)]
        of_fields = {name: decode for name in names if (decode := _decoder(hints[name])) is not _unchanged}

        def of_dataclass(data: Any) -> Any:
            values = dict(zip(names, data, strict=True))
            values.update((name, decode(values[name])) for name, decode in of_fields.items())
            return kind(**values)  # type: ignore[operator]

        return of_dataclass
    if origin is Mapping:
        of_key, of_item = map(_decoder, parts)
        return lambda data: {of_key(key): of_item(item) for key, item in data}
    if origin is tuple and parts[-1] is Ellipsis:
        of_each = _decoder(parts[0])
        return tuple if of_each is _unchanged else lambda data: tuple(map(of_each, data))
    if origin is tuple:
        of_places = [_decoder(part) for part in parts]
        return lambda data: tuple(decode(item) for decode, item in zip(of_places, data, strict=True))
    if origin is UnionType:
        (of_value,) = (_decoder(part) for part in parts if part is not NoneType)
        return of_value if of_value is _unchanged else lambda data: None if data is None else of_value(data)
    return Version if kind is Version else _unchanged


def _unchanged(data: Any) -> Any:
    return data
