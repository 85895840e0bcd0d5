"""How an option is declared, once: in the annotation of a field of a frozen dataclass, an option group.

The command line, `ADVISOR_*` variables, `[tool.advisor]`, and the reference pages come from the declaration.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from knowledge.domain.errors import InputError

PROJECT = "Project"
TARGET = "Target"
OBJECTIVE = "Objective"
MEASURING = "Measuring"
INDEX = "Indexes and knowledge base"
OUTPUT = "Output"
PANELS = (PROJECT, TARGET, OBJECTIVE, MEASURING, INDEX, OUTPUT)
"""Titles of the groups of options in the help of a command, in their order."""

Scalar = str | int | float | bool | None
"""A value of a parameter or a setting."""

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, slots=True)
class Option:
    """What the name, the type and the default of a field do not say about an option.

    Attributes:
        flags: Names on the command line, separated by spaces, such as ``--requirements -r``; empty for an argument,
            and for a key that no option sets.
        help: Its meaning. ``--help`` prints the first line, the reference all lines.
        metavar: Name of the value, one word; by default the flag in capitals.
        panel: Title of its group in the help; empty for the group of options without one.
        key: Key of ``[tool.advisor]``; empty if it has none.
        numbers: Types of numbers that the key of a text may have instead; numbers may always be written as numbers.
        per_target: Whether a table ``[tool.advisor.targets.NAME]`` may have the key, too.
        has_variable: Whether an environment variable sets it; by default if it has flags and a key.
        otherwise: Text of the value where nothing sets it; the default of a field with a key is ``None``: not given.
        unset: Description of what applies then, if there is no such value.
        example: How its value is written in TOML.
        page: Page of the reference that says more, and the section of it.
        reads: Type of the text or number on the command line, if ``parse`` makes the value of it.
        parse: Makes the value of what was read from the command line, a variable or a text of ``[tool.advisor]``.
        check: Refuses wrong values, whatever they come from.
        minimum: Smallest number.
        default_text: Description of the default, if help and reference must not print the default itself.
    """

    flags: str = ""
    _: dataclasses.KW_ONLY
    help: str
    metavar: str = ""
    panel: str = ""
    key: str = ""
    numbers: tuple[type, ...] = ()
    per_target: bool = False
    has_variable: bool | None = None
    otherwise: str | None = None
    unset: str = ""
    example: str = '"..."'
    page: str = ""
    reads: Any = str
    parse: Callable[[Any], Any] | None = None
    check: Callable[[Any], object] | None = None
    minimum: float | None = None
    default_text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names on the command line; empty for an argument."""
        return tuple(self.flags.split())

    @property
    def variable(self) -> str:
        """Name of the environment variable that sets it; empty if none does."""
        if not (self.flags and self.key if self.has_variable is None else self.has_variable):
            return ""
        name = self.key or self.names[0].partition("/")[0].removeprefix("--")
        return "ADVISOR_" + name.upper().replace("-", "_")


@dataclass(frozen=True, slots=True)
class OptionField:
    """A field of an option group, with its declaration.

    Attributes:
        name: Its name.
        type: Its type, without ``None``.
        default: Its default.
        option: Its declaration.
    """

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def kind(self) -> str:
        """Kind of its value in TOML: ``text``, ``list``, ``table`` or ``boolean``."""
        if self.type is bool:
            return "boolean"
        origin = typing.get_origin(self.type)
        return "list" if origin is tuple else "table" if origin is Mapping else "text"

    @property
    def meaning(self) -> str:
        """Its meaning in one line."""
        return " ".join(self.option.help.split())

    @property
    def example(self) -> str:
        """How its value is written in TOML."""
        return "true" if self.kind == "boolean" else self.option.example

    def has_type_of(self, value: Any) -> bool:
        """Whether a value of its key has the right type, as TOML has it."""
        if self.kind != "text":
            return _is_of(self.type, value)
        numbers = {int: (int,), float: (int, float)}.get(self.type, self.option.numbers)
        is_number_only = numbers and self.option.parse is None and self.type is not str
        # A truth value is an integer in Python, and not in TOML.
        return type(value) in (numbers if is_number_only else (str, *numbers))

    def with_settings(self, value: Any, settings: Mapping[str, Any]) -> Any:
        """Return a value completed by the settings of a project and the value that holds otherwise.

        A list or a table is added to the one of the settings. A list whose default is ``None`` replaces it, and so does
        every other value that is given.
        """
        present = settings.get(self.option.key)
        if self.kind == "table":
            value = {**(present or {}), **value}
        elif self.kind == "list" and self.default is not None:
            value = (*value, *(present or ()))
        elif value is None:
            return self._otherwise if present is None else self.read(present)
        self._check(value, value)
        return value

    @property
    def _otherwise(self) -> Any:
        """Value that holds where nothing sets the option."""
        if self.kind == "list":
            return ()
        text = self.option.otherwise
        if text is None:
            return None
        return text == "true" if self.kind == "boolean" else self.read(text)

    def read(self, setting: Any) -> Any:
        """Return the value for a setting of its key.

        Raises:
            InputError: If it is not a value of the option.
        """
        value = setting
        if self.kind == "list":
            value = tuple(setting)
        elif self.kind == "text":
            value = (self.option.parse or self.type)(str(setting))
        self._check(value, setting)
        return value

    def _check(self, value: Any, written: Any) -> None:
        """Refuse a value that the declaration does not admit; the limit is one of the number that is written."""
        minimum, number = self.option.minimum, written if isinstance(written, int | float) else value
        if minimum is not None and isinstance(number, int | float) and number < minimum:
            raise InputError(f"it is {number}, and must be at least {minimum:g}")
        if self.option.check is not None and value is not None:
            self.option.check(value)


