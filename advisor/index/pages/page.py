"""Parser of project pages: the files that an index has for one project."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urljoin, urlsplit

from advisor.index.configuration import without_credentials
from advisor.index.limits import ADDRESS_CHARACTERS, NAME_CHARACTERS, PAGE_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionFile:
    """One wheel or sdist as an index lists it.

    Attributes:
        filename: Name of the file.
        url: Absolute address, without a fragment.
        index: Base address of the index.
        sha256: SHA-256 of the file, 64 lower-case hexadecimal digits; `None` if not on the page.
        requires_python: Specifier of the supported interpreters, as written.
        yanked: Whether the file was yanked (PEP 592).
        size: Size in bytes; `None` if not on the page.
        uploaded: Time of upload in UTC (ISO 8601); `None` if not on the page.
        metadata_sha256: SHA-256 of the separate core metadata; empty if it has no hash; `None` if there is no separate
            metadata (PEP 658, PEP 714).
    """

    filename: str
    url: str
    index: str
    sha256: str | None = None
    requires_python: str | None = None
    yanked: bool = False
    size: int | None = None
    uploaded: str | None = None
    metadata_sha256: str | None = None

    @property
    def identity(self) -> str:
        """Key of the file's cache entries. It contains the index, so that an index affects only its own files."""
        return f"{self.index!r} {self.url!r} {self.sha256!r} {self.metadata_sha256!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files on a page.

    Attributes:
        files: The selected files.
        malformed: File name and reason of each selected entry that cannot be used.
    """

    files: tuple[DistributionFile, ...] = ()
    malformed: tuple[tuple[str, str], ...] = ()


FileSelector = Callable[[str], bool]
"""Selects files by name; most files of a large project are for other machines."""

_DISTRIBUTION = (".whl", ".tar.gz", ".zip")


def is_distribution(filename: str) -> bool:
    """Whether a file is a wheel or sdist by its name; pages also contain obsolete formats."""
    return filename.endswith(_DISTRIBUTION)


class _EntryError(ValueError):
    """Raised when one entry of a page is malformed; the other entries can be used."""


def parse_page(body: bytes, content_type: str, *, url: str, index: str, links: bool = False) -> PageEntries:
    """Read a project page of the simple repository API, JSON or HTML (PEP 503, 691, 700).

    Args:
        body: The answer.
        content_type: Its media type.
        url: Address of the page, for relative addresses.
        index: Base address of the index, recorded in every file.
        links: Whether it is any page with links to files, whose names are in the addresses: the texts are free.

    Raises:
        ValueError: If the answer is not a project page.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.endswith("+json"):
        return _json_entries(body, url, index)
    if media_type in ("text/html", "application/vnd.pypi.simple.v1+html"):
        return _html_entries(body, url, index, links=links)
    raise ValueError(f"content type `{media_type}` is not one of the simple repository API")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEntries:
    """The entries of a page.

    Attributes:
        items: File name and values of each; the name is text unless the entry is malformed.
        make: Returns the file of a name and its values.
    """

    items: Sequence[tuple[object, Any]]
    make: Callable[[str, Any], DistributionFile]

    def select(self, selector: FileSelector | None = None) -> Listing:
        """Read the files that a selector accepts; by default all wheels and sdists.

        Every value of an entry is checked, because names, addresses and hashes appear in locks and reports.

        Raises:
            ValueError: If a page from the network links to local files.
        """
        is_selected = is_distribution if selector is None else selector
        files: list[DistributionFile] = []
        malformed: list[tuple[str, str]] = []
        for filename, values in self.items:
            if not isinstance(filename, str):
                name = json.dumps(filename)[:NAME_CHARACTERS]
                malformed.append((name, _malformed("`filename` is not of type str")))
            elif not filename.isprintable() or len(filename) > NAME_CHARACTERS:
                # Terminals and parsers interpret control characters.
                if is_distribution(filename):
                    escaped = ascii(filename[:NAME_CHARACTERS])[1:-1]
                    malformed.append((escaped, "file name or version is not standard"))
            elif is_selected(filename):
                try:
                    files.append(self.make(filename, values))
                except _EntryError as error:
                    malformed.append((filename, _malformed(error)))
        return Listing(files=tuple(files), malformed=tuple(malformed))


