"""Parsing of text that others wrote: TOML, requirements, version specifiers, and lines."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

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


# Comparing versions turns digits into numbers, for which Python has a limit of 4300 digits
# (https://docs.python.org/3/library/stdtypes.html#integer-string-conversion-length-limitation).
_LONG_NUMBER = re.compile(r"\d{1000}")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers
_LOCKS_ONLY = re.compile(r"\b(?:extras|dependency_groups)\b")


def requirement_from(text: str) -> Requirement:
    """Parse a requirement (PEP 508).

    Raises:
        InvalidRequirement: If the text is not a requirement, contains a number of 1000 digits, nests too many
            parentheses, or has a marker that is valid only in locks.
    """
    if _LONG_NUMBER.search(text):
        raise InvalidRequirement("a number in it has 1000 digits or more")
    try:
        requirement = Requirement(text)
        name = _LOCKS_ONLY.search(_QUOTED.sub("", str(requirement.marker or "")))
    except RecursionError:
        raise InvalidRequirement("its marker has too many nested parentheses") from None
    if name:
        raise InvalidRequirement(f"its marker uses `{name[0]}`, which is valid only in locks")
    return requirement


def specifiers_from(text: Any) -> SpecifierSet:
    """Parse version specifiers (PEP 440).

    Raises:
        InvalidSpecifier: If the value is not a text, not a specifier, or contains a number of 1000 digits.
    """
    if not isinstance(text, str) or _LONG_NUMBER.search(text):
        raise InvalidSpecifier(f"Invalid specifier: {str(text)[:80]!r}")
    return SpecifierSet(text)


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, which end only with ``\n`` or ``\r\n``.

    ``str.splitlines`` also splits at characters that a message may contain, such as U+2028 and U+0085.
    """
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
