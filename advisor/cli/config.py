"""`advisor config`: what is in force, and where it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.api.configuration import check_table, keys
from advisor.cli.command_help import CommandGroup
from advisor.cli.options import FormatOption
from advisor.gate.policy import read_policy
from advisor.index.configuration import read_configuration, without_credentials
from advisor.project.formats.pyproject import read_settings
from advisor.project.text_file import line_in, read_text
from knowledge.domain.errors import InputError

app = CommandGroup(help="Show the configuration that is in force.")

_SHOWN_APART = ("targets", "gate", "metadata")
"""Keys whose tables are shown otherwise, or not at all."""

Row = tuple[str, Any, str]
"""A key, its value, where that comes from."""


@app.command("show")
def show(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The project.")] = Path("."),
    format: FormatOption = "text",
) -> None:
    """Print every setting with its value and where that comes from; flags of other commands win over all of them."""
    if not directory.is_dir():
        raise InputError(f"`{directory}` is not a directory")
    path = directory / "pyproject.toml"
    settings: Mapping[str, Any] = read_settings(path) if path.is_file() else {}
    check_table(settings, str(path))
    text = read_text(path) if path.is_file() else ""
    rows = [*_own(settings, path, text), *_gate(settings, path, text), *_indexes(directory)]
    if format == "json":
        typer.echo(json.dumps([{"key": k, "value": v, "from": origin} for k, v, origin in rows], indent=2, default=str))
        return
    width = max(len(key) for key, _, _ in rows)
    for key, value, origin in rows:
        text = "(none)" if value is None else json.dumps(value, default=str)
        typer.echo(f"{key:{width}} = {text}  # {origin}")


def _own(settings: Mapping[str, Any], path: Path, text: str) -> Iterator[Row]:
    for key, field in keys().items():
        option = field.option
        if (value := os.environ.get(option.variable)) is not None:
            yield key, value.split() if field.kind == "list" else value, f"variable {option.variable}"
        elif key in settings and key not in _SHOWN_APART:
            yield key, settings[key], _line(path, text, key)
        elif field.kind == "text":
            yield key, option.otherwise, f"default{f': {option.unset}' if option.unset else ''}"
    for name, table in settings.get("targets", {}).items():
        for key_of_target, value in table.items():
            place = _line(path, text, f"[tool.advisor.targets.{name}]", key_of_target)
            yield f"targets.{name}.{key_of_target}", value, place


def _gate(settings: Mapping[str, Any], path: Path, text: str) -> Iterator[Row]:
    table = settings.get("gate", {})
    policy = read_policy(table, path=str(path), text=text)
    values: dict[str, Any] = {
        "fail": sorted(policy.fail),
        "max-regression": policy.max_regression,
        "max-gap": policy.max_gap,
        "max-growth": str(policy.max_growth) if policy.max_growth else None,
        "indexes": policy.indexes,
    }
    for key, value in values.items():
        configured = key in table or (key == "fail" and "extend-fail" in table)
        line = _line(path, text, "[tool.advisor.gate]", key if key in table else "extend-fail")
        default = "default: those that are configured" if key == "indexes" else "default"
        yield f"gate.{key}", value, line if configured else default
    for ignore in policy.ignores:
        scope = " ".join(part for part in (ignore.code, ignore.package, ignore.subject) if part)
        until = f" until {ignore.expires}" if ignore.expires else ""
        yield "gate.ignore", f"{scope}{until}: {ignore.reason}", f"{path}:{ignore.line}"


def _indexes(directory: Path) -> Iterator[Row]:
    configuration = read_configuration(directory)
    origin = "configuration of pip and uv"
    yield (
        "index-url",
        without_credentials(configuration.default_url),
        origin if configuration.default else "default, as pip's",
    )
    for url in configuration.extra:
        yield "extra-index-url", without_credentials(url), origin
    for place in configuration.find_links:
        yield "find-links", without_credentials(place), origin


def _line(path: Path, text: str, *parts: str) -> str:
    return f"{path}:{line_in(text, *parts)}"
