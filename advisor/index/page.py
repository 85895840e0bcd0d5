"""The files that an index offers for one project."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urljoin

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


def _from_json(entry: Mapping[str, Any], base: str, index: str) -> DistributionFile:
    metadata = entry.get("core-metadata", entry.get("data-dist-info-metadata", False))
    uploaded = entry.get("upload-time")
    return DistributionFile(
        filename=entry["filename"],
        url=_address(base, entry["url"]),
        index=index,
        sha256=entry.get("hashes", {}).get("sha256"),
        requires_python=entry.get("requires-python"),
        yanked=bool(entry.get("yanked")) or entry.get("yanked") == "",
        size=entry.get("size"),
        uploaded=datetime.fromisoformat(uploaded).astimezone(UTC).isoformat() if uploaded else None,
        metadata_sha256=(metadata.get("sha256", "") if isinstance(metadata, dict) else "") if metadata else None,
    )


def _html_entries(body: bytes, url: str) -> Iterator[_Entry]:
    from lxml import etree

    root = etree.HTML(body, etree.HTMLParser(encoding="utf-8")) if body.strip() else None
    if root is None or b"<" not in body:
        raise ValueError("the page holds no links")
    for element in root.iter("base"):
        url = urljoin(url, element.get("href", ""))
    for element in root.iter("a"):
        if element.get("href"):
            yield (element.text or "").strip(), partial(_from_html, element, url)


def _from_html(element: Any, base: str, index: str) -> DistributionFile:
    address, _, fragment = element.get("href").partition("#")
    metadata = element.get("data-core-metadata", element.get("data-dist-info-metadata", "false"))
    return DistributionFile(
        filename=element.text.strip(),
        url=_address(base, address),
        index=index,
        sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None,
        requires_python=element.get("data-requires-python"),
        yanked=element.get("data-yanked") is not None,
        metadata_sha256=None if metadata == "false" else metadata.removeprefix("sha256=") if "=" in metadata else "",
    )


def _address(base: str, url: str) -> str:
    absolute = url if url.startswith(("http://", "https://")) else urljoin(base, url)
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
