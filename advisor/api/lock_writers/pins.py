"""Changes the versions in a requirements file in place: comments, markers, order and all other lines stay."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name
from packaging.version import Version

_PIN = re.compile(r"^(?P<name>\s*[A-Za-z0-9][\w.-]*)(?P<rest>\s*(?:\[[^\]]*\])?\s*={2,3}\s*)(?P<version>[^\s;#\\]+)")


def with_pins(text: str, versions: Mapping[str, Version]) -> str:
    """Return the text of a requirements file with new pinned versions.

    Args:
        text: Text of the file; it must have no hashes, which would no longer match.
        versions: New versions by normalised name; other packages keep their versions.
    """
    return "".join(_line(line, versions) for line in text.splitlines(keepends=True))


def _line(line: str, versions: Mapping[str, Version]) -> str:
    match = _PIN.match(line)
    version = versions.get(canonicalize_name(match["name"].strip())) if match else None
    if match is None or version is None:
        return line
    return f"{match['name']}{match['rest']}{version}{line[match.end() :]}"
