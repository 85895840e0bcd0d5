"""Reads locks of all supported formats: versions, sources and hashes of the packages, for one target.

From a lock for several targets, the packages of one target are read: those whose markers are true there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.target import Target
from advisor.project import lock_formats, pylock, uv_lock
from advisor.project.lock_formats import (
    MALFORMED,
    Document,
    Entry,
    EntryError,
    LockedFile,
    package_of,
    reason_of,
)
from advisor.project.read_errors import UnreadableFileError, check_size
from knowledge.domain.errors import InputError
from knowledge.domain.lines import lines_of
from knowledge.domain.toml import parse_toml

_TOOL_LOCKS = {"uv.lock": "uv", "poetry.lock": "Poetry", "pdm.lock": "PDM"}
_SHA256 = "sha256:"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)
_NAME = re.compile(r'^(?:name\s*=\s*|\s*"name":\s*)"(?P<name>[\w.-]+)",?\s*$|^\s*"(?P<key>[\w.-]+)":\s*\{\s*$')
_AT_LINE = re.compile(r"line (\d+)")
_PACKAGE = re.compile(r"^\[\[packages?\]\]")
_VERSION = re.compile(r'^(?:version\s*=\s*|\s*"version":\s*)"=*(?P<version>[^"]+)",?\s*$')


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedVersion:
    """A version of a package in a lock.

    Attributes:
        version: The version.
        line: Line in the lock, from 1; 0 for an environment.
        path: File with the line, if the lock includes other files; else empty.
        index: Address of the index; none if not recorded.
        files: Files in the lock.
        hashes: All SHA-256 hashes, in lower case.
        other_hashes: Hashes by other algorithms of files without a name, such as ``sha512:...``.
        direct_reference: Repository, URL or directory that it comes from; empty if it comes from an index.
    """

    version: Version
    line: int = 0
    path: str = ""
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: frozenset[str] = frozenset()
    other_hashes: frozenset[str] = frozenset()
    direct_reference: str = ""

    @property
    def identities(self) -> tuple[str, ...]:
        """All recorded values of its files, and the hashes of files without a name."""
        return (*(file.identity for file in self.files), *sorted(self.hashes), *sorted(self.other_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedSource:
    """A package of a lock that comes from a direct reference instead of an index.

    Attributes:
        name: Name of the package.
        address: Repository with revision, URL or directory, as written.
        content: All that the lock records of the direct reference: hashes, size, subdirectory.
        directory: Whether the direct reference is a directory.
        line: Line in the lock, from 1.
        url: The address without commit and subdirectory.
        commit: Commit of a repository; empty if not recorded.
        subdirectory: Directory of the package in it; empty for the top.
        hashes: SHA-256 of the files that may be installed.
    """

    name: NormalizedName
    address: str
    content: str
    directory: bool
    line: int
    url: str
    commit: str = ""
    subdirectory: str = ""
    hashes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The current stack of a project.

    Attributes:
        path: The lock; none for an environment.
        packages: Packages that the target would install, by normalised name.
        entries: All versions in the lock, for any platform, extra or group; empty for an environment.
        sources: Packages from direct references, for any platform, extra or group.
        open_entries: Packages without a version for some platforms, each with its line.
        indexes: Addresses of indexes and find-links that apply to all packages, each with its line.
        trusted_hosts: Hosts whose certificates are not verified, each with its line.
        records_hashes: Whether locks of this format contain hashes.
        obstacles: Why the target cannot install the lock as a whole, each as what follows "the lock", with its line.
        is_project: Whether the requirements of the project come from the lock itself: a pinned requirements file.
    """

    path: Path | None
    packages: Mapping[NormalizedName, LockedVersion]
    entries: tuple[tuple[NormalizedName, LockedVersion], ...] = ()
    sources: tuple[LockedSource, ...] = ()
    open_entries: tuple[tuple[NormalizedName, int], ...] = ()
    indexes: tuple[tuple[str, int], ...] = ()
    trusted_hosts: tuple[tuple[str, int], ...] = ()
    records_hashes: bool = False
    obstacles: tuple[tuple[str, int], ...] = ()
    is_project: bool = False

    @property
    def tool(self) -> str:
        """The tool that alone writes locks of this format; empty if there is none."""
        return _TOOL_LOCKS.get(self.path.name, "") if self.path is not None else ""

    @property
    def is_edited(self) -> bool:
        """Whether an update changes only versions in the file: a pinned requirements file without hashes."""
        return self.is_project and not self.records_hashes

    @cached_property
    def versions(self) -> dict[str, Version]:
        """Version by normalised package name."""
        return {name: package.version for name, package in self.packages.items()}


