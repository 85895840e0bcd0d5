"""The configuration of a published measurement: which settings change the speed, and what must be equal for a pair."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from knowledge.domain.observation import Scalar
from knowledge.exchange.published.columns import RowError, words

_ON, _OFF = frozenset({"on", "yes", "true", "1"}), frozenset({"off", "no", "false", "0"})
_NODES = frozenset({"nodes", "num nodes", "number of nodes"})
_DESCRIPTIVE = frozenset({"table", "host", "avg audio length (s)"})
"""Settings that describe a row or its result; they neither change the speed nor must they be equal."""
_BATCHES = re.compile(r"(\d[\d,]*)\s*(?:@\s*(\w+)|\(\s*(\w+)\s*\))")
_BATCH = re.compile(r"(\d{1,3}(?:,\d{3})+(?![,\d])|\d+)(k?)(?:\s*(?:@\s*\w+|\(\s*\w+\s*\)))?", re.IGNORECASE)
"""A batch size, in thousands if a `k` follows, and the precision that it belongs to."""
_BETWEEN_BATCHES = re.compile(r"\s*[,/]\s*")
_LARGEST_BATCH = 100_000_000
"""Largest batch size that is believed; recommenders in the shipped tables have up to 18 000 000."""
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings of a measurement.

    Attributes:
        speed: Settings that change the speed, as text.
        parameters: Settings that must be equal for a comparison.
        described: What describes the row, such as ``table`` and ``host``.
        nodes: Number of machines; ``None`` if it is not stated.
    """

    speed: Mapping[str, str]
    parameters: Mapping[str, int | float | str]
    described: Mapping[str, Scalar] = field(default_factory=dict)
    nodes: int | None = None


def read_settings(text: str, facts: Mapping[str, str]) -> Configuration:
    """Read the settings of a row: ``key=value`` pairs, separated by semicolons, and ``facts`` that it states elsewhere.

    Raises:
        RowError: If a part is not a pair, a key occurs twice, or a switch is neither on nor off.
    """
    pairs: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not key:
            raise RowError(f"the setting `{part}` is not `name=value`")
        if pairs.setdefault(key, value) != value:
            raise RowError(f"the setting `{key}` is stated twice")
    speed: dict[str, str] = {}
    parameters: dict[str, int | float | str] = {}
    described: dict[str, Scalar] = {}
    nodes = None
    for key, value in {**pairs, **facts}.items():
        plain = re.sub(r"[_\s]+", " ", key.lower())
        if setting := words()["switches"].get(plain):
            speed[setting] = _switch(key, value)
        elif plain == "framework" and value:
            speed["tensorrt"] = "on" if re.search("tensorrt|trt", value, re.IGNORECASE) else "off"
        elif plain in _NODES:
            nodes = whole_number(value, key)
        elif plain in _DESCRIPTIVE:
            described[plain] = value
        elif value:
            name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
            parameters[name] = int(value) if re.fullmatch(r"\d{1,9}", value) else value
    return Configuration(speed=speed, parameters=parameters, described=described, nodes=nodes)


def _switch(key: str, value: str) -> str:
    word = value.lower()
    if word in _ON | _OFF:
        return "on" if word in _ON else "off"
    raise RowError(f"the setting `{key}` is `{value}`, which is neither on nor off")


def read_batch(text: str, precision: str) -> int | str | None:
    """Return the batch size of a row; text if it is not one number, none if it is not stated.

    Where a cell states the batch of each precision (``10@FP16, 4@FP32``, ``128 (FP32) / 256 (AMP)``), that of the row's
    precision counts.

    Raises:
        RowError: If it is neither a batch size from 1 to 100 000 000 nor a list of them.
    """
    if not text:
        return None
    if _THOUSANDS.fullmatch(text) or re.fullmatch(r"\d+(?:\.0*)?", text):
        return _batch_size(text, text)
    _check_batches(text)
    batches = {(a or b).lower(): whole_number(number, "batch") for number, a, b in _BATCHES.findall(text)}
    if batches:
        names = {"amp": ("amp", "fp16", "mixed"), "fp32": ("fp32",), "tf32": ("tf32", "tf"), "fp16": ("fp16",)}
        return next((batches[n] for n in names.get(precision, (precision,)) if n in batches), text)
    return " ".join(text.split())


def _check_batches(text: str) -> None:
    """Check a cell with several batch sizes, or with one in thousands."""
    position = 0
    while match := _BATCH.match(text, position):
        size = _batch_size(match[1], text)
        if match[2] and size * 1000 > _LARGEST_BATCH:
            break
        position = match.end()
        if position == len(text):
            return
        separator = _BETWEEN_BATCHES.match(text, position)
        if separator is None:
            break
        position = separator.end()
    raise _wrong_batch(text)


def _batch_size(number: str, text: str) -> int:
    digits = number.replace(",", "").partition(".")[0].lstrip("0")
    if not digits or len(digits) > len(str(_LARGEST_BATCH)) or int(digits) > _LARGEST_BATCH:
        raise _wrong_batch(text)
    return int(digits)


def _wrong_batch(text: str) -> RowError:
    return RowError(f"`batch` is `{text[:80]}`, which is not a positive whole number up to {_LARGEST_BATCH:,}")


def least_batch(batch: int | str | None) -> int:
    """Return the least batch size that a cell can mean: thousands of `64k`; 1 if it is not stated or not one number."""
    if isinstance(batch, int):
        return batch
    thousands = re.fullmatch(r"(\d{1,6})k", batch or "", re.IGNORECASE)
    return int(thousands[1]) * 1000 if thousands else 1


def whole_number(text: str, column: str) -> int:
    """Return a positive whole number.

    Raises:
        RowError: If the text is none.
    """
    plain = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    if not re.fullmatch(r"\d{1,9}(?:\.0*)?", plain) or int(float(plain)) < 1:
        raise RowError(f"`{column}` is `{text}`, which is not a positive whole number")
    return int(float(plain))
