"""Reads a `Pipfile`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from advisor.domain.requirement import RootRequirement
from advisor.project.interface import (
    ProjectRequirements,
    defined_source,
    filled_address,
    opened_toml,
    parse_root,
    requirement_text,
    table_in,
)
from advisor.project.package_sources import reference_of
from advisor.project.text_file import TomlFile
from knowledge.domain.documents import specifiers_from
from knowledge.domain.errors import InputError

_MARKERS = ("python_version", "python_full_version", "sys_platform", "platform_system", "platform_machine", "os_name")
_OTHER_SECTIONS = ("source", "requires", "scripts", "pipenv", "build-system")
_OPERATORS = ("<", ">", "=", "!", "~")


def read_pipfile(path: Path, *, groups: Iterable[str] = ()) -> ProjectRequirements:
    """Read the `packages` of a Pipfile, and further categories, such as `dev-packages`."""
    with opened_toml(path) as file:
        return _read(file, groups)


def _read(file: TomlFile, groups: Iterable[str]) -> ProjectRequirements:
    path, document = file.path, file.document
    sources = {
        str(s.get("name")): filled_address(url, file.place(url))
        for s in document.get("source", ())
        if isinstance(s, dict) and (url := str(s.get("url", "")))
    }
    roots: list[RootRequirement] = []
    bindings: dict[str, str] = {}
    for section in ("packages", *groups):
        if section != "packages" and (section not in document or section in _OTHER_SECTIONS):
            raise InputError(f"`{path}` has no category `{section}`")
        for name, entry in table_in(document, section, path).items():
            origin = file.entry_place(name)
            direct = reference_of(entry, path.parent, origin)
            roots.append(parse_root(_requirement_line(name, entry, origin), origin, path.parent, direct=direct))
            if isinstance(entry, dict) and "index" in entry:
                bindings[canonicalize_name(name)] = defined_source(entry["index"], sources, name, origin)
    urls = list(sources.values())
    python = required_python(table_in(document, "requires", path))
    return ProjectRequirements(
        roots=tuple(roots),
        requires_python=str(specifiers_from(python[0])) if python else None,
        # As in Pipenv: packages come from the first source unless they name another one.
        index_url=urls[0] if urls else None,
        bindings=bindings,
        files=(str(path),),
    )


def required_python(requires: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the specifier of the interpreters that a Pipfile or its lock requires, and its text; `None` without one.

    As in Pipenv, `*` requires nothing, and a text with an operator is a specifier.
    """
    for key, suffix in (("python_full_version", ""), ("python_version", ".*")):
        stated = str(requires.get(key) or "").strip()
        if stated not in ("", "*"):
            return (stated if stated.startswith(_OPERATORS) else f"=={stated}{suffix}"), stated
    return None


def _requirement_line(name: str, entry: Any, origin: str) -> str:
    """Convert an entry to a requirement (PEP 508)."""
    options = entry if isinstance(entry, dict) else {"version": entry}
    version = options.get("version", "*")
    extras = options.get("extras", [])
    if not isinstance(version, str) or not isinstance(extras, list):
        raise InputError(f"{origin}: `{name} = {entry!r}` is not a Pipfile entry")
    markers = [f"({options['markers']})"] if "markers" in options else []
    markers += [f"{key} {options[key]}" for key in _MARKERS if key in options]
    return requirement_text(name, version, extras=extras, marker=" and ".join(markers))
