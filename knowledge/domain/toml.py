"""TOML that others wrote."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_PARTS = 100
# Texts and comments, as https://toml.io/en/v1.0.0 defines them. One without an end reaches to the end of its line, or
# of the document: the parser goes no further, and the search takes a time that is linear in the length.
_TEXTS = re.compile(
    r'"""(?:[^"\\]|\\.?|"{1,2}(?!"))*(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
_LONG_INTEGER = re.compile(r"0[xob][0-9A-Fa-f_]{1000}")
_BETWEEN = re.compile(r"[=,\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a document.

    ``tomllib`` takes memory and time that are quadratic in the parts of a dotted key: one of 32 KB takes 1 GB. Later
    Pythons limit them to 1000 (https://github.com/python/cpython/issues/149231), of which a document may hold many.

    Raises:
        tomllib.TOMLDecodeError: If it is no TOML, or a key has more than 100 parts, or an integer 1000 digits.
        RecursionError: If it is too deeply nested.
    """
    plain = _TEXTS.sub(lambda match: "_" + "\n" * match[0].count("\n"), text)
    for number, line in enumerate(plain.split("\n"), start=1):
        if line.count(".") >= _MOST_PARTS and any(s.count(".") >= _MOST_PARTS for s in _BETWEEN.split(line)):
            raise tomllib.TOMLDecodeError(f"a key has more than {_MOST_PARTS} parts (at line {number})")
        if _LONG_INTEGER.search(line):
            # Python reads it, but refuses to print it, as decimal ones of more than 4300 digits.
            raise tomllib.TOMLDecodeError(f"an integer has more than 1000 digits (at line {number})")
    return tomllib.loads(text)
