"""Damaged or endless data from an index gives an error, and is read only up to a limit."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index import limits
from advisor.index.addresses import url_of_path
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.index.http import transport
from advisor.index.http.errors import RangeError
from advisor.index.limits import TooLargeError
from advisor.index.metadata import archive, build
from advisor.index.metadata.core import header_of, parse_metadata
from advisor.index.metadata.distributions import MetadataError
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import IndexAnswerError
from knowledge.domain.errors import UnavailableError
from tests.advisor.factories import build_client
from tests.advisor.index_faults import send
from tests.package_index import PackageIndex

A = canonicalize_name("a")
WHEEL = "a-1.0-py3-none-any.whl"
PKG_INFO = b"Metadata-Version: 2.2\nName: a\nVersion: 1.0\n"


def damaged_wheel(kind: str) -> bytes:
    """Return a wheel whose metadata cannot be read."""
    content = io.BytesIO()
    method = zipfile.ZIP_BZIP2 if kind == "method" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(content, "w", method) as opened:
        opened.writestr(zipfile.ZipInfo("a-1.0.dist-info/METADATA"), PKG_INFO + b"x" * 500, method)
    body = bytearray(content.getvalue())
    start = 30 + len("a-1.0.dist-info/METADATA")
    directory = body.index(b"PK\x01\x02")
    if kind == "content":
        body[start : start + 4] = b"\xff" * 4
    if kind == "encrypted":
        body[6] |= 1
        body[directory + 8] |= 1
    if kind == "table":
        body[directory : directory + 4] = b"XXXX"
    if kind == "cut":
        del body[directory + 10 :]
    return bytes(body)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("kind", ["content", "encrypted", "table", "cut", "method"])
def test_a_damaged_wheel_is_an_error(index: PackageIndex, tmp_path: Path, kind: str, ranges: bool) -> None:
    index.ranges = ranges
    index.add_file("a", WHEEL, damaged_wheel(kind))
    client = build_client(index, tmp_path)
    (file,) = client.files(A)

    with pytest.raises(MetadataError, match=f"metadata: `{WHEEL}` is not a readable wheel: ."):
        client.metadata(file)
    assert kind in ("content", "encrypted") or client.unpacked_size(file) is None


def local_index(folder: Path, wheel: bytes, attributes: str = "", name: str = WHEEL) -> IndexConfiguration:
    """Return the configuration of a local index: a directory with a page."""
    (folder / "a").mkdir(parents=True)
    (folder / "a" / name.replace("%20", " ")).write_bytes(wheel)
    (folder / "a" / "index.html").write_text(f'<html><a href="{name}" {attributes}>{WHEEL}</a></html>')
    return IndexConfiguration(default="http://127.0.0.1:9/simple/", bindings={"a": str(folder)})


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("address", [str, url_of_path])
def test_a_local_index_can_have_core_metadata(
    index: PackageIndex, tmp_path: Path, address: Callable[[Path], str], present: bool
) -> None:
    index.add("a", "1.0", ["b>=1"])
    configuration = local_index(tmp_path / "simple", index.files[WHEEL], 'data-core-metadata="true"')
    if present:
        (tmp_path / "simple" / "a" / f"{WHEEL}.metadata").write_bytes(PKG_INFO + b"Requires-Dist: c\n")
    configuration = IndexConfiguration(bindings={"a": address(tmp_path / "simple")}, default=configuration.default)

    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == (["c"] if present else ["b>=1"])


def test_a_local_wheel_must_have_the_hash_of_its_page(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    configuration = local_index(tmp_path / "simple", index.files[WHEEL], name=f"{WHEEL}")
    page = tmp_path / "simple" / "a" / "index.html"
    page.write_text(page.read_text().replace('.whl"', f'.whl#sha256={"0" * 64}"'))
    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))

    with pytest.raises(IndexAnswerError, match="does not match"):
        client.metadata(client.files(A)[0])


def test_an_absent_local_file_is_an_error(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    configuration = local_index(tmp_path / "simple", index.files[WHEEL])
    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))
    (file,) = client.files(A)
    (tmp_path / "simple" / "a" / WHEEL).unlink()

    with pytest.raises(MetadataError, match="cannot be read: No such file"):
        client.metadata(file)
    with pytest.raises(UnavailableError, match="cannot be read: No such file"):
        client.pinned(file)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    "url", ["file:///etc/a-1.0.whl", "FILE:/etc/a-1.0.whl", "ftp://127.0.0.1/a.whl", "c:/a.whl", "data:a"]
)
def test_local_files_on_a_page_from_the_network_are_refused(
    index: PackageIndex, tmp_path: Path, as_json: bool, url: str
) -> None:
    index.json = as_json
    index.add("a", "1.0")
    index.entries["a"][0]["url"] = url

    with pytest.raises(IndexAnswerError, match="only an index on this machine may link to local files") as caught:
        build_client(index, tmp_path).files(A)

    assert f"{index.url}a/" in caught.value.message


def test_a_base_on_a_page_from_the_network_does_not_make_its_links_local(index: PackageIndex, tmp_path: Path) -> None:
    page = f'<html><base href="file:///etc/"><a href="{WHEEL}">{WHEEL}</a></html>'
    index.page_text, index.page_type = page, "text/html"

    with pytest.raises(IndexAnswerError, match="only an index on this machine may link to local files"):
        build_client(index, tmp_path).files(A)


def test_the_address_of_a_local_file_is_unquoted_once(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", ["b>=1"])
    wheel = tmp_path / "100%25" / WHEEL
    wheel.parent.mkdir()
    wheel.write_bytes(index.files[WHEEL])
    configuration = IndexConfiguration(default=index.url, find_links=(url_of_path(wheel.parent),))
    index.entries.clear()

    client = IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == ["b>=1"]


def test_the_size_of_an_error_response_is_not_the_size_of_the_file(index: PackageIndex, tmp_path: Path) -> None:
    client = build_client(index, tmp_path)
    file = DistributionFile(filename=WHEEL, url=index.url.replace("/simple/", f"/files/{WHEEL}"), index=index.url)

    assert client.size(file) is None
    index.add("a", "1.0")
    assert client.size(file) == len(index.files[WHEEL])


def test_a_page_is_read_up_to_a_limit(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("a", "1.0")
    length = len(index.answer("/simple/a/", {"Accept": "json"})[1])
    monkeypatch.setattr(transport.Transport.get, "__kwdefaults__", {"etag": None, "limit": length})
    assert len(build_client(index, tmp_path / "1").files(A)) == 1

    monkeypatch.setattr(transport.Transport.get, "__kwdefaults__", {"etag": None, "limit": length - 1})
    with pytest.raises(TooLargeError, match="the answer of `.*/simple/a/` exceeds"):
        build_client(index, tmp_path / "2").files(A)


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_a_page_is_decompressed_up_to_a_limit(index: PackageIndex, tmp_path: Path, encoding: str) -> None:
    bomb = gzip.compress(b" " * (limits.PAGE_BYTES + 1))
    index.raw["/simple/a/"] = (bomb, {"Content-Encoding": encoding})

    with pytest.raises(UnavailableError, match="exceeds 32 MiB|compressed as `gzip, gzip`"):
        build_client(index, tmp_path).files(A)


def wheel_of(*members: tuple[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, body in members:
            opened.writestr(name, body)
    return content.getvalue()


def sdist_of(*members: tuple[str, bytes], pax: dict[str, str] | None = None) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", pax_headers=pax or {}) as opened:
        for name, body in members:
            member = tarfile.TarInfo(name)
            member.size = len(body)
            opened.addfile(member, io.BytesIO(body))
    return content.getvalue()


LONG = b"\n" + b"x" * limits.METADATA_BYTES
HEADER = b"Summary: " + b"x" * limits.HEADER_BYTES + b"\n"
METADATA = "a-1.0.dist-info/METADATA"


@pytest.mark.parametrize(
    ("filename", "body", "message"),
    [
        (WHEEL, lambda: wheel_of((METADATA, PKG_INFO + LONG)), f"`{METADATA}` of `{WHEEL}` exceeds 16 MiB"),
        (WHEEL, lambda: wheel_of((METADATA, PKG_INFO + HEADER)), "its header exceeds 2 MiB"),
        (
            "a-1.0.zip",
            lambda: wheel_of(("a-1.0/PKG-INFO", PKG_INFO + LONG)),
            "`PKG-INFO` of `a-1.0.zip` exceeds 16 MiB",
        ),
        (
            "a-1.0.tar.gz",
            lambda: sdist_of(("a-1.0/PKG-INFO", PKG_INFO + LONG)),
            "`PKG-INFO` of `a-1.0.tar.gz` exceeds 16 MiB",
        ),
        ("a-1.0.tar.gz", lambda: sdist_of(pax={"comment": "x" * 2**21}), "too many or too long headers"),
        ("a-1.0.tar.gz", lambda: b"\x1f\x8b\x08 no archive", "`a-1.0.tar.gz` is not a readable sdist"),
        (
            "a-1.0.tar.gz",
            lambda: sdist_of(("a-1.0/PKG-INFO", PKG_INFO))[:-20],
            "`a-1.0.tar.gz` is not a readable sdist",
        ),
    ],
)
def test_metadata_in_an_archive_is_read_up_to_a_limit(
    index: PackageIndex, tmp_path: Path, filename: str, body: Callable[[], bytes], message: str
) -> None:
    index.add_file("a", filename, body())
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match=message):
        client.metadata(client.files(A)[0])


def test_separate_metadata_is_read_up_to_a_limit(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", metadata=(PKG_INFO + LONG).decode())
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match="exceeds 16 MiB"):
        client.metadata(client.files(A)[0])


def test_a_member_larger_than_its_stated_size_is_not_decompressed(index: PackageIndex, tmp_path: Path) -> None:
    bomb = bytearray(wheel_of((METADATA, PKG_INFO + b"\n" * 2**26)))
    size = (len(PKG_INFO) + 2**26).to_bytes(4, "little")
    directory = bomb.index(b"PK\x01\x02")
    for place in (bomb.index(size), bomb.index(size, directory)):
        bomb[place : place + 4] = len(PKG_INFO).to_bytes(4, "little")
    index.add_file("a", WHEEL, bytes(bomb))
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match="not a readable wheel: Bad CRC-32"):
        client.metadata(client.files(A)[0])


def test_the_directory_of_a_wheel_is_read_up_to_a_limit(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DIRECTORY_BYTES", 2**16)
    index.add_file("a", WHEEL, wheel_of(*((f"{n:060}", b"") for n in range(1000))))
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match=f"the table of contents of `{WHEEL}` exceeds"):
        client.metadata(client.files(A)[0])


def test_an_sdist_is_decompressed_up_to_a_limit(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNPACKED_BYTES", 2**20)
    index.add_file("a", "a-1.0.tar.gz", sdist_of(("a-1.0/zeros", bytes(2**21)), ("a-1.0/PKG-INFO", PKG_INFO)))
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match=r"`a-1.0.tar.gz` unpacks to more than 1 MiB"):
        client.metadata(client.files(A)[0])


@pytest.mark.parametrize(
    ("filename", "limit", "message"),
    [
        ("a-1.0.tar.gz", "UNPACKED_BYTES", "unpacks to more than"),
        ("a-1.0.zip", "UNPACKED_BYTES", "unpacks to more than"),
        ("a-1.0.tar.gz", "MEMBERS", "contains more than 2 members"),
        ("a-1.0.zip", "MEMBERS", "contains more than 2 members"),
    ],
)
def test_an_sdist_is_unpacked_for_a_build_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, filename: str, limit: str, message: str
) -> None:
    members = [(f"a-1.0/{name}", bytes(2**20)) for name in "xyz"]
    body = wheel_of(*members) if filename.endswith(".zip") else sdist_of(*members)
    for module in (archive, build, limits):
        monkeypatch.setattr(module, limit, 2, raising=False)

    with pytest.raises(TooLargeError, match=message):
        build.build_metadata(io.BytesIO(body), filename)


def test_a_file_is_fetched_up_to_a_limit(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FILE_BYTES", 2**20)
    index.ranges = index.separate_metadata = False
    index.add("a", "1.0", code="#" * 2**21)
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match="exceeds 1 MiB"):
        client.metadata(client.files(A)[0])


@pytest.mark.parametrize("content_range", ["bytes 0-99999999999/999999999999", "bytes 5-1/3", "none", "bytes */9"])
def test_the_whole_file_is_downloaded_if_a_server_sends_wrong_ranges(
    index: PackageIndex, tmp_path: Path, content_range: str
) -> None:
    index.separate_metadata = False
    index.content_range = content_range
    index.add("a", "1.0", ["b>=1"])
    client = build_client(index, tmp_path)

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == ["b>=1"]
    assert client.transport.request_counts == {"GET": 2, "ranged": 1}


def test_a_part_that_is_shorter_than_its_range_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.separate_metadata = False
    index.add("a", "1.0", ["b>=1"])
    client = build_client(index, tmp_path)
    (file,) = client.files(A)
    size = len(index.files[WHEEL])

    def shorten(request: BaseHTTPRequestHandler) -> None:
        send(b"x" * 9, status=206, Content_Range=f"bytes 0-9/{size}")(request)

    assert len(client.transport.part(file.url, 0, 9).content) == 10
    index.faults[f"/files/{WHEEL}"] = shorten

    with pytest.raises(RangeError, match="does not support range requests"):
        client.transport.part(file.url, 0, 9)


def test_the_wait_that_an_index_requests_has_a_limit(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    index.status, index.failures, index.retry_after = 503, 2, "100000"
    index.add("a", "1.0")

    assert len(build_client(index, tmp_path).files(A)) == 1
    assert [wait for wait in waits if wait] == [limits.RETRY_AFTER_SECONDS] * 2


def test_a_header_of_several_lines_in_built_metadata_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in jsonmerge 1.8.0: a description in a header of several lines, one of which looks like another header.
    backend = """
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    import os
    os.mkdir(os.path.join(directory, "a-1.0.dist-info"))
    with open(os.path.join(directory, "a-1.0.dist-info", "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: a\\nVersion: 1.0\\nSummary: one\\n")
        file.write("Description: Usage\\n        See: this\\n        \\n        End\\nRequires-Dist: b\\n\\n")
    return "a-1.0.dist-info"
def build_wheel(*_, **__):
    raise SystemExit("not needed")
"""
    body = sdist_of(
        ("a-1.0/pyproject.toml", b'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'),
        ("a-1.0/backend.py", backend.encode()),
    )

    text = build.build_metadata(io.BytesIO(body), "a-1.0.tar.gz")

    assert [str(r) for r in parse_metadata(header_of(text)).requires] == ["b"]