@functools.cache
def option_fields(group: type) -> tuple[OptionField, ...]:
    """Return the declared options of an option group, in their order.

    Cached, because evaluating annotations takes milliseconds.
    """
    hints = typing.get_type_hints(group, include_extras=True)
    fields = []
    for field in dataclasses.fields(group):
        hint, *metadata = typing.get_args(hints[field.name]) or (hints[field.name],)
        if declaration := next((m for m in metadata if isinstance(m, Option)), None):
            default = field.default if field.default is not dataclasses.MISSING else _value_of_factory(field)
            fields.append(OptionField(field.name, _without_none(hint), default, declaration))
    return tuple(fields)


def key_fields(group: type) -> tuple[OptionField, ...]:
    """Return the options of a group that keys of ``[tool.advisor]`` set.

    Raises:
        TypeError: If a given value of one could not be distinguished from its default.
    """
    fields = tuple(field for field in option_fields(group) if field.option.key)
    for field in fields:
        if field.kind in ("text", "boolean") and field.default is not None:
            raise TypeError(f"`{group.__name__}.{field.name}` has a key, so its default must be `None`")
    return fields


def _is_of(hint: Any, value: Any) -> bool:
    """Whether a value of TOML has a type such as ``Mapping[str, str | int]``; a list stands for a tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, list) and all(_is_of(arguments[0], entry) for entry in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_is_of(arguments[1], entry) for entry in value.values())
    return isinstance(value, hint)


def _value_of_factory(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return dataclasses.MISSING if factory is dataclasses.MISSING else factory()


def _without_none(hint: Any) -> Any:
    """Return a type without ``None``."""
    if isinstance(hint, types.UnionType):
        [hint] = [part for part in typing.get_args(hint) if part is not types.NoneType]
    return hint


def option_group(group: _Class) -> _Class:
    """Complete the docstring of an option group by the meaning of each of its options."""
    meanings = (f"        {f.name}: {f.meaning}" for f in option_fields(group))
    text = "\n".join(meanings).replace(" (repeatable)", "").replace("`", "``")
    group.__doc__ = f"{group.__doc__}\n\n    Attributes:\n{text}\n"
    return group


_Group = TypeVar("_Group")


def with_settings(options: _Group, settings: Mapping[str, Any]) -> _Group:
    """Return options completed by the settings of a project (``[tool.advisor]``) and the values that hold otherwise.

    Raises:
        InputError: If a setting is not a value of its option.
    """
    fields = key_fields(type(options))
    values = {field.name: field.with_settings(getattr(options, field.name), settings) for field in fields}
    return dataclasses.replace(options, **values)  # type: ignore[type-var]


def read_pairs(
    texts: Iterable[str], option: str, *, example: str = "name=value", allow_empty: bool = False
) -> list[tuple[str, str]]:
    """Return the name and the value of each ``NAME=VALUE`` text of an option; the example is for the error message.

    Raises:
        InputError: If a text has no name or no value.
    """
    pairs = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not (value or allow_empty):
            raise InputError(f"`{option} {text}` has no value", hint=f"write it as `{option} {example}`")
        pairs.append((name, value))
    return pairs


def read_moment(text: str, option: str) -> datetime:
    """Read a date or a time of an option; without a time zone it is UTC.

    Raises:
        InputError: If it is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"`{text}` is not a date", hint=f"write it as `{option} 2026-01-31`") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def read_gigabytes(gigabytes: float) -> float:
    """Return a number of bytes."""
    return gigabytes * 1e9


_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = "".join(rf"(?:(?P<{unit}>[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in _SECONDS)


def read_duration(text: str) -> float:
    """Return the seconds of a duration such as ``8h``, ``90m`` or ``1h30m``.

    Raises:
        InputError: If it is not a duration, or zero.
    """
    match = re.fullmatch(_DURATION, text.strip().lower())
    parts = match.groupdict(default="0") if match else {}
    seconds = sum(float(number) * _SECONDS[unit] for unit, number in parts.items())
    if seconds == 0:
        raise InputError(f"`{text}` is not a duration", hint="write it as `8h`, `90m`, `45s` or `1h30m`")
    return seconds


def read_scalar(text: str) -> Scalar:
    """Read the value of a parameter or a setting: a whole number, or a text."""
    return int(text) if text.lstrip("-").isdigit() else text
