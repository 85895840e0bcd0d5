"""Changes pins of a requirements file in place: comments, markers, order and all other lines stay."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.utils import canonicalize_name
from packaging.version import Version

_PIN = re.compile(r"^(?P<name>\s*[A-Za-z0-9][\w.-]*)(?P<rest>\s*(?:\[[^\]]*\])?\s*={2,3}\s*)(?P<version>[^\s;#\\]+)")


def with_pins(text: str, versions: Mapping[str, Version]) -> str:
    """Return a requirements file with other versions in its pins.

    Args:
        text: The file; without hashes, which would not fit any more.
        versions: New version by normalised name; pins of other packages stay.
    """
    return "".join(_line(line, versions) for line in text.splitlines(keepends=True))


def _line(line: str, versions: Mapping[str, Version]) -> str:
    match = _PIN.match(line)
    version = versions.get(canonicalize_name(match["name"].strip())) if match else None
    if match is None or version is None:
        return line
    return f"{match['name']}{match['rest']}{version}{line[match.end() :]}"
