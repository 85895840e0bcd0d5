"""Content hashes: the same content has the same identity on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Write ``value`` as JSON with sorted keys and no spaces.

    Raises:
        ValueError: If the value holds NaN or an infinity, which JSON cannot carry.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
