"""Random numbers that every framework computes with, made from bytes."""

from __future__ import annotations

import io
import random
from typing import List

_NUMBERS = [(byte - 127.5) / 127.5 for byte in range(256)]
_CHUNK_BYTES = 2**22


def decode(raw: bytes, dtype: str) -> List[float]:
    """Return the numbers of bytes; see :class:`pi_runners.harness.contract.Backend`."""
    if dtype == "int8":
        return [float(byte - 128) for byte in raw]
    return [_NUMBERS[byte] for byte in raw]


def random_bytes(seed: int, count: int) -> bytes:
    """Return reproducible random bytes; the peak memory is their own size plus one chunk."""
    generator = random.Random(seed)
    if 0 < count <= _CHUNK_BYTES:
        return generator.getrandbits(8 * count).to_bytes(count, "little")
    # `getrandbits` counts bits in a C int, so one call gives at most 256 MiB. Chunks give the same bytes as one call.
    stream = io.BytesIO()
    # Allocate the whole length first: a growing stream is copied.
    stream.seek(max(0, count - 1))
    stream.write(bytes(min(1, count)))
    stream.seek(0)
    for start in range(0, count, _CHUNK_BYTES):
        length = min(_CHUNK_BYTES, count - start)
        stream.write(generator.getrandbits(8 * length).to_bytes(length, "little"))
    return stream.getvalue()
