"""Reads the locks of the field: which version of each package is locked for a target, from where, with which hashes.

A lock for many targets is read for one: packages whose markers do not hold there are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.project import lock_formats, uv_lock
from advisor.project.lock_formats import (
    MALFORMED,
    Document,
    Entry,
    EntryError,
    LockedFile,
    holds,
    package_of,
    reason_of,
)
from advisor.project.read_errors import UnreadableFileError, check_size
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from knowledge.domain.toml import parse_toml

_SHA256 = "sha256:"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_NAME = re.compile(r'^(?:name\s*=\s*|\s*"name":\s*)"(?P<name>[\w.-]+)",?\s*$|^\s*"(?P<key>[\w.-]+)":\s*\{\s*$')
_AT_LINE = re.compile(r"line (\d+)")
_PACKAGE = re.compile(r"^\[\[packages?\]\]")
_VERSION = re.compile(r'^(?:version\s*=\s*|\s*"version":\s*)"=*(?P<version>[^"]+)",?\s*$')


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVersion:
    """One version of a package, as a lock records it.

    Attributes:
        version: The version.
        line: Line of the lock that says so, from 1; 0 where there is none.
        path: File that the line is of, where that is one that the lock includes; else empty.
        index: Address of the index that it is recorded from; none where the lock does not tell.
        files: The files that the lock names.
        hashes: All its SHA-256 hashes, in lower case.
        other_hashes: Hashes by other algorithms of files that are not named, such as ``sha512:...``.
        elsewhere: Where it comes from, where that is no index.
    """

    version: Version
    line: int = 0
    path: str = ""
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: frozenset[str] = frozenset()
    other_hashes: frozenset[str] = frozenset()
    elsewhere: str = ""

    @property
    def identities(self) -> tuple[str, ...]:
        """All that is recorded of its files, and of the hashes of files that are not named."""
        return (*(file.identity for file in self.files), *sorted(self.hashes), *sorted(self.other_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSource:
    """A package that a lock takes from elsewhere than an index.

    Attributes:
        name: The package.
        address: The repository, with its revision, the address or the directory, as written.
        content: All that the lock records of what is there: hashes, size, a directory in it.
        directory: Whether it is a directory.
        line: Line of the lock that says so, from 1.
    """

    name: NormalizedName
    address: str
    content: str
    directory: bool
    line: int


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What a project has now.

    Attributes:
        path: The lock; none for an environment.
        packages: What the target would install, by normalised name.
        entries: Every version that the lock records, for whatever platform, extra or group; empty for an environment.
        sources: What it takes from elsewhere than an index, for whatever platform, extra or group.
        open_entries: Packages whose version is left open for some platforms, each with its line.
        indexes: Addresses that the lock names for all of its packages, find-links too, each with its line.
        trusted_hosts: Hosts whose certificates it says are not to be checked, each with its line.
        records_hashes: Whether locks of its kind hold hashes.
        is_project: Whether the lock is itself where the project says what it requires: a pinned requirements file.
    """

    path: Path | None
    packages: Mapping[NormalizedName, LockedVersion]
    entries: tuple[tuple[NormalizedName, LockedVersion], ...] = ()
    sources: tuple[LockedSource, ...] = ()
    open_entries: tuple[tuple[NormalizedName, int], ...] = ()
    indexes: tuple[tuple[str, int], ...] = ()
    trusted_hosts: tuple[tuple[str, int], ...] = ()
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
        InputError: If it is not the name of a lock, or does not exist.
        UnreadableFileError: If it cannot be read, or is no lock.
    """
    if path.suffix == ".txt":
        return _read_freeze(path, target)
    read: Callable[[Document, Target], Iterator[Entry]]
    parse: Callable[[str], Any]
    if path.name == "Pipfile.lock":
        parse, read = json.loads, lock_formats.read_pipfile
    elif path.name == "uv.lock":
        parse, read = parse_toml, uv_lock.read_uv
    elif path.name == "poetry.lock":
        parse, read = parse_toml, lock_formats.read_poetry
    elif path.name == "pdm.lock":
        parse, read = parse_toml, lock_formats.read_pdm
    elif path.name.endswith((".cdx.json", "bom.json")):
        parse, read = json.loads, lock_formats.read_sbom
    elif path.suffix == ".toml":
        parse, read = parse_toml, lock_formats.read_pylock
    else:
        raise InputError(
            f"`{path}` is not the name of a lock",
            hint="known are `pylock.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock` and `*.txt`",
        )
    text, document = _load(path, parse)
    try:
        return _lock(path, text, read(document, target))
    except EntryError as error:
        line = _line_of(text, error)
        about = f"package `{error.package}` (line {line})" if error.package else f"the package on line {line}"
        raise UnreadableFileError(
            f"`{path}` is not a lock of its kind: {about}: {error.reason}",
            path=path,
            line=line,
            package=error.package,
            hint=_AGAIN,
        ) from None
    except MALFORMED as error:
        raise UnreadableFileError(
            f"`{path}` is not a lock of its kind: {reason_of(error)}", path=path, hint=_AGAIN
        ) from None


def _lock(path: Path, text: str, recorded: Iterator[Entry]) -> Lock:
    """Return the lock that has some entries.

    Raises:
        EntryError: If one is malformed.
    """
    lines = _lines(text)
    packages: dict[NormalizedName, LockedVersion] = {}
    entries: list[tuple[NormalizedName, LockedVersion]] = []
    sources: list[LockedSource] = []
    open_entries: list[tuple[NormalizedName, int]] = []
    for entry in recorded:
        with package_of(entry.name, None):
            name = canonicalize_name(entry.name)
            found = lines.get((name, entry.version)) or lines.get((name, "")) or [1]
            # The same version may be there several times, for several platforms.
            line = found.pop(0) if len(found) > 1 else found[0]
            if entry.elsewhere:
                sources.append(
                    LockedSource(
                        name=name,
                        address=entry.elsewhere,
                        content=entry.content,
                        directory=entry.directory,
                        line=line,
                    )
                )
            if entry.is_open:
                open_entries.append((name, line))
            elif not entry.version and not entry.elsewhere:
                raise ValueError("it has neither a version nor a source outside of an index")
            if not entry.version:
                continue
            version = _locked_version(entry, line)
            entries.append((name, version))
            if entry.on_target:
                packages[name] = version
    return Lock(
        path=path,
        packages=packages,
        entries=tuple(entries),
        sources=tuple(sources),
        open_entries=tuple(open_entries),
        records_hashes=not path.name.endswith(("bom.json", ".cdx.json")),
    )


def _locked_version(entry: Entry, line: int) -> LockedVersion:
    unnamed = [h.lower() for h in entry.hashes]
    hashes = {h.removeprefix(_SHA256) for h in unnamed if h.startswith(_SHA256)}
    return LockedVersion(
        version=Version(entry.version),
        line=line,
        index=entry.index,
        files=entry.files,
        hashes=frozenset(hashes | {file.sha256 for file in entry.files if file.sha256}),
        other_hashes=frozenset(h for h in unnamed if not h.startswith(_SHA256)),
        elsewhere=entry.elsewhere,
    )


_AGAIN = "make it anew with the tool that wrote it, or with `advisor advise`"


def read_text(path: Path, *, decode: Callable[[bytes], str] = bytes.decode) -> str:
    """Return the text of a lock; it must not hold what a merge left open.

    Args:
        path: The lock.
        decode: Makes text of its bytes; UTF-8 by default.

    Raises:
        InputError: If it does not exist.
        UnreadableFileError: If it cannot be read, or holds conflict markers.
    """
    try:
        check_size(path)
        text = decode(path.read_bytes()).replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise InputError(f"`{path}` cannot be read: there is no such file") from None
    except OSError as error:
        raise UnreadableFileError(f"`{path}` cannot be read: {error.strerror}", path=path) from None
    except ValueError as error:
        raise UnreadableFileError(f"`{path}` cannot be read: {error}", path=path) from None
    if found := _CONFLICT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise UnreadableFileError(
            f"`{path}`, line {line}, holds conflict markers of a merge",
            path=path,
            line=line,
            package=_package_above(text, line),
            hint="take one side, then lock again with the tool that wrote it, or with `advisor advise`",
        )
    return text


def _load(path: Path, parse: Callable[[str], Any]) -> tuple[str, Document]:
    text = read_text(path)
    try:
        document = parse(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        told = _AT_LINE.search(reason)
        line = int(told[1]) if told else 1
        package = _package_above(text, line) if told else ""
        near = f", near package `{package}`" if package else ""
        raise UnreadableFileError(
            f"`{path}` cannot be read: {reason}{near}", path=path, line=line, package=package, hint=_AGAIN
        ) from None
    if not isinstance(document, dict):
        raise UnreadableFileError(f"`{path}` is not a lock: it holds no table", path=path, hint=_AGAIN)
    return text, document


def _lines(text: str) -> dict[tuple[str, str], list[int]]:
    """Return the lines of each name and version that a lock in TOML or JSON spells one below the other.

    With an empty version, they are the lines of the names.
    """
    found: dict[tuple[str, str], list[int]] = {}
    name = ""
    for number, line in enumerate(lines_of(text), start=1):
        if match := _NAME.match(line):
            name = canonicalize_name(match["name"] or match["key"])
            found.setdefault((name, ""), []).append(number)
        elif name and (match := _VERSION.match(line)):
            found.setdefault((name, match["version"]), []).append(number)
    return found


def _package_above(text: str, line: int) -> str:
    """Return the name of the package that a line of a lock belongs to, or an empty text."""
    for above in reversed(text.split("\n")[:line]):
        if match := _NAME.match(above):
            return match["name"] or match["key"]
    return ""


def _line_of(text: str, error: EntryError) -> int:
    """Return the line on which a malformed package begins; 1 where that is not known."""
    begins = [number for number, line in enumerate(text.split("\n"), start=1) if _PACKAGE.match(line)]
    if error.place is not None and error.place < len(begins):
        return begins[error.place]
    return _lines(text).get((canonicalize_name(error.package), ""), [1])[0]


def _unpinned(root: RootRequirement, path: Path, message: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"{root.origin}: {message}",
        path=Path(root.path or path),
        line=root.line,
        package=root.name,
        hint="pin every line with `==`, as `pip freeze` does, or name another file with `--current`",
    )


def _read_freeze(path: Path, target: Target) -> Lock:
    from advisor.project.requirements import decoded, read_requirements

    text = read_text(path, decode=decoded) if path.is_file() else ""
    project = read_requirements(path)
    packages: dict[NormalizedName, LockedVersion] = {}
    entries: list[tuple[NormalizedName, LockedVersion]] = []
    for root in project.roots:
        marker = root.requirement.marker
        pins = [s.version for s in root.requirement.specifier if s.operator in ("==", "===") and "*" not in s.version]
        on_target = marker is None or holds(str(marker), target)
        if len(pins) != 1:
            raise _unpinned(root, path, f"`{root.requirement}` is not an exact version, so this is no lock")
        for pin in pins:
            try:
                version = Version(pin)
            except InvalidVersion:
                raise _unpinned(root, path, f"`{pin}` is not a version that can be compared (PEP 440)") from None
            locked = LockedVersion(
                version=version,
                line=root.line,
                path=root.path,
                hashes=frozenset(h.lower() for h in root.hashes),
                other_hashes=root.other_hashes,
            )
            entries.append((root.name, locked))
            if on_target:
                packages[root.name] = locked
    every = (project.index_url, *project.extra_index_urls, *project.find_links)
    named = [url for url in every if url]
    lines = list(enumerate(lines_of(text), 1))
    places = {word: next((n for n, line in lines if word in line), 1) for word in (*named, *project.trusted_hosts)}
    hashed = any(locked.hashes or locked.other_hashes for _, locked in entries)
    return Lock(
        path=path,
        packages=packages,
        entries=tuple(entries),
        indexes=tuple((url, places[url]) for url in dict.fromkeys(named)),
        trusted_hosts=tuple((host, places[host]) for host in dict.fromkeys(project.trusted_hosts)),
        records_hashes=hashed,
    )