def read_lock(path: Path, target: Target) -> Lock:
    """Return the packages of a lock for a target. The file name determines the format.

    Formats: `pylock.toml` and `pylock.NAME.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock`, requirements
    files with exact versions (as `pip freeze` writes them), and bills of materials (`*.cdx.json`).

    Args:
        path: The lock.
        target: The target whose packages are read.

    Raises:
        InputError: If the file name matches no format, or the file does not exist.
        UnreadableFileError: If the file cannot be read, or is not a lock.
    """
    if path.suffix == ".txt":
        from advisor.project.pinned_requirements import read_pinned_requirements

        return read_pinned_requirements(path, target)
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
        parse, read = parse_toml, pylock.read_pylock
    else:
        raise InputError(
            f"`{path}` is not the name of a lock",
            hint="supported are `pylock.toml`, `uv.lock`, `poetry.lock`, `pdm.lock`, `Pipfile.lock` and `*.txt`",
        )
    text, document = _load(path, parse)
    try:
        lock = replace(_lock(path, text, read(document, target)), obstacles=tuple(_obstacles(text, document, target)))
        return replace(lock, trusted_hosts=_unverified_hosts(text, document)) if path.name == "Pipfile.lock" else lock
    except EntryError as error:
        line = _line_of(text, error)
        about = f"package `{error.package}` (line {line})" if error.package else f"the package on line {line}"
        raise UnreadableFileError(
            f"`{path}` is malformed: {about}: {error.reason}",
            path=path,
            line=line,
            package=error.package,
            hint=_RECREATE_HINT,
        ) from None
    except MALFORMED as error:
        raise UnreadableFileError(
            f"`{path}` is malformed: {reason_of(error)}", path=path, hint=_RECREATE_HINT
        ) from None


def _lock(path: Path, text: str, records: Iterator[Entry]) -> Lock:
    """Return a lock with the given entries.

    Raises:
        EntryError: If an entry is malformed.
    """
    lines = _lines(text)
    packages: dict[NormalizedName, LockedVersion] = {}
    entries: list[tuple[NormalizedName, LockedVersion]] = []
    sources: list[LockedSource] = []
    open_entries: list[tuple[NormalizedName, int]] = []
    for entry in records:
        with package_of(entry.name, None):
            name = canonicalize_name(entry.name)
            candidate_lines = lines.get((name, entry.version)) or lines.get((name, "")) or [1]
            # The same version may have several entries, for several platforms.
            line = candidate_lines.pop(0) if len(candidate_lines) > 1 else candidate_lines[0]
            if entry.direct_reference:
                sources.append(
                    LockedSource(
                        name=name,
                        address=entry.direct_reference,
                        content=entry.content,
                        directory=entry.directory,
                        line=line,
                        url=entry.url or entry.direct_reference,
                        commit=entry.commit,
                        subdirectory=entry.subdirectory,
                        hashes=_hashes(entry),
                    )
                )
            if entry.is_open:
                open_entries.append((name, line))
            elif not entry.version and not entry.direct_reference:
                raise ValueError("it has neither a version nor a direct reference")
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


def _obstacles(text: str, document: Document, target: Target) -> Iterator[tuple[str, int]]:
    """Yield why a target cannot install a lock as a whole, with the line that says so."""
    plain = text.replace('\\"', "'").replace('"', "'")
    # Packages of a `poetry.lock` may state the same, in front of the table of the lock as a whole.
    start = max(plain.find("[metadata]"), 0)
    for stated, problem in lock_formats.unmet_conditions(document, target):
        position = max(plain.find(stated.replace('"', "'"), start), 0)
        yield problem, plain.count("\n", 0, position) + 1


