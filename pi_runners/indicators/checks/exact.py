"""Exact integer arithmetic on whole rows, with Python's long integers instead of vector instructions.

Inputs are integers over a common denominator (see ``WholeNumbers``). A row is packed into one long integer, with one
number in each field of a few bytes. A factor times a packed row, or a sum of such products, then takes one operation of
the interpreter instead of one for each element. It uses no framework and no rounding.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import List, NamedTuple


class WholeNumbers(NamedTuple):
    """Integers that represent bytes: byte ``b`` is the number ``(step * b + start) / denominator``.

    Attributes:
        step: Difference between successive bytes.
        start: Integer of byte 0.
        denominator: Common denominator.
        spread: Root mean square of the numbers of random bytes.
    """

    step: int
    start: int
    denominator: int
    spread: float

    def row(self, raw: bytes) -> List[int]:
        """Return the integers of bytes."""
        table = _table(self.step, self.start)
        return [table[byte] for byte in raw]


def whole_numbers(dtype: str) -> WholeNumbers:
    """Return the integers that represent bytes in an element type."""
    if dtype == "int8":
        return WholeNumbers(1, -128, 1, 73.9)
    return WholeNumbers(2, -255, 255, 3.0**-0.5)


@lru_cache(maxsize=None)
def _table(step: int, start: int) -> List[int]:
    return [step * byte + start for byte in range(256)]


def field_bytes(bound: int) -> int:
    """Return the bytes of a field for numbers of at most this absolute value.

    Raises:
        OverflowError: If the numbers do not fit into 8 bytes.
    """
    for width in (4, 8):
        if bound < 2 ** (8 * width - 1):
            return width
    raise OverflowError("sums of up to {} do not fit into 8 bytes".format(bound))


@lru_cache(maxsize=16)
def ones(count: int, width: int) -> int:
    """Return ``count`` fields that contain 1."""
    return int.from_bytes((b"\1" + bytes(width - 1)) * count, "little")


def pack(raw: bytes, width: int, numbers: WholeNumbers) -> int:
    """Pack the integers of bytes into fields; a negative field borrows from the next one."""
    spread = bytearray(len(raw) * width)
    spread[::width] = raw
    return int.from_bytes(spread, "little") * numbers.step + ones(len(raw), width) * numbers.start


def unpack(fields: int, count: int, width: int) -> List[int]:
    """Return the numbers of the lowest ``count`` fields; all higher fields must be 0."""
    bias = 1 << (8 * width - 1)
    # With the bias, no field is negative, so none borrows.
    stored = (fields + ones(count, width) * bias).to_bytes(count * width, "little")
    return [number - bias for number in struct.unpack("<{}{}".format(count, {4: "I", 8: "Q"}[width]), stored)]
