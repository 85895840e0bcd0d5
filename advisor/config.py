"""Settings: flags > ADVISOR_* variables > `[tool.advisor]` > defaults; the command line reads the first two."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
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

TABLES = ("package-index", "settings")
"""Keys that hold tables of text: packages' indexes, and the run-time switches that the project sets."""

TARGET_KEYS = ("hardware", "python", "platform", "workload", "lock")
"""Keys of a table of `[tool.advisor.targets]`."""


def variable_of(key: str) -> str:
    """Return the environment variable that stands for a key."""
    return "ADVISOR_" + key.upper().replace("-", "_")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the nearest known word, or else all of them; empty where there are none."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known are {', '.join(f'`{k}`' for k in known)}" if known else ""


def check_table(table: Mapping[str, Any], where: str) -> None:
    """Refuse keys of `[tool.advisor]` that do not exist, and values of another kind than theirs.

    The table `gate` is read by :mod:`advisor.gate.policy`.

    Raises:
        InputError: At the first one; the message names the nearest key.
    """
    for key, value in table.items():
        if key in LISTS:
            fits, example = isinstance(value, list) and all(isinstance(v, str) for v in value), '["numpy<2"]'
        elif key in TABLES:
            kinds = str if key == "package-index" else str | int
            fits = isinstance(value, dict) and all(isinstance(v, kinds) for v in value.values())
            example = '{ torch = "https://..." }' if key == "package-index" else '{ onednn = "on" }'
        elif key == "targets":
            fits, example = isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()), "{ gpu = {} }"
            if fits:
                _check_targets(value, where)
        elif key == "gate":
            fits, example = isinstance(value, dict), "{ max-gap = 0.1 }"
        elif key in KEYS:
            fits, example = isinstance(value, str) or (key == "min-age" and type(value) is int), '"..."'
        else:
            known = (*KEYS, *LISTS, *TABLES, "targets", "gate")
            raise InputError(f"`{where}`: `[tool.advisor]` has no key `{key}`", hint=nearest(key, known))
        if not fits:
            raise InputError(
                f"`{where}`: `tool.advisor.{key}` has a value of the wrong kind",
                hint=f"write it as `{key} = {example}`",
            )


def _check_targets(targets: Mapping[str, Mapping[str, Any]], where: str) -> None:
    for name, table in targets.items():
        for key, value in table.items():
            if key not in TARGET_KEYS:
                raise InputError(
                    f"`{where}`: `[tool.advisor.targets.{name}]` has no key `{key}`", hint=nearest(key, TARGET_KEYS)
                )
            if not isinstance(value, str):
                raise InputError(
                    f"`{where}`: `tool.advisor.targets.{name}.{key}` has a value of the wrong kind",
                    hint=f'write it as `{key} = "..."`',
                )


def choose(key: str, given: str | None, table: Mapping[str, Any]) -> str | None:
    """Return what was given on the command line, else the project's table, else the default."""
    if given is not None:
        return given
    found = table.get(key, KEYS[key])
    return None if found is None else str(found)


def line_in(text: str, *parts: str) -> int:
    """Return the line of a text, from 1, that holds the last of some parts, each searched for behind the one before."""
    place = 0
    for part in parts:
        place = max(place, text.find(part, place))
    return text.count("\n", 0, place) + 1
