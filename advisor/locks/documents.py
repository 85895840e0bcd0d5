"""Locks that are documents in TOML or JSON: their packages become a :class:`Lock`, and errors name package and line."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import UndefinedEnvironmentName
from packaging.pylock import PylockValidationError
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from advisor.domain.target import Target
from advisor.locks.interface import LockFormat
from advisor.locks.lock import Lock, LockedFile, LockedSource, LockedVersion, read_text
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.documents import lines_of, parse_toml

Document = Mapping[str, Any]

_SHA256 = "sha256:"
_AT_LINE = re.compile(r"line (\d+)")
_RECREATE_HINT = "create it again with the tool that wrote it, or with `advisor advise`"
_MOST_CHARACTERS = 100
"""Characters of a malformed text that a message repeats."""
MALFORMED = (
    UndefinedEnvironmentName,
    PylockValidationError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""Exceptions that a malformed document causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A package in a lock, as written.

    Attributes:
        name: Name.
        version: Version; empty if not recorded, as for a directory.
        index: Address of the index, or `None`.
        files: Files that the package may be installed from.
        hashes: Hashes of files without a name, as ``algorithm:digest``.
        source: Repository, archive or directory that it comes from, without line and hashes; `None` if it comes from an
            index.
        on_target: Whether the target would install the package.
        is_open: Whether the lock has no version for platforms that it was not made for.
    """

    name: str
    version: str
    index: str | None = None
    files: tuple[LockedFile, ...] = ()
    hashes: tuple[str, ...] = ()
    source: LockedSource | None = None
    on_target: bool = True
    is_open: bool = False


class EntryError(ValueError):
    """Raised when a package of a lock is malformed.

    Attributes:
        package: Name of the package; empty if it has none.
        place: Position in the lock's list of packages, from 0; `None` if the format has no list.
    """

    def __init__(self, package: str, place: int | None, reason: str) -> None:
        super().__init__(reason)
        self.package = package
        self.place = place


