"""Parsing of requirements and version specifiers of untrusted documents."""

from __future__ import annotations

import re
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

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
