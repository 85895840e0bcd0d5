"""Settings: flags > ADVISOR_* variables > `[tool.advisor]` > defaults; the command line reads the first two."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from knowledge.domain.errors import InputError

KEYS = {
    "hardware": "detect",
    "python": None,
    "platform": None,
    "workload": "equal",
    "objective": "performance",
    "knowledge": None,
}
"""Keys of `[tool.advisor]` with their defaults; none means that the command decides."""


def check_table(table: Mapping[str, Any], where: str) -> None:
    """Refuse keys of `[tool.advisor]` that do not exist, and values that are no text.

    Raises:
        InputError: At the first one; the message names the nearest key.
    """
    for key, value in table.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(f'`{k}`' for k in KEYS)}"
            raise InputError(f"`{where}`: `[tool.advisor]` has no key `{key}`", hint=hint)
        if not isinstance(value, str):
            raise InputError(f"`{where}`: `tool.advisor.{key}` is not text", hint=f'write it as `{key} = "..."`')


def choose(key: str, given: str | None, table: Mapping[str, Any]) -> str | None:
    """Return what was given on the command line, else the project's table, else the default."""
    if given is not None:
        return given
    found = table.get(key, KEYS[key])
    return None if found is None else str(found)
