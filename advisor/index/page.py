"""The files that an index offers for one project."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import urljoin, urlsplit

from advisor.index.configuration import without_credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionFile:
    """One wheel or sdist as an index lists it.

    Attributes:
        filename: Name of the file.
        url: Absolute address, without a fragment.
        sha256: Hexadecimal SHA-256 of the file, where the index tells.
        requires_python: Specifier of the interpreters it is for, as written.
        yanked: Whether it was withdrawn.
        size: Bytes, where the index tells.
        uploaded: ISO 8601 time of upload in UTC, where the index tells.
        metadata_sha256: SHA-256 of the separate core metadata; empty where that exists without a hash; none where
            there is none (PEP 658, PEP 714).
        index: Base address of the index it came from.
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
        """What is remembered of the file is remembered under this: an index speaks for its own files only."""
        return f"{self.index!r} {self.url!r} {self.sha256!r} {self.metadata_sha256!r}"


Wanted = Callable[[str], bool]
"""Says of a file name whether the file matters; most files of a large project are for other machines."""

_DISTRIBUTION = (".whl", ".tar.gz", ".zip")


def is_distribution(filename: str) -> bool:
    """Whether a file is a wheel or sdist by its name; pages also list what no installer takes any more."""
    return filename.endswith(_DISTRIBUTION)


def parse_page(
    body: bytes, content_type: str, *, url: str, index: str, wanted: Wanted | None = None
) -> tuple[DistributionFile, ...]:
    """Read the files of a project page of the simple repository API, JSON or HTML (PEP 503, 691, 700).

    Args:
        body: The answer.
        content_type: Its media type.
        url: Address of the page, against which relative addresses are resolved.
        index: Base address of the index, recorded in every file.
        wanted: Which files to read; by default all wheels and sdists.

    Raises:
        ValueError: If the answer is not a project page.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith("+json"):
        entries = _json_entries(body, url)
    elif kind in ("text/html", "application/vnd.pypi.simple.v1+html"):
        entries = _html_entries(body, url)
    else:
        raise ValueError(f"content type `{kind}` is not one of the simple repository API")
    chosen = is_distribution if wanted is None else wanted
    return tuple(make(index) for filename, make in entries if chosen(filename))


_Entry = tuple[str, Callable[[str], DistributionFile]]
"""A file name, and what makes the file of it for an index."""


def _json_entries(body: bytes, url: str) -> Iterator[_Entry]:
    try:
        document = json.loads(body)
        version = str(document["meta"]["api-version"])
        if version.partition(".")[0] != "1":
            raise ValueError(f"the simple repository API of version {version} is not known")
        entries = document["files"]
        for entry in entries:
            yield str(entry["filename"]), partial(_from_json, entry, url)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the page is not that of a project: {type(error).__name__} {error}") from None


def _from_json(entry: Mapping[str, Any], page: str, index: str) -> DistributionFile:
    try:
        metadata = entry.get("core-metadata", entry.get("data-dist-info-metadata", False))
        uploaded = entry.get("upload-time")
        return DistributionFile(
            filename=_typed(entry["filename"], str),
            url=_address(page, page, _typed(entry["url"], str)),
            index=index,
            sha256=_optional(entry.get("hashes", {}).get("sha256"), str),
            requires_python=_optional(entry.get("requires-python"), str),
            yanked=bool(entry.get("yanked")) or entry.get("yanked") == "",
            size=_optional(entry.get("size"), int),
            uploaded=datetime.fromisoformat(uploaded).astimezone(UTC).isoformat() if uploaded else None,
            metadata_sha256=_optional(metadata.get("sha256", "") if isinstance(metadata, dict) else "", str)
            if metadata
            else None,
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"the entry of `{entry['filename']}` is malformed: {type(error).__name__} {error}") from None


_T = TypeVar("_T", str, int)


def _typed(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"`{str(value)[:40]}` is not of type {kind.__name__}")
    return value


def _optional(value: object, kind: type[_T]) -> _T | None:
    return None if value is None else _typed(value, kind)


class _Links:
    """Gathers the links of a page while it is parsed: a tree of the elements takes up to forty times the page."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.base: str | None = None
        self.found: list[tuple[str, Mapping[str, str]]] = []
        self._attributes: Mapping[str, str] | None = None
        self._text = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        self._finish()
        if tag == "base" and self.base is None and "href" in attributes:
            # Only the first one counts (HTML standard, section 4.2.3).
            self.base = urljoin(self.url, attributes["href"])
        elif tag == "a" and attributes.get("href"):
            self._attributes, self._text = attributes, ""

    def data(self, text: str) -> None:
        """Take a piece of text."""
        if self._attributes is not None:
            self._text += text

    def end(self, _: str) -> None:
        """End an element."""
        self._finish()

    def close(self) -> None:
        """End the page."""
        self._finish()

    def _finish(self) -> None:
        if self._attributes is not None:
            self.found.append((self._text.strip(), self._attributes))
            self._attributes = None


def _html_entries(body: bytes, url: str) -> Iterator[_Entry]:
    from lxml import etree

    links = _Links(url)
    try:
        if b"<" in body:
            etree.HTML(body, etree.HTMLParser(encoding="utf-8", target=cast(Any, links)))
    except etree.LxmlError as error:
        raise ValueError(str(error)) from None
    if b"<" not in body:
        raise ValueError("the page holds no links")
    for text, attributes in links.found:
        yield text, partial(_from_html, text, attributes, url, links.base or url)


def _from_html(text: str, attributes: Mapping[str, str], page: str, base: str, index: str) -> DistributionFile:
    address, _, fragment = attributes["href"].partition("#")
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata", "false"))
    return DistributionFile(
        filename=text,
        url=_address(page, base, address),
        index=index,
        sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None,
        requires_python=attributes.get("data-requires-python"),
        yanked="data-yanked" in attributes,
        metadata_sha256=_metadata_hash(metadata),
    )


def _metadata_hash(attribute: str) -> str | None:
    """Return the hash of a ``data-core-metadata`` attribute; empty for `true` and for other kinds of hashes."""
    if attribute == "false":
        return None
    return attribute.removeprefix("sha256=") if attribute.startswith("sha256=") else ""


_REMOTE = ("http://", "https://")


def _address(page: str, base: str, url: str) -> str:
    """Return the absolute address of a link.

    Raises:
        ValueError: If a page from the network names something else than a file on the network.
    """
    absolute = url if url.startswith(_REMOTE) else urljoin(base, url)
    if not absolute.startswith(_REMOTE):
        scheme = urlsplit(absolute).scheme
        if scheme not in ("http", "https") and (scheme != "file" or urlsplit(page).scheme != "file"):
            raise ValueError(f"it links to `{absolute[:160]}`, and only an index of this machine may name local files")
    return without_credentials(absolute.partition("#")[0]) if "@" in absolute or "#" in absolute else absolute


def dump_files(files: Iterable[DistributionFile]) -> list[dict[str, Any]]:
    """Turn files into JSON-ready values, absent facts left out."""
    # `dataclasses.asdict` copies every value, which takes ten times as long.
    names = [field.name for field in fields(DistributionFile)]
    return [{k: v for k in names if (v := getattr(file, k)) not in (None, False)} for file in files]


def load_files(entries: Iterable[dict[str, Any]]) -> tuple[DistributionFile, ...]:
    """Read what :func:`dump_files` wrote.

    Raises:
        TypeError: If an entry has other fields.
    """
    return tuple(DistributionFile(**entry) for entry in entries)
