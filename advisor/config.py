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
    "workload": None,
    "objective": "performance",
    "knowledge": None,
    "min-age": "14",
    "index-strategy": None,
}
"""Keys of `[tool.advisor]` that hold text or a number, with their defaults; none means that the command decides."""

DEFAULT_WORKLOAD = "equal"
"""Workload of a project that names none, and whose sources speak for none."""

LISTS = ("constraints", "overrides")
"""Keys that hold lists of requirements."""

TABLES = ("package-index",)
"""Keys that hold tables of text."""


def check_table(table: Mapping[str, Any], where: str) -> None:
    """Refuse keys of `[tool.advisor]` that do not exist, and values of another kind than theirs.

    Raises:
        InputError: At the first one; the message names the nearest key.
    """
    for key, value in table.items():
        if key in LISTS:
            fits, example = isinstance(value, list) and all(isinstance(v, str) for v in value), '["numpy<2"]'
        elif key in TABLES:
            fits = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
            example = '{ torch = "https://..." }'
        elif key in KEYS:
            fits, example = isinstance(value, str) or (key == "min-age" and type(value) is int), '"..."'
        else:
            known = (*KEYS, *LISTS, *TABLES)
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(f'`{k}`' for k in known)}"
            raise InputError(f"`{where}`: `[tool.advisor]` has no key `{key}`", hint=hint)
        if not fits:
            raise InputError(
                f"`{where}`: `tool.advisor.{key}` has a value of the wrong kind",
                hint=f"write it as `{key} = {example}`",
            )


def choose(key: str, given: str | None, table: Mapping[str, Any]) -> str | None:
    """Return what was given on the command line, else the project's table, else the default."""
    if given is not None:
        return given
    found = table.get(key, KEYS[key])
    return None if found is None else str(found)
