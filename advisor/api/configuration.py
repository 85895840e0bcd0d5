"""Keys, defaults and validation of the `[tool.advisor]` table of `pyproject.toml`.

A setting is taken from the command-line option, else from its `ADVISOR_*` environment variable, else from
`[tool.advisor]`, else from the defaults here. The command line reads the first two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.domain.preview import check_previews
from advisor.domain.words import quoted
from knowledge.domain.errors import InputError
from knowledge.domain.suggestions import suggest

KEYS = {
    "hardware": "detect",
    "python": None,
    "platform": None,
    "workload": None,
    "objective": "performance",
    "knowledge": None,
    "min-age": "14",
    "min-gain": "3%",
    "max-size": None,
    "index-strategy": None,
    "advisories": None,
}
"""Keys of `[tool.advisor]` with a text or a number as value, and their defaults; `None`: each command has its own."""

LISTS = ("constraints", "overrides", "allow")
"""Keys whose value is a list: of requirements, and of what is allowed in addition."""

ALLOWED = ("replace-packages", "reduced-precision")
"""What can be allowed in addition."""

NAMES = ("preview",)
"""Keys whose value is a list of names: the preview features."""

TABLES = ("package-index", "settings", "index-mirrors", "replace-packages")
"""Keys whose value is a table: the index of a package, the run-time settings of the project, another address for the
addresses that begin with a text, and the packages that may be taken instead of others."""

BOOLEANS = ("framework-indexes", "recommend-settings")
"""Keys whose value is true or false."""

_EXAMPLES = {
    "constraints": '["numpy<2"]',
    "overrides": '["numpy<2"]',
    "allow": '["replace-packages"]',
    "package-index": '{ torch = "https://..." }',
    "settings": '{ onednn = "on" }',
    "index-mirrors": '{ "https://download.pytorch.org/whl/" = "https://..." }',
    "replace-packages": '{ tensorflow = "tensorflow-cpu" }',
}

TARGET_KEYS = ("hardware", "python", "platform", "workload", "lock", "max-size")
"""Keys of each table `[tool.advisor.targets.NAME]`."""


def variable_of(key: str) -> str:
    """Return the name of the environment variable that sets a key."""
    return "ADVISOR_" + key.upper().replace("-", "_")


def check_table(table: Mapping[str, Any], where: str) -> None:
    """Check that every key of `[tool.advisor]` exists and has a value of the right type.

    The contents of the table `gate` are checked by :mod:`advisor.gate.policy`, those of `benchmark` by
    :mod:`advisor.project.benchmark`, those of `metadata` by :mod:`advisor.project.metadata.stated_metadata`.

    Args:
        table: The contents of `[tool.advisor]`.
        where: The file, for messages.

    Raises:
        InputError: At the first invalid key or value; the hint of an invalid key is the most similar valid key.
    """
    for key, value in table.items():
        if key in LISTS:
            valid, example = isinstance(value, list) and all(isinstance(v, str) for v in value), _EXAMPLES[key]
        elif key in NAMES:
            valid, example = isinstance(value, list) and all(isinstance(v, str) for v in value), '["variants"]'
            if valid:
                check_previews(value, where=where)
        elif key in TABLES:
            types = str | int if key == "settings" else str
            valid = isinstance(value, dict) and all(isinstance(v, types) for v in value.values())
            example = _EXAMPLES[key]
        elif key in BOOLEANS:
            valid, example = isinstance(value, bool), "true"
        elif key == "targets":
            valid, example = (
                isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()),
                "{ gpu = {} }",
            )
            if valid:
                _check_targets(value, where)
        elif key == "gate":
            valid, example = isinstance(value, dict), "{ max-gap = 0.1 }"
        elif key == "metadata":
            valid = isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
            example = '[{ name = "...", requires-dist = ["..."] }]'
        elif key == "benchmark":
            valid, example = isinstance(value, dict), '{ command = "python bench.py" }'
        elif key in KEYS:
            valid = isinstance(value, str) or (key == "min-age" and type(value) is int)
            valid = valid or (key == "min-gain" and type(value) in (int, float))
            example = {"max-size": '"2GB"', "min-gain": '"3%"'}.get(key, '"..."')
        else:
            hint = suggest(key, (*KEYS, *LISTS, *NAMES, *TABLES, *BOOLEANS, "targets", "gate", "benchmark", "metadata"))
            raise InputError(f"`{where}`: `[tool.advisor]` has no key `{key}`", hint=hint)
        if not valid:
            raise InputError(
                f"`{where}`: `tool.advisor.{key}` has a value of the wrong type",
                hint=f"write it as `{key} = {example}`",
            )


def _check_targets(targets: Mapping[str, Mapping[str, Any]], where: str) -> None:
    for name, table in targets.items():
        for key, value in table.items():
            if key not in TARGET_KEYS:
                raise InputError(
                    f"`{where}`: `[tool.advisor.targets.{name}]` has no key `{key}`", hint=suggest(key, TARGET_KEYS)
                )
            if not isinstance(value, str):
                raise InputError(
                    f"`{where}`: `tool.advisor.targets.{name}.{key}` has a value of the wrong type",
                    hint=f'write it as `{key} = "..."`',
                )


def check_allowed(names: Iterable[str]) -> None:
    """Check that what is allowed in addition exists.

    Raises:
        InputError: At the first name that is unknown.
    """
    for name in names:
        if name not in ALLOWED:
            raise InputError(
                f"`{name}` cannot be allowed", hint=suggest(name, ALLOWED) or f"it can be {quoted(ALLOWED)}"
            )


def choose(key: str, option: str | None, table: Mapping[str, Any]) -> str | None:
    """Return the value of a setting: of the command-line option, else of the project's table, else the default.

    Args:
        key: One of :data:`KEYS`.
        option: Value of the command-line option or its environment variable; none if neither is set.
        table: The contents of `[tool.advisor]`.
    """
    if option is not None:
        return option
    value = table.get(key, KEYS[key])
    return None if value is None else str(value)
