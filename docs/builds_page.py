"""Reference page of the catalogue of builds: the format of its entries, and the shipped entries."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from advisor.report.tables import table_lines
from knowledge.catalogue.builds import (
    BuildExtra,
    BuildFamily,
    DefaultBuild,
    FrameworkIndex,
    Replacement,
    shipped_builds,
)

_INTRODUCTION = """\
# Builds

Files, extras and packages that provide the same version of a framework for different hardware, each with its source.
The entries are in `knowledge/catalogue/data/builds`: YAML files, each a list of entries. Comments in these files say
what was read, where, and why something is not listed.

A build is for one runtime: `cpu` (processors only), `cuda` (NVIDIA's GPUs), `rocm` (AMD's GPUs) or `xpu` (Intel's
GPUs). An entry with several systems and several machine names applies to each combination that exists."""
_SECTIONS: Mapping[type[Any], tuple[str, str]] = {
    FrameworkIndex: ("Indexes", "index"),
    BuildFamily: ("Families", "family"),
    BuildExtra: ("Extras", "extra"),
    Replacement: ("Replacements", "replacement"),
}
_COMMON = {
    "id": "Name of the entry, unique in the catalogue.",
    "source": "Address of the page that states it.",
}


def builds_page() -> str:
    """Return the page of all builds."""
    lines = [_INTRODUCTION, ""]
    for entry_type, (title, kind) in _SECTIONS.items():
        entries = [entry for entry in shipped_builds() if isinstance(entry, entry_type)]
        lines += [f"## {title}", "", f"`kind: {kind}`. {summary_of(entry_type)}", "", *_format_table(entry_type), ""]
        if entry_type is BuildFamily:
            lines += ["Each of the `defaults` has these fields:", "", *_format_table(DefaultBuild), ""]
        lines += [*_entry_table(entries), ""]
    return "\n".join(lines)


def _format_table(entry_type: type[Any]) -> Iterator[str]:
    """Return a table of the fields of an entry, with their meanings from the docstring."""
    meanings = _COMMON | attribute_meanings(entry_type)
    own = [field for field in dataclasses.fields(entry_type) if field.name != "kind"]
    rows = ((f"`{field.name}`", meanings[field.name], _default(field)) for field in own)
    return table_lines(("field", "meaning", "default"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    """Return the default of a field, for people."""
    if field.default is dataclasses.MISSING:
        return "required"
    value = field.default
    return ", ".join(f"`{item}`" for item in (value if isinstance(value, tuple) else (value,)) if item)


def _entry_table(entries: Iterable[Any]) -> Iterator[str]:
    """Return a table of the entries of one kind."""
    rows = [_row(entry) for entry in entries]
    return table_lines(list(rows[0]), (list(row.values()) for row in rows))


def _row(entry: Any) -> dict[str, str]:
    """Return the cells of an entry by the headings of its table."""
    cells = {"entry": f"`{entry.id}`"}
    match entry:
        case FrameworkIndex():
            others = [name for name in entry.packages if name not in entry.exclusive]
            cells |= {"address": entry.url, "build": str(entry.build), "packages": _names(others)}
            cells |= {"packages from no other index": _names(entry.exclusive), "systems": _systems(entry)}
        case BuildFamily():
            cells |= {"packages": _names(entry.packages)}
            cells |= {"files without a local version": "; ".join(map(_default_build, entry.defaults)) or "CPU"}
        case BuildExtra():
            cells |= {"extra": f"`{entry.package}[{','.join(entry.extras)}]`", "versions": _versions(entry.versions)}
            cells |= {"runtime": f"{entry.runtime} {entry.version}".strip(), "systems": _systems(entry)}
        case Replacement():
            cells |= {"package": f"`{entry.package}`", "replacement": f"`{entry.replacement}`"}
            cells |= {"versions": _versions(entry.versions), "when": f"`{entry.when}`"}
            cells |= {"condition": entry.condition, "systems": _systems(entry)}
    return cells | {"source": f"[{urlsplit(entry.source).netloc}]({entry.source})"}


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _systems(entry: FrameworkIndex | BuildExtra | Replacement | DefaultBuild) -> str:
    """Return the systems and machine names of an entry."""
    return f"{', '.join(entry.os)}: {', '.join(entry.architectures)}"


def _versions(specifier: str) -> str:
    return f"`{specifier}`" if specifier else "all"


def _default_build(default: DefaultBuild) -> str:
    """Return a default build of a family, for people."""
    packages = f" ({_names(default.packages)} {_versions(default.versions)})" if default.packages else ""
    return f"{default.runtime} on {_systems(default)}{packages}"


def summary_of(documented: type) -> str:
    """Return the first paragraph of the docstring of a class."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def attribute_meanings(documented: type) -> dict[str, str]:
    """Return the meanings of the attributes of a class, from its docstring, in Markdown."""
    documentation = inspect.getdoc(documented) or ""
    attributes = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", documentation, re.MULTILINE)
    return {name: " ".join(meaning.replace("``", "`").split()) for name, meaning in attributes}
