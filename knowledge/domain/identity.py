"""Content hashes: the same content has the same identity on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Made once: making one takes longer than writing a small record.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Write ``value`` as JSON with sorted keys and no spaces.

    Raises:
        ValueError: If the value holds NaN or an infinity, which JSON cannot carry.
    """
    return _ENCODER.encode(value)


def hash_of_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def content_hash(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``, in hexadecimal."""
    return hash_of_text(canonical_json(value))
