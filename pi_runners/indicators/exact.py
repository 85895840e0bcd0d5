"""Exact integer arithmetic on whole rows at a time: Python's own long integers do the work of vector instructions.

Inputs stand for whole numbers over a common denominator (see ``WholeNumbers``). A row of them is packed into one long
integer, one number in each field of some bytes; a factor times a packed row, and the sum of such products, then take
one operation of the interpreter instead of one for each element. No framework and no rounding takes part.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import List, NamedTuple


class WholeNumbers(NamedTuple):
    """The whole numbers that bytes stand for: byte ``b`` is ``(step * b + start) / denominator``.

    Attributes:
        step: Difference of neighbouring bytes.
        start: Number of byte 0.
        denominator: What all of them are divided by.
        spread: Root of the mean square of what random bytes stand for.
    """

    step: int
    start: int
    denominator: int
    spread: float

    def row(self, raw: bytes) -> List[int]:
        """Return the whole numbers of bytes."""
        table = _table(self.step, self.start)
        return [table[byte] for byte in raw]


def whole_numbers(dtype: str) -> WholeNumbers:
    """Return what bytes stand for in an element type."""
    if dtype == "int8":
        return WholeNumbers(1, -128, 1, 73.9)
    return WholeNumbers(2, -255, 255, 3.0**-0.5)


@lru_cache(maxsize=None)
def _table(step: int, start: int) -> List[int]:
    return [step * byte + start for byte in range(256)]


def field_bytes(bound: int) -> int:
    """Return how wide a field must be for numbers of at most this size.

    Raises:
        OverflowError: If no field is wide enough.
    """
    for width in (4, 8):
        if bound < 2 ** (8 * width - 1):
            return width
    raise OverflowError("sums of up to {} do not fit into 8 bytes".format(bound))


@lru_cache(maxsize=16)
def ones(count: int, width: int) -> int:
    """Return ``count`` fields that hold 1."""
    return int.from_bytes((b"\1" + bytes(width - 1)) * count, "little")


def pack(raw: bytes, width: int, numbers: WholeNumbers) -> int:
    """Return the whole numbers of bytes as fields; a field may be negative, and then borrows from the next."""
    spread = bytearray(len(raw) * width)
    spread[::width] = raw
    return int.from_bytes(spread, "little") * numbers.step + ones(len(raw), width) * numbers.start


def unpack(fields: int, count: int, width: int) -> List[int]:
    """Return the numbers in the lowest ``count`` fields; those above must be 0."""
    bias = 1 << (8 * width - 1)
    # With the bias no field is negative, and so none borrows.
    held = (fields + ones(count, width) * bias).to_bytes(count * width, "little")
    return [number - bias for number in struct.unpack("<{}{}".format(count, {4: "I", 8: "Q"}[width]), held)]
