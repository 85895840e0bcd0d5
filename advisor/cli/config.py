"""`advisor config`: what is in force, and where it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli.command_help import CommandGroup
from advisor.cli.options import FormatOption, check_format

app = CommandGroup(help="Show the configuration that is in force.")

Row = tuple[str, Any, str]
"""A key, its value, where that comes from."""


@app.command("show")
def show(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The project.")] = Path("."),
    format: FormatOption = "text",
) -> None:
    """Print every setting with its value and where that comes from; flags of other commands win over all of them."""
    from advisor.api.configuration import check_table
    from advisor.project.formats.pyproject import read_settings
    from advisor.project.text_file import read_text
    from knowledge.domain.errors import InputError

    check_format(format)
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
        typer.echo(f"{key:{width}} = {_spelled(value)}  # {origin}")


def _own(settings: Mapping[str, Any], path: Path, text: str) -> Iterator[Row]:
    from advisor.api.configuration import BOOLEANS, KEYS, LISTS, NAMES, TABLES, variable_of

    decided = {"workload": "what the sources suggest, else all kinds", "python": "the running interpreter"}
    decided |= {"platform": "from the hardware", "index-strategy": "as uv is configured, else first-index"}
    decided |= {"max-size": "no limit"}
    decided |= {"knowledge": "a SQLite file in the user's data directory", "advisories": "https://api.osv.dev"}
    for key, default in KEYS.items():
        if (value := os.environ.get(variable_of(key))) is not None:
            yield key, value, f"variable {variable_of(key)}"
        elif key in settings:
            yield key, settings[key], _line(path, text, key)
        else:
            yield key, default, "default" if default is not None else f"default: {decided[key]}"
    for key in (*LISTS, *NAMES, *BOOLEANS, *TABLES, "benchmark"):
        has_variable = key in (*NAMES, *BOOLEANS, "allow")
        if has_variable and (text_of := os.environ.get(variable_of(key))) is not None:
            yield key, text_of if key in BOOLEANS else text_of.split(), f"variable {variable_of(key)}"
        elif key in settings:
            yield key, settings[key], _line(path, text, key)
    for name, table in settings.get("targets", {}).items():
        for key, value in table.items():
            yield f"targets.{name}.{key}", value, _line(path, text, f"[tool.advisor.targets.{name}]", key)


def _gate(settings: Mapping[str, Any], path: Path, text: str) -> Iterator[Row]:
    from advisor.gate.policy import read_policy

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
    from advisor.index.configuration import read_configuration, without_credentials

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
    from advisor.project.text_file import line_in

    return f"{path}:{line_in(text, *parts)}"


def _spelled(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, default=str)
