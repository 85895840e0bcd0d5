"""A local copy of an advisory database in the OSV format, for answers without a network.

Source of the format and of the evaluation of ranges: https://ossf.github.io/osv-schema/.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

from advisor.index.limits import MIB, bytes_text
from knowledge.domain.errors import InputError, UnavailableError

ECOSYSTEM = "PyPI"
_RECORD_BYTES = 16 * MIB
_YAML = (".yaml", ".yml")
"""Suffixes of the records in the advisory database of PyPA."""
_TABLES = """
create table if not exists advisory (id text primary key, modified text not null);
create table if not exists affected (id text not null, name text not null, body text not null);
create index if not exists affected_name on affected (name);
create index if not exists affected_id on affected (id);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisoryImport:
    """What an import changed.

    Attributes:
        stored: Advisories that were stored or replaced.
        removed: Advisories that have been withdrawn and were removed.
        skipped: Records without a package of the Python Package Index.
    """

    stored: int
    removed: int
    skipped: int


class AdvisoryDatabase:
    """Advisories by package, in one file; an `UnavailableError` is raised if it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._affected: dict[str, list[Mapping[str, Any]]] = {}

    @property
    def exists(self) -> bool:
        """Whether a copy was imported."""
        return self._path.is_file()

    def vulnerabilities(self, name: str, version: Version) -> tuple[str, ...]:
        """Return the identifiers of the advisories that affect a version of a package, sorted.

        Of advisories that are aliases of each other, the first by identifier is returned.
        """
        matching = [record for record in self._records(canonicalize_name(name)) if is_affected(record, version)]
        known_names: set[str] = set()
        identifiers = []
        for record in sorted(matching, key=lambda record: str(record["id"])):
            names = {record["id"], *record["aliases"]}
            if not names & known_names:
                identifiers.append(str(record["id"]))
            known_names |= names
        return tuple(identifiers)

    def add(self, records: Iterable[tuple[str, Any]]) -> AdvisoryImport:
        """Store records, each with its place for messages; one with the identifier of a stored one replaces it.

        Either all are stored, or none is.

        Raises:
            InputError: If one is not a record in the OSV format.
        """
        counts = {"stored": 0, "removed": 0, "skipped": 0}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
                connection.executescript(_TABLES)
                connection.execute("begin")
                for place, record in records:
                    counts[_store(connection, record, place)] += 1
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(f"the advisories in `{self._path}` cannot be written: {error}") from None
        return AdvisoryImport(**counts)

    def count(self) -> int:
        """Return the number of advisories."""
        return int(self._select("select count(*) from advisory", ())[0][0])

    def _records(self, name: str) -> list[Mapping[str, Any]]:
        with self._lock:
            if name not in self._affected:
                rows = self._select("select body from affected where name = ?", (name,))
                self._affected[name] = [json.loads(body) for (body,) in rows]
            return self._affected[name]

    def _select(self, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        try:
            with contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise UnavailableError(
                f"the advisories in `{self._path}` cannot be read: {error}",
                hint="remove the file, and import the database again with `advisor knowledge import-advisories`",
            ) from None


def _store(connection: sqlite3.Connection, record: Any, place: str) -> str:
    """Store one record, and return what was done."""
    identifier = record.get("id") if isinstance(record, dict) else None
    if not isinstance(identifier, str) or not identifier.isprintable():
        raise InputError(f"{place} is not a record in the OSV format: it has no `id`")
    entries = list(_affected(record, place))
    connection.execute("delete from affected where id = ?", (identifier,))
    removed = connection.execute("delete from advisory where id = ?", (identifier,)).rowcount
    if record.get("withdrawn"):
        return "removed" if removed else "skipped"
    if not entries:
        return "skipped"
    connection.execute("insert into advisory values (?, ?)", (identifier, str(record.get("modified", ""))))
    for name, entry in entries:
        connection.execute("insert into affected values (?, ?, ?)", (identifier, name, json.dumps(entry)))
    return "stored"


def _affected(record: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each affected package of the Python Package Index, with what decides whether a version is affected."""
    try:
        aliases = [str(alias) for alias in record.get("aliases") or ()]
        for entry in record.get("affected") or ():
            package = entry.get("package") or {}
            if str(package.get("ecosystem", "")).partition(":")[0] != ECOSYSTEM:
                continue
            ranges = [
                [{str(kind): str(text) for kind, text in event.items()} for event in one["events"]]
                for one in entry.get("ranges") or ()
                if one.get("type") in ("ECOSYSTEM", "SEMVER")
            ]
            versions = [canonicalize_version(str(text)) for text in entry.get("versions") or ()]
            body = {"id": record["id"], "aliases": aliases, "ranges": ranges, "versions": versions}
            yield canonicalize_name(_name(package)), body
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{place} is not a record in the OSV format: {type(error).__name__} {error}") from None


