"""The files that an index offers for one project."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

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


def parse_page(body: bytes, content_type: str, *, project: str, url: str, index: str) -> tuple[DistributionFile, ...]:
    """Read a project page of the simple repository API, JSON or HTML (PEP 503, 691, 700).

    Args:
        body: The answer.
        content_type: Its media type.
        project: Normalised project name.
        url: Address of the page, against which relative addresses are resolved.
        index: Base address of the index, recorded in every file.

    Raises:
        ValueError: If the answer is not a project page.
    """
    from pypi_simple import ProjectPage, UnsupportedContentTypeError

    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind.endswith("+json"):
            page = ProjectPage.from_json_data(json.loads(body), base_url=url)
        elif kind in ("text/html", "application/vnd.pypi.simple.v1+html"):
            text = body.decode("utf-8", "replace")
            if "<a" not in text and "<html" not in text.lower():
                raise ValueError("the page holds no links")
            page = ProjectPage.from_html(project, text, base_url=url)
        else:
            raise ValueError(f"content type `{kind}` is not one of the simple repository API")
    except UnsupportedContentTypeError as error:
        raise ValueError(str(error)) from None
    return tuple(_file(package, index) for package in page.packages)


def _file(package: Any, index: str) -> DistributionFile:
    metadata = (package.metadata_digests or {}).get("sha256", "") if package.has_metadata else None
    uploaded = package.upload_time
    return DistributionFile(
        filename=package.filename,
        url=without_credentials(package.url.partition("#")[0]),
        index=index,
        sha256=package.digests.get("sha256"),
        requires_python=package.requires_python,
        yanked=bool(package.is_yanked),
        size=package.size,
        uploaded=uploaded.astimezone(UTC).isoformat() if isinstance(uploaded, datetime) else None,
        metadata_sha256=metadata,
    )


def dump_files(files: Iterable[DistributionFile]) -> list[dict[str, Any]]:
    """Turn files into JSON-ready values, absent facts left out."""
    return [{k: v for k, v in asdict(file).items() if v not in (None, False)} for file in files]


def load_files(entries: Iterable[dict[str, Any]]) -> tuple[DistributionFile, ...]:
    """Read what :func:`dump_files` wrote.

    Raises:
        TypeError: If an entry has other fields.
    """
    return tuple(DistributionFile(**entry) for entry in entries)
