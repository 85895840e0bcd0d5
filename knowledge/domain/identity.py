"""Content hashes: the same content has the same identity on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Created once: creating an encoder takes longer than encoding a small record.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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
