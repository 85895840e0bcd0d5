"""Rounding of numbers: further digits differ between linear-algebra libraries."""

from __future__ import annotations

from typing import Any


def rounded(value: Any) -> Any:
    """Return a JSON-ready value with its numbers rounded to six decimal places."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
