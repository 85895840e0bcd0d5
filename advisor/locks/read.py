"""Reads locks of all supported formats: versions, sources and hashes of the packages, for one target.

From a lock for several targets, the packages of one target are read: those whose markers are true there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.target import Target
from advisor.locks import entries
from advisor.locks.entries import (
    MALFORMED,
    Document,
    Entry,
    EntryError,
    package_of,
    reason_of,
)
from advisor.locks.formats import pylock, uv_lock
from advisor.locks.formats.requirements import read_pinned_requirements
from advisor.locks.lock import PACKAGE_NAME, Lock, LockedSource, LockedVersion, package_above, read_text
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.documents import lines_of, parse_toml
from knowledge.domain.errors import InputError

_SHA256 = "sha256:"
_AT_LINE = re.compile(r"line (\d+)")
_PACKAGE = re.compile(r"^\[\[packages?\]\]")
_VERSION = re.compile(r'^(?:version\s*=\s*|\s*"version":\s*)"=*(?P<version>[^"]+)",?\s*$')


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
        return read_pinned_requirements(path, target)
    read: Callable[[Document, Target], Iterator[Entry]]
    parse: Callable[[str], Any]
    if path.name == "Pipfile.lock":
        parse, read = json.loads, entries.read_pipfile
    elif path.name == "uv.lock":
        parse, read = parse_toml, uv_lock.read_uv
    elif path.name == "poetry.lock":
        parse, read = parse_toml, entries.read_poetry
    elif path.name == "pdm.lock":
        parse, read = parse_toml, entries.read_pdm
    elif path.name.endswith((".cdx.json", "bom.json")):
        parse, read = json.loads, entries.read_sbom
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
    for stated, problem in entries.unmet_conditions(document, target):
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


def _load(path: Path, parse: Callable[[str], Any]) -> tuple[str, Document]:
    text = read_text(path)
    try:
        document = parse(text)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        match = _AT_LINE.search(reason)
        line = int(match[1]) if match else 1
        package = package_above(text, line) if match else ""
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
        if match := PACKAGE_NAME.match(line):
            name = canonicalize_name(match["name"] or match["key"])
            lines_by_key.setdefault((name, ""), []).append(number)
        elif name and (match := _VERSION.match(line)):
            lines_by_key.setdefault((name, match["version"]), []).append(number)
    return lines_by_key


def _line_of(text: str, error: EntryError) -> int:
    """Return the line on which a malformed package begins; 1 if unknown."""
    first_lines = [number for number, line in enumerate(text.split("\n"), start=1) if _PACKAGE.match(line)]
    if error.place is not None and error.place < len(first_lines):
        return first_lines[error.place]
    return _lines(text).get((canonicalize_name(error.package), ""), [1])[0]
