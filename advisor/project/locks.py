"""Reads the locks of the field: which version of each package is locked for a target, from where, with which hashes.

A lock for many targets is read for one: packages whose markers do not hold there are left out.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, UndefinedEnvironmentName
from packaging.pylock import PylockValidationError
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.project import lock_formats
from advisor.project.lock_formats import Document, Entry, holds
from advisor.resolve.target import Target
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of

_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_NAME = re.compile(r'^(?:name\s*=\s*|\s*"name":\s*)"(?P<name>[\w.-]+)",?\s*$|^\s*"(?P<key>[\w.-]+)":\s*\{\s*$')
_VERSION = re.compile(r'^(?:version\s*=\s*|\s*"version":\s*)"=*(?P<version>[^"]+)",?\s*$')


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVersion:
    """One package of a lock.

    Attributes:
        version: Its version.
        line: Line of the lock that says so, from 1; 0 where there is none.
        path: File that the line is of, where that is one that the lock includes; else empty.
        index: Address of the index that it is recorded from; none where the lock does not tell.
        files: SHA-256 of each file that the lock names.
        hashes: All its SHA-256 hashes.
        elsewhere: Where it comes from, where that is no index.
    """

    version: Version
    line: int = 0
    path: str = ""
    index: str | None = None
    files: Mapping[str, str]
    hashes: frozenset[str]
    elsewhere: str = ""


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What a project has now.

    Attributes:
        path: The lock; none for an environment.
        packages: By normalised name.
        indexes: Addresses that the lock names for all of its packages, each with its line.
        records_hashes: Whether locks of its kind hold hashes.
        is_project: Whether the lock is itself where the project says what it requires: a pinned requirements file.
    """

    path: Path | None
    packages: Mapping[NormalizedName, LockedVersion]
    indexes: tuple[tuple[str, int], ...] = ()
    records_hashes: bool = False
    is_project: bool = False

    @cached_property
    def versions(self) -> dict[str, Version]:
        """Version by normalised package name."""
        return {name: package.version for name, package in self.packages.items()}


def read_lock(path: Path, target: Target) -> Lock:
    """Return what a lock holds for a target: its format is told by its name.

    `pylock.toml` and `pylock.NAME.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock`, and requirements files
    with exact versions, as `pip freeze` writes them; bills of materials (`*.cdx.json`).

    Raises:
        InputError: If it cannot be read, or is no lock.
    """
    if path.suffix == ".txt":
        return _read_freeze(path, target)
    read: Callable[[Document, Target], Iterator[Entry]]
    parse: Callable[[str], Any]
    if path.name == "Pipfile.lock":
        parse, read = json.loads, lock_formats.read_pipfile
    elif path.name == "uv.lock":
        parse, read = tomllib.loads, lock_formats.read_uv
    elif path.name == "poetry.lock":
        parse, read = tomllib.loads, lock_formats.read_poetry
    elif path.name == "pdm.lock":
        parse, read = tomllib.loads, lock_formats.read_pdm
    elif path.name.endswith((".cdx.json", "bom.json")):
        parse, read = json.loads, lock_formats.read_sbom
    elif path.suffix == ".toml":
        parse, read = tomllib.loads, lock_formats.read_pylock
    else:
        raise InputError(
            f"`{path}` is not the name of a lock",
            hint="known are `pylock.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock` and `*.txt`",
        )
    text, document = _load(path, parse)
    lines = _lines(text)
    try:
        packages = {
            canonicalize_name(e.name): LockedVersion(
                version=Version(e.version),
                line=lines.get((canonicalize_name(e.name), e.version), 1),
                index=e.index,
                files=e.files,
                hashes=frozenset(e.hashes) | frozenset(e.files.values()),
                elsewhere=e.elsewhere,
            )
            for e in read(document, target)
        }
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
        RecursionError,
    ) as error:
        reason = f"field {error} is absent" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(f"`{path}` is not a lock of its kind: {reason}", hint=_AGAIN) from None
    return Lock(path=path, packages=packages, records_hashes=not path.name.endswith(("bom.json", ".cdx.json")))


_AGAIN = "make it anew with the tool that wrote it, or with `advisor advise`"


def read_text(path: Path) -> str:
    """Return the text of a file that must not hold what a merge left open.

    Raises:
        InputError: If it cannot be read, or holds conflict markers.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    if found := _CONFLICT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(
            f"`{path}`, line {line}, holds conflict markers of a merge",
            hint="take one side, then lock again with the tool that wrote it, or with `advisor advise`",
        )
    return text


def _load(path: Path, parse: Callable[[str], Any]) -> tuple[str, Document]:
    text = read_text(path)
    try:
        document = parse(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` cannot be read: {' '.join(str(error).split())}", hint=_AGAIN) from None
    if not isinstance(document, dict):
        raise InputError(f"`{path}` is not a lock: it holds no table", hint=_AGAIN)
    return text, document


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Return the line of each name and version that a lock in TOML or JSON spells one below the other."""
    found: dict[tuple[str, str], int] = {}
    name = ""
    for number, line in enumerate(lines_of(text), start=1):
        if match := _NAME.match(line):
            name = canonicalize_name(match["name"] or match["key"])
        elif name and (match := _VERSION.match(line)):
            found.setdefault((name, match["version"]), number)
    return found


def _read_freeze(path: Path, target: Target) -> Lock:
    from advisor.project.requirements import read_requirements

    text = read_text(path) if path.is_file() else ""
    project = read_requirements(path)
    packages: dict[NormalizedName, LockedVersion] = {}
    for root in project.roots:
        marker = root.requirement.marker
        pins = [s.version for s in root.requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
        if marker is None or holds(str(marker), target):
            if len(pins) != 1:
                raise InputError(
                    f"{root.origin}: `{root.requirement}` is not an exact version, so this is no lock",
                    hint="write one with `pip freeze`, or name another file with `--current`",
                )
            try:
                version = Version(pins[0])
            except InvalidVersion:
                raise InputError(
                    f"{root.origin}: `{pins[0]}` is not a version that can be compared (PEP 440)",
                    hint="pin it with `==`, or name another file with `--current`",
                ) from None
            packages[root.name] = LockedVersion(
                version=version, line=root.line, path=root.path, files={}, hashes=frozenset(root.hashes)
            )
    named = [url for url in (project.index_url, *project.extra_index_urls) if url]
    places = {url: next((n for n, line in enumerate(lines_of(text), 1) if url in line), 1) for url in named}
    hashed = any(package.hashes for package in packages.values())
    return Lock(path=path, packages=packages, indexes=tuple(places.items()), records_hashes=hashed)