def _malformed(reason: object) -> str:
    return f"malformed on the index page: {reason}"


def _json_entries(body: bytes, url: str, index: str) -> PageEntries:
    # An entry has at most five containers: itself, its hashes, and the hashes of its metadata under two names.
    if body.count(b"{") + body.count(b"[") > 5 * PAGE_FILES:
        raise ValueError(f"it lists more than {PAGE_FILES} files")
    try:
        document = json.loads(body)
        version = str(document["meta"]["api-version"])
        if version.partition(".")[0] != "1":
            raise ValueError(f"version {version[:20]} of the simple repository API is not supported")
        entries = document["files"]
        if len(entries) > PAGE_FILES:
            raise ValueError(f"it lists more than {PAGE_FILES} files")
        items = [(entry.get("filename"), entry) for entry in entries]
        return PageEntries(items=items, make=partial(_from_json, url, index))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the page is not a project page: {type(error).__name__} {error}") from None


def _from_json(page: str, index: str, filename: str, entry: Mapping[str, Any]) -> DistributionFile:
    metadata = entry.get("core-metadata", entry.get("data-dist-info-metadata", False))
    hashes = _typed(entry.get("hashes", {}), dict, "hashes")
    return DistributionFile(
        filename=filename,
        url=_address(page, page, _typed(entry.get("url"), str, "url")),
        index=index,
        sha256=_sha256(hashes["sha256"]) if hashes.get("sha256") is not None else None,
        requires_python=_optional(entry.get("requires-python"), str, "requires-python"),
        yanked=bool(entry.get("yanked")) or entry.get("yanked") == "",
        size=_size(entry.get("size")),
        uploaded=_time(entry.get("upload-time")),
        metadata_sha256=_metadata_hash(metadata),
    )


def _metadata_hash(value: object) -> str | None:
    """Return the hash in ``core-metadata``; empty if it contains no SHA-256, `None` if there is no such file."""
    if isinstance(value, dict):
        return "" if value.get("sha256") is None else _sha256(value["sha256"])
    return "" if value else None


_T = TypeVar("_T", str, int, dict[str, Any])


def _typed(value: object, kind: type[_T], name: str) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _EntryError(f"`{name}` is not of type {kind.__name__}")
    return value


def _optional(value: object, kind: type[_T], name: str) -> _T | None:
    return None if value is None else _typed(value, kind, name)


def _size(value: object) -> int | None:
    size = _optional(value, int, "size")
    if size is not None and not 0 <= size < 2**63:
        raise _EntryError("`size` is not a number of bytes")
    return size


def _time(value: object) -> str | None:
    text = _optional(value, str, "upload-time")
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat() if text else None
    except (ValueError, OverflowError):
        raise _EntryError("`upload-time` is not a time") from None


_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def _sha256(value: object) -> str:
    if not isinstance(value, str) or _SHA256.fullmatch(value) is None:
        raise _EntryError("its hash is not a SHA-256")
    return value.lower()


