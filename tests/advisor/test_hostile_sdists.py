"""Sdists that would take endless time or memory to read are refused early with an error."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.limits import TooLargeError
from advisor.index.metadata import archive
from advisor.index.metadata.archive import ArchiveError, read_sdist_texts
from advisor.index.metadata.build import unpack
from advisor.index.metadata.distributions import MetadataError
from knowledge.domain.errors import UnavailableError
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


def tar_of(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """Return an sdist with members: a name, a type and a content, which is the target of a link."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as sdist:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o6777
            member.linkname = text if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            member.size = len(text) if kind == tarfile.REGTYPE else 0
            sdist.addfile(member, io.BytesIO(text.encode()))
    content.seek(0)
    return content


FILE = ("a-1.0/x", tarfile.REGTYPE, "text")


def test_files_directories_and_links_of_an_sdist_are_unpacked_without_special_permissions(tmp_path: Path) -> None:
    # Python 3.11.0 to 3.11.3 have no filters in `tarfile`.
    members = (
        ("a-1.0/second", tarfile.SYMTYPE, "docs/first"),
        ("a-1.0/docs/first", tarfile.SYMTYPE, "../x"),
        ("a-1.0/folder", tarfile.SYMTYPE, "empty"),
        ("a-1.0/nothing", tarfile.SYMTYPE, "absent"),
        ("a-1.0/empty", tarfile.DIRTYPE, ""),
        ("/a-1.0/../a-1.0/y", tarfile.REGTYPE, "other"),
        ("a-1.0/hard", tarfile.LNKTYPE, "a-1.0/y"),
    )

    tree = unpack(tar_of(FILE, *members), NAME, tmp_path / "source")

    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == sorted(
        ["x", "y", "hard", "second", "docs", "docs/first", "folder", "empty"]
    )
    assert [(tree / name).read_text() for name in ("second", "docs/first", "hard")] == ["text", "text", "other"]
    assert (tree / "x").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [("../x", tarfile.REGTYPE, "text")],
        [("a-1.0/../../x", tarfile.REGTYPE, "text")],
        [FILE, ("a-1.0/link", tarfile.SYMTYPE, "../../outside")],
        [FILE, ("a-1.0/link", tarfile.SYMTYPE, "/etc")],
        [FILE, ("a-1.0/hard", tarfile.LNKTYPE, "../outside/secret")],
        # A chain: the second link leads out only through the first.
        [FILE, ("a-1.0/up", tarfile.SYMTYPE, "."), ("a-1.0/link", tarfile.SYMTYPE, "up/../../outside")],
        [FILE, ("a-1.0/pipe", tarfile.FIFOTYPE, "")],
        [FILE, ("a-1.0/device", tarfile.CHRTYPE, "")],
    ],
    ids=["file", "dotted", "relative", "absolute", "hard", "chain", "pipe", "device"],
)
def test_an_sdist_cannot_write_or_lead_out_of_its_folder(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")

    with pytest.raises(ArchiveError, match=f"`{NAME}` is not a readable sdist: the (member|link)"):
        unpack(tar_of(*members), NAME, tmp_path / "source")
    assert not (tmp_path / "x").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    members = [("a-1.0/link", tarfile.SYMTYPE, "../../outside"), ("a-1.0/link/x", tarfile.REGTYPE, "text")]

    with pytest.raises(UnavailableError):
        unpack(tar_of(*members), NAME, tmp_path / "source")
    assert list((tmp_path / "outside").iterdir()) == []
