"""The table `[tool.advisor]` of `pyproject.toml`: its keys, and the check of its values.

A setting is taken from the command-line option, else from its `ADVISOR_*` environment variable, else from
`[tool.advisor]`, else from the declaration of its option in :mod:`advisor.api.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from advisor.api.option import OptionField, key_fields
from advisor.api.options import GROUPS
from knowledge.domain.errors import InputError, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of `[tool.advisor]`.

    Attributes:
        name: The key.
        is_valid: Whether a value has the right type.
        example: How the value is written.
        meaning: What it is for.
        page: Page of the reference that says more.
        field: The option that it sets; ``None`` if there is none.
    """

    name: str
    is_valid: Callable[[Any], bool]
    example: str
    meaning: str = ""
    page: str = ""
    field: OptionField | None = None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _is_table(value: Any, types: Any = str) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, types) for entry in value.values())


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "list": _is_list,
    "table": _is_table,
    "boolean": lambda value: isinstance(value, bool),
}
_FURTHER_LISTS = (
    Key(
        name="constraints",
        is_valid=_is_list,
        example='["numpy<2"]',
        meaning="Constraints, in addition to `--constraint`.",
    ),
    Key(
        name="overrides",
        is_valid=_is_list,
        example='["numpy<2"]',
        meaning="Requirements that replace others, in addition to `--override`.",
    ),
)
_FURTHER_TABLES = (
    Key(
        name="settings",
        is_valid=lambda value: _is_table(value, str | int),
        example='{ onednn = "on" }',
        meaning="Run-time settings of the project, for `advisor check`.",
        page="settings.md",
    ),
    Key(
        name="index-mirrors",
        is_valid=_is_table,
        example='{ "https://download.pytorch.org/whl/" = "https://..." }',
        meaning="Another address for the addresses that begin with a text.",
    ),
    Key(
        name="replace-packages",
        is_valid=_is_table,
        example='{ tensorflow = "tensorflow-cpu" }',
        meaning="Packages that are taken instead of others.",
        page="../how-to/choose-builds.md#replace-packages",
    ),
    Key(
        name="benchmark",
        is_valid=lambda value: isinstance(value, dict),
        example='{ command = "python bench.py" }',
        meaning="The benchmark of the project: `command`, `metric`, `files` and `warmup`.",
        page="../how-to/measure-your-program.md#define-the-benchmark",
    ),
    Key(
        name="metadata",
        is_valid=lambda value: isinstance(value, list) and all(isinstance(entry, dict) for entry in value),
        example='[{ name = "...", requires-dist = ["..."] }]',
        meaning="Metadata that the project states for packages.",
        page="cli.md#metadata-that-the-project-states",
    ),
    Key(
        name="gate",
        is_valid=lambda value: isinstance(value, dict),
        example="{ max-gap = 0.1 }",
        meaning="The policy of the gate.",
        page="gate.md#the-policy",
    ),
    Key(
        name="targets",
        is_valid=lambda value: _is_table(value, dict),
        example="{ gpu = {} }",
        meaning="Several targets, each a table `[tool.advisor.targets.NAME]`.",
        page="gate.md#targets",
    ),
)
_ORDER = ("text", "list", "boolean", "table")


def keys() -> dict[str, Key]:
    """Return all keys by their names: texts and numbers first, then lists, truth values and tables."""
    pairs = [
        *(("list", key) for key in _FURTHER_LISTS),
        *((field.kind, _key_of(field)) for group in GROUPS for field in key_fields(group)),
        *(("table", key) for key in _FURTHER_TABLES),
    ]
    return {key.name: key for _, key in sorted(pairs, key=lambda pair: _ORDER.index(pair[0]))}


def _key_of(field: OptionField) -> Key:
    option = field.option
    types = field.toml_types
    return Key(
        name=option.key,
        # A truth value is an integer in Python, and not in TOML.
        is_valid=_KINDS.get(field.kind, lambda value: type(value) in types),
        example="true" if field.kind == "boolean" else option.example,
        meaning=" ".join(option.help.split()),
        page=option.page,
        field=field,
    )


def target_keys() -> dict[str, Key]:
    """Return the keys of each table `[tool.advisor.targets.NAME]`."""
    lock = Key(name="lock", is_valid=lambda value: isinstance(value, str), example='"..."')
    own = {name: key for name, key in keys().items() if key.field is not None and key.field.option.per_target}
    return {**own, lock.name: lock}


def check_table(table: Mapping[str, Any], where: str) -> None:
    """Check that every key of `[tool.advisor]` and of the tables of its targets exists and has a correct value.

    Three tables have checks of their own: `gate` in :mod:`advisor.gate.policy`, `benchmark` in
    :mod:`advisor.project.benchmark`, and `metadata` in :mod:`advisor.project.metadata.stated_metadata`.

    Args:
        table: The contents of `[tool.advisor]`.
        where: The file, for messages.

    Raises:
        InputError: At the first invalid key or value; the hint of an invalid key is the most similar valid key.
    """
    _check_keys(table, keys(), "tool.advisor", where)
    for name, own in table.get("targets", {}).items():
        _check_keys(own, target_keys(), f"tool.advisor.targets.{name}", where)


def _check_keys(table: Mapping[str, Any], valid_keys: Mapping[str, Key], path: str, where: str) -> None:
    for name, value in table.items():
        key = valid_keys.get(name)
        if key is None:
            raise InputError(f"`{where}`: `[{path}]` has no key `{name}`", hint=suggest(name, valid_keys))
        example = f"write it as `{name} = {key.example}`"
        if not key.is_valid(value):
            raise InputError(f"`{where}`: `{path}.{name}` has a value of the wrong type", hint=example)
        if key.field is not None:
            try:
                key.field.read(value)
            except InputError as error:
                error.message = f"`{where}`: `{path}.{name}`: {error.message}"
                # Most hints are about the option on the command line.
                error.hint = example if key.field.kind == "text" else error.hint
                raise
