"""Sdists that would take endless time or memory to read are refused early with an error."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index import archive
from advisor.index.archive import ArchiveError, read_sdist_texts
from advisor.index.distributions import MetadataError
from advisor.index.limits import TooLargeError
from tests.advisor.factories import build_client
from tests.package_index import PackageIndex

NAME = "a-1.0.tar.gz"
PKG_INFO = b"Metadata-Version: 2.2\nName: a\nVersion: 1.0\n"


def metadata_of(sdist: io.BytesIO, name: str) -> str:
    """Return the metadata of an sdist that needs no other file."""
    return read_sdist_texts(sdist, name, is_complete=lambda _: True)["PKG-INFO"]


def header(kind: bytes = tarfile.REGTYPE, name: str = "a-1.0/x", size: int = 0) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse(extended: int) -> bytes:
    """Return a sparse member in the old GNU format, with a chain of extension headers."""
    block = bytearray(header(tarfile.GNUTYPE_SPARSE))
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + (b"\0" * 504 + b"\x01" + b"\0" * 7) * extended


def pax(pairs: dict[str, str]) -> bytes:
    member = tarfile.TarInfo("a-1.0/x")
    member.pax_headers = pairs
    return member.tobuf(tarfile.PAX_FORMAT)


PADDED = PKG_INFO + b"\0" * (512 - len(PKG_INFO))
ENTRY = header(name="a-1.0/PKG-INFO", size=len(PKG_INFO)) + PADDED


@pytest.mark.parametrize(
    "content",
    [
        sparse(0),
        sparse(2) + ENTRY,
        sparse(2),
        pax({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}) + b"9" * 512 + ENTRY,
        pax({"GNU.sparse.map": "1,2,3"}) + ENTRY,
        pax({"GNU.sparse.size": "1"}) + ENTRY,
    ],
    ids=["cut", "chained", "chain", "pax-1.0", "pax-0.1", "pax-0.0"],
)
def test_a_sparse_member_is_refused(index: PackageIndex, tmp_path: Path, content: bytes) -> None:
    index.add_file("a", NAME, gzip.compress(content))
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError, match=f"metadata: `{NAME}` is not a readable sdist: it contains a sparse member"):
        client.metadata(client.files(canonicalize_name("a"))[0])


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_long_chain_of_headers_is_refused(kind: bytes) -> None:
    chain = (header(kind, size=5) + b"a\0".ljust(512, b"\0")) * 5000 + ENTRY

    with pytest.raises(ArchiveError, match=f"`{NAME}` is not a readable sdist: "):
        metadata_of(io.BytesIO(gzip.compress(chain)), NAME)


@pytest.mark.parametrize(
    "content",
    [
        pax({"comment": "9" * 40_000}),
        b"".join(pax({"comment": "9" * 30_000}) for _ in range(4)),
        header(tarfile.XGLTYPE, size=2000) + b"9" * 2048,
        header(tarfile.REGTYPE, size=-5),
    ],
    ids=["long", "several", "global", "negative"],
)
def test_extension_headers_have_a_size_limit(content: bytes) -> None:
    with pytest.raises(ArchiveError, match="too many or too long headers|negative size"):
        metadata_of(io.BytesIO(gzip.compress(content + ENTRY)), NAME)


@pytest.mark.parametrize(
    "content",
    [header(size=2**60), header(size=2**33 - 1), pax({"size": "9" * 30}), pax({"size": str(2**40)})],
    ids=["base-256", "octal", "pax", "small pax"],
)
def test_a_member_larger_than_its_archive_is_refused(content: bytes) -> None:
    # The library would skip it block by block, even after the end of the archive.
    with pytest.raises(ArchiveError, match=f"`{NAME}` is not a readable sdist: it ends within a member"):
        metadata_of(io.BytesIO(gzip.compress(content + ENTRY)), NAME)


def test_members_with_long_names_are_read() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", format=tarfile.PAX_FORMAT) as opened:
        for number in range(200):
            opened.addfile(tarfile.TarInfo(f"a-1.0/{'ä' * 200}/{number}"))
        member = tarfile.TarInfo("a-1.0/PKG-INFO")
        member.size = len(PKG_INFO)
        opened.addfile(member, io.BytesIO(PKG_INFO))

    assert metadata_of(io.BytesIO(content.getvalue()), NAME) == PKG_INFO.decode()


def test_many_members_with_long_names_exact_times_and_large_users_are_read() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as opened:
        for number in range(20_000):
            member = tarfile.TarInfo(f"a-1.0/{'x' * 240}/{number:05}.py")
            member.mtime, member.uid, member.gid = 1_700_000_000.123456, 1_000_000_000, 1_000_000_000
            opened.addfile(member)
        member = tarfile.TarInfo("a-1.0/PKG-INFO")
        member.size = len(PKG_INFO)
        opened.addfile(member, io.BytesIO(PKG_INFO))

    assert metadata_of(io.BytesIO(content.getvalue()), NAME) == PKG_INFO.decode()


@pytest.mark.parametrize("name", [NAME, "a-1.0.zip"])
@pytest.mark.parametrize("others", [9, 10])
def test_metadata_is_searched_in_a_limited_number_of_members(
    monkeypatch: pytest.MonkeyPatch, name: str, others: int
) -> None:
    monkeypatch.setattr(archive, "MEMBERS", 10)
    content = io.BytesIO()
    if name == NAME:
        content.write(gzip.compress(header() * others + ENTRY))
    else:
        with zipfile.ZipFile(content, "w") as opened:
            for number in range(others):
                opened.writestr(f"a-1.0/{number}", b"")
            opened.writestr("a-1.0/PKG-INFO", PKG_INFO)
    content.seek(0)

    if others == 9:
        assert metadata_of(content, name) == PKG_INFO.decode()
    else:
        with pytest.raises(TooLargeError, match=f"`{name}` contains more than 10 members"):
            metadata_of(content, name)
