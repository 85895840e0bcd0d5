"""Parser of submitters' descriptions of systems: JSON, JSON with mistakes, lines, and literals of Python."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterator
from typing import Any

import yaml

from knowledge.exchange.mlperf.facts import mlperf_facts

_NOTHING = frozenset({"", "-", "n/a", "na", "none", "todo", "tbd", "not public"})
_LONGEST_DESCRIPTION = 64 * 1024
_MOST_BRACKETS = 100
"""Limit for a description that is not JSON; those of rounds v0.6 and v0.7 contain at most 14."""
_DEEPEST = 50
"""Limit of nested mappings and lists, those in literals of Python included; descriptions have at most four."""
_NAME_COLUMNS = ("name", "component", "package", "library", "software")
_SEPARATOR = "; "


def read_description(text: str) -> dict[str, str]:
    """Read a description into one flat mapping with the usual spellings of its keys.

    It may be JSON, JSON with stray commas, or lines of keys and JSON objects, any value of which may be a literal of
    Python with more of them inside. A list of texts, or a table with a row for each component, becomes one text. The
    entry of the outermost mapping counts if several have one key.

    Raises:
        ValueError: If it is none of these, longer than 64 KiB, or too deeply nested.
    """
    if len(text) > _LONGEST_DESCRIPTION:
        raise ValueError(f"it is longer than {_LONGEST_DESCRIPTION} characters")
    flat: dict[str, str] = {}
    for key, value in _entries(_document(text), depth=0):
        name = mlperf_facts()["spellings"].get(key.strip().lower(), key.strip().lower())
        if value.strip().lower() not in _NOTHING:
            flat.setdefault(name, value.strip())
    return flat


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is too deeply nested") from None
    except ValueError:
        pass
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        # The time of PyYAML is quadratic in the depth. Brackets in strings are counted, too: only PyYAML excludes them.
        raise ValueError(f"it is not JSON and has more than {_MOST_BRACKETS} lists and mappings")
    try:
        # YAML reads JSON with stray commas, and `key: {...}` lines.
        plain = text.replace("\t", "    ")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(plain)):
            # A few lines of aliases can expand to more values than fit into memory.
            raise ValueError("it holds aliases")
        document = yaml.safe_load(plain)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(document, dict):
        raise ValueError("it is not a mapping")
    return document


def _entries(value: Any, *, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings, lists and literals, outermost first."""
    if depth > _DEEPEST:
        raise ValueError("it is too deeply nested")
    nested = list(value) if isinstance(value, list) else []
    for key, inner in value.items() if isinstance(value, dict) else ():
        inner = _literal(inner)
        if isinstance(inner, dict) and "value" in inner and "metadata" in inner:
            inner = _literal(inner["value"])
        if isinstance(inner, dict | list):
            parts, rest = _table(inner)
            if parts:
                yield str(key), _SEPARATOR.join(parts)
            nested += rest
        elif inner is not None:
            yield str(key), _text(inner)
    for inner in nested:
        yield from _entries(inner, depth=depth + 1)


def _table(value: dict[Any, Any] | list[Any]) -> tuple[list[str], list[Any]]:
    """Return the texts of a list, or of a table of components and versions, and what else is inside."""
    if isinstance(value, dict):
        # Rows that are named by their key: `{"cuda": {"version": "12.4"}}`.
        rows = {key: row for key, row in value.items() if isinstance(row, dict) and _is_leaf(row.get("version", {}))}
        rest = {key: row for key, row in value.items() if key not in rows}
        return [f"{_text(key)} {_text(row['version'])}" for key, row in rows.items()], [rest]
    parts, others = [], []
    for row in value:
        cells = _cells(row)
        if cells:
            parts.append(" ".join(map(_text, cells)))
        elif row is not None:
            others.append(row)
    return parts, others


def _cells(row: Any) -> tuple[Any, ...]:
    """Return the cells of a row of a table, or a text of a list; nothing if it is neither."""
    if isinstance(row, dict):
        cells = {str(key).strip().lower(): cell for key, cell in row.items()}
        name = next((cells[column] for column in _NAME_COLUMNS if column in cells), None)
        version = cells.get("version")
        return (name, version) if name is not None and version is not None and _is_leaf(version) else ()
    if isinstance(row, list):
        return tuple(row) if len(row) == 2 and all(map(_is_leaf, row)) else ()
    return (row,) if row is not None else ()


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _text(value: Any) -> str:
    """Return a leaf as text; a whole number with more digits than Python converts is described."""
    try:
        return str(value)
    except ValueError:
        return "a number of more than 4300 digits"


def _literal(value: Any) -> Any:
    """Return what a text that holds a literal of a mapping or a list holds; anything else as it is."""
    if not (isinstance(value, str) and value.startswith(("{", "["))):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
