"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*(?P<unit>kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*")
_DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def parse_size(text: str) -> int | None:
    """Return the number of bytes of a size such as ``200 MB`` or ``1.5GiB``; none if it is not a size."""
    match = _SIZE.fullmatch(text)
    return round(float(match["number"]) * (_DECIMAL | _BINARY)[match["unit"]]) if match else None