def _name(package: Mapping[str, Any]) -> str:
    name = str(package["name"])
    # Control characters and lone surrogates cannot be stored.
    if not name.isprintable():
        raise ValueError("the name of a package is malformed")
    return name


def is_affected(record: Mapping[str, Any], version: Version) -> bool:
    """Whether an advisory affects a version: it is listed, or in one of the ranges."""
    public = Version(version.public)
    return canonicalize_version(public) in record["versions"] or any(
        _is_within(events, public) for events in record["ranges"]
    )


def _is_within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    """Whether a version is in a range: the last event at or before it decides."""
    changes: list[tuple[Version, int, bool]] = []
    try:
        for event in events:
            for kind, text in event.items():
                bound = Version("0.dev0" if text == "0" and kind == "introduced" else str(text))
                if kind == "limit":
                    if version >= bound:
                        return False
                elif kind == "last_affected":
                    # It ends after the version, not at it.
                    changes.append((bound, 1, False))
                else:
                    changes.append((bound, 0, kind == "introduced"))
    except ValueError:
        # It is not a version, or one with too many digits.
        return False
    within = False
    for bound, order, starts in sorted(changes, key=lambda change: change[:2]):
        if version > bound or (version == bound and not order):
            within = starts
    return within


def read_records(source: Path) -> Iterator[tuple[str, Any]]:
    """Yield the records of a file (JSON or YAML), of a zip archive of such files, or of all below a directory.

    Hidden files and directories, such as `.github`, are left out.

    Raises:
        InputError: If a file cannot be read.
    """
    try:
        if not zipfile.is_zipfile(source):
            below = (p for p in sorted(source.rglob("*")) if _is_record(p.relative_to(source)) and p.is_file())
            for path in below if source.is_dir() else [source]:
                place = f"`{path}`"
                yield place, _parsed(path.stat().st_size, path.read_bytes, place, path.suffix)
            return
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist():
                name = PurePosixPath(entry.filename)
                if _is_record(name):
                    place = f"`{entry.filename}` in `{source}`"
                    yield place, _parsed(entry.file_size, partial(archive.read, entry), place, name.suffix)
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:
        raise InputError(f"`{source}` cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _is_record(path: PurePath) -> bool:
    return path.suffix in (".json", *_YAML) and not any(part.startswith(".") for part in path.parts)


def _parsed(size: int, read: Callable[[], bytes], place: str, suffix: str) -> Any:
    if size > _RECORD_BYTES:
        raise InputError(f"{place} is larger than {bytes_text(_RECORD_BYTES)}")
    if suffix in _YAML:
        return _parsed_yaml(read(), place)
    try:
        return json.loads(read())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is not JSON: {error}") from None


def _parsed_yaml(content: bytes, place: str) -> Any:
    """Return a YAML document whose values are texts or nothing, because a version such as `1.10` is not a number."""
    # Slow to import; an index reads no such file.
    import yaml

    base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    loader: Any = type("Loader", (base,), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
    loader.add_constructor("tag:yaml.org,2002:null", lambda *_: None)
    try:
        # Aliases could make a small document large.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, Loader=loader)):
            raise InputError(f"{place} has an alias, which records do not have")
        return yaml.load(content, Loader=loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{place} is not YAML: {' '.join(str(error).split())}") from None
