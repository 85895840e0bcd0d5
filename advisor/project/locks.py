"""Reads the locks of the field: which version of each package is locked for a target.

A lock for many targets is read for one: packages whose markers do not hold there are left out.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.resolve.target import Target
from knowledge.domain.errors import InputError

Locked = dict[str, Version]
"""Version by normalised package name."""

_Document = Mapping[str, Any]


def read_lock(path: Path, target: Target) -> Locked:
    """Return what a lock holds for a target: its format is told by its name.

    `pylock.toml` and `pylock.NAME.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock`, and requirements files
    with exact versions, as `pip freeze` writes them; bills of materials (`*.cdx.json`).

    Raises:
        InputError: If it cannot be read, or is no lock.
    """
    read: Callable[[_Document, Target], Iterator[tuple[str, str]]]
    if path.suffix == ".txt":
        return _read_freeze(path, target)
    if path.name == "Pipfile.lock":
        document, read = _load(path, json.loads), _pipfile
    elif path.name == "uv.lock":
        document, read = _load(path, tomllib.loads), _uv
    elif path.name in ("poetry.lock", "pdm.lock"):
        document, read = _load(path, tomllib.loads), _packages
    elif path.name.endswith((".cdx.json", "bom.json")):
        document, read = _load(path, json.loads), _sbom
    elif path.suffix == ".toml":
        document, read = _load(path, tomllib.loads), _pylock
    else:
        raise InputError(
            f"`{path}` is not the name of a lock",
            hint="known are `pylock.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock` and `*.txt`",
        )
    try:
        return {canonicalize_name(name): Version(version) for name, version in read(document, target)}
    except (
        PylockValidationError,
        InvalidVersion,
        InvalidMarker,
        InvalidSpecifier,
        InvalidRequirement,
        UndefinedEnvironmentName,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        reason = f"field {error} is absent" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"`{path}` is not a lock of its kind: {reason}") from None


def _load(path: Path, parse: Callable[[str], Any]) -> _Document:
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise InputError(f"`{path}` is not a lock: it holds no table")
    return document


def _holds(marker: str | None, target: Target) -> bool:
    return not marker or Marker(marker).evaluate({**target.markers, "extra": ""})


def _pylock(document: _Document, target: Target) -> Iterator[tuple[str, str]]:
    for package in Pylock.from_dict(document).packages:
        if package.version is not None and (package.marker is None or _holds(str(package.marker), target)):
            yield package.name, str(package.version)


def _uv(document: _Document, target: Target) -> Iterator[tuple[str, str]]:
    """Walk from the packages of the project; of several versions of one package the markers leave one."""
    by_name: dict[str, list[_Document]] = {}
    for package in document["package"]:
        markers = package.get("resolution-markers", ())
        if not markers or any(_holds(marker, target) for marker in markers):
            by_name.setdefault(package["name"], []).append(package)
    own = ("virtual", "editable", "directory")
    roots = [p for packages in by_name.values() for p in packages if any(key in p.get("source", {}) for key in own)]
    queue: list[tuple[_Document, str | None]] = [(root, None) for root in roots]
    seen: set[tuple[str, str, str | None]] = set()
    while queue:
        package, extra = queue.pop()
        key = (package["name"], package.get("version", ""), extra)
        if key in seen:
            continue
        seen.add(key)
        if not any(name in package.get("source", {}) for name in own):
            yield package["name"], package["version"]
        required = package.get("optional-dependencies", {}).get(extra, ()) if extra else package.get("dependencies", ())
        for dependency in required:
            if _holds(dependency.get("marker"), target):
                found = by_name.get(dependency["name"], [])
                named = [p for p in found if dependency.get("version") in (None, p.get("version"))]
                for other in named[:1]:
                    queue += [(other, None), *((other, e) for e in dependency.get("extra", ()))]


def _packages(document: _Document, target: Target) -> Iterator[tuple[str, str]]:
    """Yield the packages of a `poetry.lock` or a `pdm.lock`, without those of groups other than the main one."""
    for package in document["package"]:
        groups = package.get("groups", ["main"])
        marker = package.get("marker", package.get("markers"))
        if isinstance(marker, dict):
            marker = marker.get("main")
        python = str(package.get("python-versions", package.get("requires_python", "")))
        admitted = (
            python in ("", "*") or "||" in python or SpecifierSet(python).contains(target.python, prereleases=True)
        )
        if {"main", "default"} & set(groups) and not package.get("optional") and admitted and _holds(marker, target):
            yield package["name"], package["version"]


def _pipfile(document: _Document, target: Target) -> Iterator[tuple[str, str]]:
    for name, entry in document["default"].items():
        if "version" in entry and _holds(entry.get("markers"), target):
            yield name, entry["version"].removeprefix("==")


def _sbom(document: _Document, target: Target) -> Iterator[tuple[str, str]]:
    for component in document["components"]:
        if str(component.get("purl", "")).startswith("pkg:pypi/"):
            yield component["name"], component["version"]


def _read_freeze(path: Path, target: Target) -> Locked:
    from advisor.project.requirements import read_requirements

    locked: Locked = {}
    for root in read_requirements(path).roots:
        marker = root.requirement.marker
        pins = [s.version for s in root.requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
        if marker is None or _holds(str(marker), target):
            if len(pins) != 1:
                raise InputError(
                    f"{root.origin}: `{root.requirement}` is not an exact version, so this is no lock",
                    hint="write one with `pip freeze`, or name another file with `--current`",
                )
            locked[root.name] = Version(pins[0])
    return locked