_TEXT_ELEMENTS = (
    *("abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "img", "kbd", "mark"),
    *("q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"),
)
"""Elements that do not end the name of a file (HTML standard, section 4.5)."""


class _LinkCollector:
    """Collects the links of a page during parsing, because an element tree needs up to forty times its memory."""

    def __init__(self) -> None:
        self.base: str | None = None
        self.links: list[tuple[str, Mapping[str, str]]] = []
        self._attributes: Mapping[str, str] | None = None
        self._text: list[str] = []
        self._remaining = 0
        self._events = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._count()
        self.end(tag)
        if tag == "base" and self.base is None and "href" in attributes:
            # Only the first one counts (HTML standard, section 4.2.3).
            self.base = attributes["href"]
        elif tag == "a" and attributes.get("href"):
            self._attributes, self._text, self._remaining = attributes, [], NAME_CHARACTERS + 1

    def data(self, text: str) -> None:
        self._count()
        if self._attributes is not None and self._remaining > 0:
            self._text.append(text[: self._remaining])
            self._remaining -= len(text)

    def close(self) -> None:
        self.end("html")

    def end(self, tag: str) -> None:
        """End the link at a tag. Elements may surround or divide its text; a link without an end tag ends, too."""
        if self._attributes is None or tag in _TEXT_ELEMENTS:
            return
        text = "".join(self._text).strip()
        if text or tag in ("a", "html"):
            self.links.append((text, self._attributes))
            self._attributes = None
            if len(self.links) > PAGE_FILES:
                raise ValueError(f"it lists more than {PAGE_FILES} files")

    def _count(self) -> None:
        # A link has at most three elements and two texts.
        limit = 5 * PAGE_FILES
        self._events += 1
        if self._events > limit:
            raise ValueError(f"it contains more than {limit} elements and texts")


def _html_entries(body: bytes, url: str, index: str, *, links: bool) -> PageEntries:
    from lxml import etree

    if b"<" not in body:
        raise ValueError("the page contains no links")
    collector = _LinkCollector()
    try:
        etree.HTML(body, etree.HTMLParser(encoding="utf-8", target=cast(Any, collector)))
    except etree.LxmlError as error:
        raise ValueError(str(error)) from None
    base = url if collector.base is None else urljoin(url, collector.base)
    items = [
        (unquote(a["href"].strip().partition("#")[0].rpartition("/")[2]) if links else text, a)
        for text, a in collector.links
    ]
    return PageEntries(items=items, make=partial(_from_html, url, base, index))


def _from_html(page: str, base: str, index: str, text: str, attributes: Mapping[str, str]) -> DistributionFile:
    address, _, fragment = attributes["href"].strip().partition("#")
    digest = next((part for part in fragment.split("&") if part.startswith("sha256=")), None)
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata", "false"))
    algorithm, has_hash, metadata_digest = metadata.partition("=")
    return DistributionFile(
        filename=text,
        url=_address(page, base, address),
        index=index,
        sha256=None if digest is None else _sha256(digest.removeprefix("sha256=")),
        requires_python=attributes.get("data-requires-python"),
        yanked="data-yanked" in attributes,
        metadata_sha256=_metadata_hash({algorithm: metadata_digest} if has_hash else metadata != "false"),
    )


_PLAIN_ADDRESS = re.compile(r"https://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?:/[\w.~%+!-]+)+", re.ASCII)
"""An address that every parser reads in the same way, and that no base changes (RFC 3986, 5.2.2)."""


def _address(page: str, base: str, url: str) -> str:
    """Return the absolute address of a link. The whole page is refused if it is remote and links to a local file."""
    if len(url) <= ADDRESS_CHARACTERS and _PLAIN_ADDRESS.fullmatch(url):
        # The general way takes ten times as long, and a page has thousands of addresses.
        return url
    if not url.isprintable() or len(url) > ADDRESS_CHARACTERS:
        raise _EntryError("its address is too long or contains control characters")
    try:
        absolute = urljoin(base, url)
        parts = urlsplit(absolute)
        valid = parts.scheme not in ("http", "https") or (parts.hostname and parts.port != 0)
    except ValueError:
        valid = False
    if not valid:
        raise _EntryError("its address is malformed")
    if parts.scheme not in ("http", "https") and (parts.scheme != "file" or urlsplit(page).scheme != "file"):
        raise ValueError(f"it links to `{absolute[:160]}`, but only an index on this machine may link to local files")
    return without_credentials(absolute.partition("#")[0]) if "@" in absolute or "#" in absolute else absolute


def dump_files(files: Iterable[DistributionFile]) -> list[dict[str, Any]]:
    """Convert files to JSON values, without absent values."""
    # `dataclasses.asdict` copies every value, which takes ten times as long.
    names = [field.name for field in fields(DistributionFile)]
    return [{k: v for k in names if (v := getattr(file, k)) not in (None, False)} for file in files]


def load_files(entries: Iterable[dict[str, Any]]) -> tuple[DistributionFile, ...]:
    """Convert the JSON values of :func:`dump_files` to files.

    Raises:
        TypeError: If an entry has other fields.
    """
    return tuple(DistributionFile(**entry) for entry in entries)