def _hashes(entry: Entry) -> frozenset[str]:
    """Return the SHA-256 of all files of a package, and those of files without a name."""
    nameless = (digest.removeprefix(_SHA256).lower() for digest in entry.hashes if digest.startswith(_SHA256))
    return frozenset({*(file.sha256 for file in entry.files if file.sha256), *nameless})


def _unverified_hosts(text: str, document: Document) -> tuple[tuple[str, int], ...]:
    """Return the hosts whose certificates Pipenv does not verify, each with its line, from a `Pipfile.lock`."""
    hosts: dict[str, int] = {}
    for source in document.get("_meta", {}).get("sources", ()):
        url = source.get("url", "")
        # There is no certificate to verify without TLS.
        if not source.get("verify_ssl", True) and not url.lower().startswith("http:"):
            line = next((number for number, line in enumerate(lines_of(text), 1) if url in line), 1)
            hosts.setdefault(urlsplit(url).netloc.rpartition("@")[2] or url, line)
    return tuple(hosts.items())


def _locked_version(entry: Entry, line: int) -> LockedVersion:
    all_hashes = [h.lower() for h in entry.hashes]
    hashes = {h.removeprefix(_SHA256) for h in all_hashes if h.startswith(_SHA256)}
    return LockedVersion(
        version=Version(entry.version),
        line=line,
        index=entry.index,
        files=entry.files,
        hashes=frozenset(hashes | {file.sha256 for file in entry.files if file.sha256}),
        other_hashes=frozenset(h for h in all_hashes if not h.startswith(_SHA256)),
        direct_reference=entry.direct_reference,
    )


_RECREATE_HINT = "create it again with the tool that wrote it, or with `advisor advise`"


def read_text(path: Path, *, decode: Callable[[bytes], str] = bytes.decode) -> str:
    """Return the text of a lock without merge conflicts.

    Args:
        path: The lock.
        decode: Converts the bytes to text; UTF-8 by default.

    Raises:
        InputError: If the file does not exist.
        UnreadableFileError: If the file cannot be read, or contains conflict markers.
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
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise UnreadableFileError(
            f"`{path}`, line {line}, contains conflict markers of a merge",
            path=path,
            line=line,
            package=_package_above(text, line),
            hint="resolve the conflict, then lock again with the tool that wrote it, or with `advisor advise`",
        )
    return text


def _load(path: Path, parse: Callable[[str], Any]) -> tuple[str, Document]:
    text = read_text(path)
    try:
        document = parse(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        match = _AT_LINE.search(reason)
        line = int(match[1]) if match else 1
        package = _package_above(text, line) if match else ""
        near = f", near package `{package}`" if package else ""
        raise UnreadableFileError(
            f"`{path}` cannot be read: {reason}{near}", path=path, line=line, package=package, hint=_RECREATE_HINT
        ) from None
    if not isinstance(document, dict):
        raise UnreadableFileError(f"`{path}` is not a lock: it contains no table", path=path, hint=_RECREATE_HINT)
    return text, document


def _lines(text: str) -> dict[tuple[str, str], list[int]]:
    """Return the line numbers of each name and version in a lock in TOML or JSON, where the version follows the name.

    The key with an empty version has the lines of the name.
    """
    lines_by_key: dict[tuple[str, str], list[int]] = {}
    name = ""
    for number, line in enumerate(lines_of(text), start=1):
        if match := _NAME.match(line):
            name = canonicalize_name(match["name"] or match["key"])
            lines_by_key.setdefault((name, ""), []).append(number)
        elif name and (match := _VERSION.match(line)):
            lines_by_key.setdefault((name, match["version"]), []).append(number)
    return lines_by_key


def _package_above(text: str, line: int) -> str:
    """Return the name of the package that a line of a lock belongs to; empty if there is none."""
    for above in reversed(text.split("\n")[:line]):
        if match := _NAME.match(above):
            return match["name"] or match["key"]
    return ""


def _line_of(text: str, error: EntryError) -> int:
    """Return the line on which a malformed package begins; 1 if unknown."""
    first_lines = [number for number, line in enumerate(text.split("\n"), start=1) if _PACKAGE.match(line)]
    if error.place is not None and error.place < len(first_lines):
        return first_lines[error.place]
    return _lines(text).get((canonicalize_name(error.package), ""), [1])[0]