@contextmanager
def package_of(entry: Any, place: int | None) -> Iterator[None]:
    """Convert the exceptions of reading a malformed package, or of its name alone, to an error that names the package.

    The place is the position in the lock's list of packages, from 0; `None` if the format has no list.

    Raises:
        EntryError: If it is malformed.
    """
    try:
        yield
    except EntryError:
        raise
    except MALFORMED as error:
        name = entry.get("name", "") if isinstance(entry, Mapping) else entry
        raise EntryError(name if isinstance(name, str) else "", place, reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """Return the reason that an exception gives for a malformed document, on one line."""
    if isinstance(error, KeyError):
        return f"field {error} is absent"
    if isinstance(error, (AttributeError, TypeError)):
        return "a field has a value of another type than this format has"
    return " ".join(str(error).split())


class DocumentFormat(LockFormat):
    """A format whose locks are documents in TOML or JSON.

    The lines of packages are found by patterns, which are those of a list of tables in TOML by default.

    Attributes:
        is_json: Whether the documents are JSON; else they are TOML.
        header: Text before all that concerns the lock as a whole; empty if that is at its beginning.
        package_line: Pattern of the first line of a package.
        name_line: Pattern of the line with the ``name`` of a package.
        version_line: Pattern of the line with the ``version`` of a package, after the line with its name.
    """

    is_json = False
    header = ""
    package_line = re.compile(r"\[\[packages?\]\]")
    name_line = re.compile(r'name\s*=\s*"(?P<name>[\w.-]+)"\s*$')
    version_line = re.compile(r'version\s*=\s*"(?P<version>[^"]+)"\s*$')

    @abstractmethod
    def entries(self, document: Document, target: Target) -> Iterator[Entry]:
        """Yield the packages of a lock.

        Raises:
            EntryError: If a package is malformed.
        """

    def pythons(self, document: Document) -> Mapping[str, str]:
        """Return the specifiers of interpreters, each with its text in the lock; one must admit the target."""
        stated = document.get("requires-python")
        return {} if stated is None else {str(stated): str(stated)}

    def environments(self, document: Document) -> Sequence[str]:
        """Return the markers of environments that a lock is for; one must be true on a target. None: it is for all."""
        return ()

    def unverified_hosts(self, document: Document) -> Mapping[str, str]:
        """Return the hosts whose certificates are not verified, each with its text in the lock."""
        return {}

    def read(self, path: Path, target: Target) -> Lock:
        """Return the packages of a lock for a target."""
        text, document = self._load(path)
        try:
            return replace(
                self._lock(path, text, self.entries(document, target)),
                tool=self.tool,
                obstacles=tuple(self._obstacles(text, document, target)),
                trusted_hosts=tuple(
                    (host, self._line_with(text, stated)) for host, stated in self.unverified_hosts(document).items()
                ),
            )
        except EntryError as error:
            line = self._line_of(text, error)
            about = f"package `{error.package}` (line {line})" if error.package else f"the package on line {line}"
            raise _unreadable(path, f"is malformed: {about}: {error}", line=line, package=error.package) from None
        except MALFORMED as error:
            raise _unreadable(path, f"is malformed: {reason_of(error)}") from None

    def _load(self, path: Path) -> tuple[str, Document]:
        text = read_text(path, package_at=self._package_at)
        try:
            document = json.loads(text) if self.is_json else parse_toml(text)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            match = _AT_LINE.search(reason)
            line = int(match[1]) if match else 1
            package = self._package_at(text, line) if match else ""
            near = f", near package `{package}`" if package else ""
            raise _unreadable(path, f"cannot be read: {reason}{near}", line=line, package=package) from None
        if not isinstance(document, dict):
            raise _unreadable(path, "is not a lock: it contains no table")
        return text, document

    def _obstacles(self, text: str, document: Document, target: Target) -> Iterator[tuple[str, int]]:
        """Yield why a target cannot install a lock as a whole, as its installers refuse it, with the line."""
        pythons = self.pythons(document)
        if pythons and not any(_admits(specifier, stated, target) for specifier, stated in pythons.items()):
            admitted = " or ".join(f"`{specifier}`" for specifier in pythons)
            problem = f"requires Python {admitted}, and the target has {target.python}"
            yield problem, self._line_with(text, next(iter(pythons.values())))
        environments = self.environments(document)
        if environments and not any(target.satisfies(marker) for marker in environments):
            others = " or ".join(f"`{marker}`" for marker in environments)
            own = f"Python {target.python} on {target.platform}"
            yield f"is for environments with {others}, and the target is {own}", self._line_with(text, environments[0])

    def _lock(self, path: Path, text: str, records: Iterator[Entry]) -> Lock:
        """Return a lock with the given entries."""
        lines = self._lines(text)
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
                digests = [digest.lower() for digest in entry.hashes]
                hashes = frozenset(
                    {
                        *(file.sha256 for file in entry.files if file.sha256),
                        *(digest.removeprefix(_SHA256) for digest in digests if digest.startswith(_SHA256)),
                    }
                )
                if entry.source is not None:
                    sources.append(replace(entry.source, name=name, line=line, hashes=hashes))
                if entry.is_open:
                    open_entries.append((name, line))
                elif not entry.version and entry.source is None:
                    raise ValueError("it has neither a version nor a direct reference")
                if not entry.version:
                    continue
                version = LockedVersion(
                    version=Version(entry.version),
                    line=line,
                    index=entry.index,
                    files=entry.files,
                    hashes=hashes,
                    other_hashes=frozenset(digest for digest in digests if not digest.startswith(_SHA256)),
                    direct_reference=entry.source.address if entry.source else "",
                )
                entries.append((name, version))
                if entry.on_target:
                    packages[name] = version
        return Lock(
            path=path,
            packages=packages,
            entries=tuple(entries),
            sources=tuple(sources),
            open_entries=tuple(open_entries),
        )

    def _line_with(self, text: str, stated: str) -> int:
        """Return the line with a text about the lock as a whole, whatever its quotation marks; 1 if there is none."""
        plain = text.replace('\\"', "'").replace('"', "'")
        start = max(plain.find(self.header), 0)
        return plain.count("\n", 0, max(plain.find(stated.replace('"', "'"), start), 0)) + 1

    def _lines(self, text: str) -> dict[tuple[str, str], list[int]]:
        """Return the line numbers of each name and version in the lock.

        The key with an empty version has the lines of the name.
        """
        lines_by_key: dict[tuple[str, str], list[int]] = {}
        name = ""
        for number, line in enumerate(lines_of(text), start=1):
            if match := self.name_line.match(line):
                name = canonicalize_name(match["name"])
                lines_by_key.setdefault((name, ""), []).append(number)
            elif name and (match := self.version_line.match(line)):
                lines_by_key.setdefault((name, match["version"]), []).append(number)
        return lines_by_key

    def _line_of(self, text: str, error: EntryError) -> int:
        """Return the line on which a malformed package begins; 1 if unknown."""
        first_lines = [number for number, line in enumerate(text.split("\n"), start=1) if self.package_line.match(line)]
        if error.place is not None and error.place < len(first_lines):
            return first_lines[error.place]
        return self._lines(text).get((canonicalize_name(error.package), ""), [1])[0]

    def _package_at(self, text: str, line: int) -> str:
        """Return the name of the package that a line of a lock belongs to; empty if there is none."""
        above = (self.name_line.match(content) for content in reversed(text.split("\n")[:line]))
        return next((match["name"] for match in above if match), "")


def _unreadable(path: Path, problem: str, *, line: int = 1, package: str = "") -> UnreadableFileError:
    return UnreadableFileError(f"`{path}` {problem}", path=path, line=line, package=package, hint=_RECREATE_HINT)


def _admits(specifier: str, stated: str, target: Target) -> bool:
    """Whether a specifier, or a constraint of Poetry such as `^3.9`, admits the interpreter of a target.

    If the target states no patch release, one that is admitted is enough.

    Raises:
        ValueError: If it is neither.
    """
    try:
        specifiers = SpecifierSet(specifier)
    except InvalidSpecifier:
        from advisor.project.formats.poetry_constraints import admits_python

        pythons = f"=={target.python if target.states_patch else f'{target.python_minor}.*'}"
        try:
            return admits_python(specifier, pythons)
        except (ValueError, RecursionError):
            raise ValueError(f"`{stated[:_MOST_CHARACTERS]}` does not state versions of Python") from None
    if target.states_patch:
        return specifiers.contains(target.python, prereleases=True)
    return not (specifiers & SpecifierSet(f"=={target.python_minor}.*")).is_unsatisfiable()


def content_of(entry: Document, *keys: str) -> str:
    """Return the values of some keys of a package as one line of JSON."""
    return json.dumps({key: entry[key] for key in keys if key in entry}, sort_keys=True, default=str)


def kind_of_source(source: Document, kinds: Iterable[str]) -> str:
    """Return the kind of source that a package has; empty if it has none.

    Raises:
        ValueError: If it has several: tools differ in which one they use.
    """
    present = [kind for kind in kinds if kind in source]
    if len(present) > 1:
        raise ValueError(f"it has several sources: {', '.join(f'`{kind}`' for kind in present)}")
    return present[0] if present else ""


def locked_file(file: Document, *, folder: str = "") -> LockedFile:
    """Return a file of a lock as uv, Poetry and PDM write it; its path is relative to the folder, else to the lock."""
    hashed, url, path = str(file.get("hash", "")), str(file.get("url", "")), str(file.get("path", ""))
    return LockedFile(
        name=str(file.get("filename") or file.get("file") or unquote(PurePosixPath(urlsplit(url or path).path).name)),
        sha256=hashed.removeprefix(_SHA256).lower() if hashed.startswith(_SHA256) else "",
        url=url,
        path=f"{folder.removesuffix('/')}/{path}" if path and folder else path,
        size=file.get("size"),
        other_hashes=(hashed,) if hashed and not hashed.startswith(_SHA256) else (),
    )


def is_default(package: Document, target: Target) -> bool:
    """Whether a package of a lock of Poetry or PDM is in the main or default group and applies to the target."""
    marker = package.get("marker", package.get("markers"))
    if isinstance(marker, dict):
        marker = marker.get("main")
    python = str(package.get("python-versions", package.get("requires_python", "")))
    admitted = python in ("", "*") or "||" in python or SpecifierSet(python).contains(target.python, prereleases=True)
    default = bool({"main", "default"} & set(package.get("groups", ["main"])))
    return default and not package.get("optional") and admitted and target.satisfies(marker)


def source_of(
    name: str, url: str, revision: str, *, content: str, directory: bool, subdirectory: object
) -> LockedSource | None:
    """Return the source of a package of Poetry, PDM or Pipenv; `None` if it comes from an index.

    Args:
        name: The package.
        url: Address of the repository or archive, or path of the directory; empty if it comes from an index.
        revision: Commit of a repository; empty for other sources.
        content: All that the lock records of the source, on one line.
        directory: Whether it is a directory.
        subdirectory: Directory of the package in the repository or archive; `None` for the top.
    """
    if not url:
        return None
    return LockedSource(
        name=canonicalize_name(name),
        address=f"{url}@{revision}" if revision else url,
        content=content,
        directory=directory,
        url=url,
        commit=revision,
        subdirectory=str(subdirectory or ""),
    )
