"""The table `[tool.advisor]` of `pyproject.toml`: its keys, and the check of its values.

A setting is taken from the command-line option, else from its `ADVISOR_*` environment variable, else from
`[tool.advisor]`, else from the declaration of its option in :mod:`advisor.api.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.api.option import Option, OptionField, key_fields
from advisor.api.options import GROUPS
from knowledge.domain.errors import InputError, suggest


def _key(name: str, type: Any, example: str, help: str, page: str = "") -> OptionField:
    """Return the declaration of a key that no option of the command line sets."""
    return OptionField(name, type, None, Option(key=name, example=example, help=help, page=page))


_LISTS = (
    _key("constraints", tuple[str, ...], '["numpy<2"]', "Constraints, in addition to `--constraint`."),
    _key("overrides", tuple[str, ...], '["numpy<2"]', "Requirements that replace others, in addition to `--override`."),
)
_TABLES = (
    _key(
        "settings",
        Mapping[str, str | int],
        '{ onednn = "on" }',
        "Run-time settings of the project, for `advisor check`.",
        "settings.md",
    ),
    _key(
        "index-mirrors",
        Mapping[str, str],
        '{ "https://download.pytorch.org/whl/" = "https://..." }',
        "Another address for the addresses that begin with a text.",
    ),
    _key(
        "replace-packages",
        Mapping[str, str],
        '{ tensorflow = "tensorflow-cpu" }',
        "Packages that are taken instead of others.",
        "../how-to/choose-builds.md#replace-packages",
    ),
    _key(
        "benchmark",
        Mapping[str, object],
        '{ command = "python bench.py" }',
        "The benchmark of the project: `command`, `startup`, `metric`, `files` and `warmup`.",
        "../how-to/measure-your-program.md#define-the-benchmark",
    ),
    _key(
        "metadata",
        tuple[Mapping[str, object], ...],
        '[{ name = "...", requires-dist = ["..."] }]',
        "Metadata that the project states for packages.",
        "cli.md#metadata-that-the-project-states",
    ),
    _key("gate", Mapping[str, object], "{ max-gap = 0.1 }", "The policy of the gate.", "gate.md#the-policy"),
    _key(
        "targets",
        Mapping[str, Mapping[str, object]],
        "{ gpu = {} }",
        "Several targets, each a table `[tool.advisor.targets.NAME]`.",
        "gate.md#targets",
    ),
)
_TARGET_LOCK = _key("lock", str, '"..."', "The lock of the target.")
_ORDER = ("text", "list", "boolean", "table")


def keys() -> dict[str, OptionField]:
    """Return all keys by their names: texts and numbers first, then lists, truth values and tables."""
    fields = [*_LISTS, *(field for group in GROUPS for field in key_fields(group))]
    fields.sort(key=lambda field: _ORDER.index(field.kind))
    return {field.option.key: field for field in (*fields, *_TABLES)}


def target_keys() -> dict[str, OptionField]:
    """Return the keys of each table `[tool.advisor.targets.NAME]`."""
    own = {name: field for name, field in keys().items() if field.option.per_target}
    return {**own, _TARGET_LOCK.name: _TARGET_LOCK}


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


def _check_keys(table: Mapping[str, Any], valid_keys: Mapping[str, OptionField], path: str, where: str) -> None:
    for name, value in table.items():
        key = valid_keys.get(name)
        if key is None:
            raise InputError(f"`{where}`: `[{path}]` has no key `{name}`", hint=suggest(name, valid_keys))
        example = f"write it as `{name} = {key.example}`"
        if not key.has_type_of(value):
            raise InputError(f"`{where}`: `{path}.{name}` has a value of the wrong type", hint=example)
        try:
            key.read(value)
        except InputError as error:
            error.message = f"`{where}`: `{path}.{name}`: {error.message}"
            # Most hints are about the option on the command line.
            error.hint = example if key.kind == "text" else error.hint
            raise
