"""The interpreter that a lock of this program is for."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.pylock import is_valid_pylock_path

from knowledge.domain.documents import parse_toml

_MINOR = re.compile(r"==(\d+\.\d+)\.\*")
_FIRST_LINE = re.compile(r"# by advisor, for Python (\d+\.\d+) ")


def locked_python(path: Path) -> str | None:
    """Return `major.minor` of the interpreter that a lock is for; none if it does not state exactly one.

    Args:
        path: A `pylock.toml` or a requirements file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if not is_valid_pylock_path(path):
            match = _FIRST_LINE.match(text)
        else:
            match = _MINOR.fullmatch(str(parse_toml(text).get("requires-python", "")))
    except (OSError, ValueError, RecursionError):
        return None
    return match[1] if match else None
