"""Reads core metadata from wheels and sdists; nothing is unpacked to disk or executed.

An `ArchiveError` is raised for a file that is not a readable archive or has no metadata, a `TooLargeError` for one that
exceeds a limit, and another `UnavailableError` if its server does not answer.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, NoReturn, cast

from advisor.index.configuration import without_credentials
from advisor.index.http.errors import RangeError
from advisor.index.http.transport import Transport
from advisor.index.limits import (
    KIB,
    MEMBERS,
    METADATA_BYTES,
    MIB,
    BoundedFile,
    BoundedStream,
    TooLargeError,
    bytes_text,
)
from knowledge.domain.errors import UnavailableError

_TAIL_BYTES = 128 * KIB
_AHEAD_BYTES = 64 * KIB
_HEADER_BYTES, _GLOBAL_BYTES, _HEADERS_BYTES = 32 * KIB, KIB, 16 * MIB
"""Maximum size of an extension header of a tar archive, of all global ones, and of all together.
"""
_HEADER_STEPS = 5 * 2**29
"""Maximum sum of their squared sizes: some versions of `tarfile` search a header in quadratic time
(https://github.com/python/cpython/issues/121285)."""
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_XZ_BYTES = 128 * MIB
"""Maximum memory for decompressing xz; its preset 9 needs 65 MiB (`lzma.LZMADecompressor`)."""
_IMPOSSIBLE_BYTES = 2**63
"""Size that no file has; each member of a wheel may state up to twice as much."""
_CHAINED = 8
"""Maximum number of extension headers of one member."""
_PKG_INFO = "PKG-INFO"
_SDIST_TEXTS = (_PKG_INFO, "pyproject.toml")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE = (
    *(OSError, EOFError, ValueError, OverflowError, LookupError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
)
"""Exceptions of the standard library for an archive that is damaged, encrypted or of an unknown format."""


class ArchiveError(UnavailableError):
    """Raised when a distribution file is not a readable archive."""

    code = "distribution-archive"


class ChangedFileError(RangeError):
    """Raised when a remote file changes while it is read."""


class RangedFile:
    """A remote file; only the parts that are read are downloaded, the end first.

    Raises:
        RangeError: If the server does not support range requests.
        UnavailableError: If the server does not answer.
    """

    def __init__(self, transport: Transport, url: str) -> None:
        self._transport = transport
        self._url = url
        self._part = transport.part(url, -_TAIL_BYTES)
        self.size = self._part.size
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, like the method of a file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("negative position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, size: int) -> bytes:
        """Read like a file; missing parts are downloaded.

        Raises:
            ChangedFileError: If the file changed since its first part was read.
            UnavailableError: If the server does not answer.
        """
        first, end = self._position, min(self._position + size, self.size)
        if end <= first:
            return b""
        if first < self._part.start or end > self._part.start + len(self._part.content):
            last = min(max(end, first + _AHEAD_BYTES), self.size) - 1
            part = self._transport.part(self._url, first, last)
            if (part.size, part.etag) != (self.size, self._part.etag):
                # The parts would be of two different files; only a whole file has a hash to compare.
                raise ChangedFileError(f"`{without_credentials(self._url)}` changed while it was read")
            self._part = part
        self._position = end
        return self._part.content[first - self._part.start : end - self._part.start]


def read_wheel(wheel: BinaryIO | RangedFile, filename: str) -> tuple[str, int]:
    """Return the ``METADATA`` of a wheel, and its unpacked size in bytes."""
    with open_zip(wheel, filename, "wheel") as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise ArchiveError(f"`{filename}` contains {len(names)} `.dist-info/METADATA` files, not one")
        return _text(archive, names[0], filename), _unpacked_size(archive, filename)


def read_unpacked_size(wheel: BinaryIO | RangedFile, filename: str) -> int:
    """Return the unpacked size of a wheel, in bytes; only its table of contents is read."""
    with open_zip(wheel, filename, "wheel") as archive:
        return _unpacked_size(archive, filename)


def _unpacked_size(archive: zipfile.ZipFile, filename: str) -> int:
    size = sum(entry.file_size for entry in archive.infolist())
    if size >= _IMPOSSIBLE_BYTES:
        raise ArchiveError(f"`{filename}` is not a readable wheel: it states an impossible size")
    return size


def read_sdist_texts(sdist: BinaryIO, filename: str, *, is_complete: Callable[[str], bool]) -> dict[str, str]:
    """Return the ``PKG-INFO`` and the ``pyproject.toml`` at the top of an sdist, by these names.

    A ``pyproject.toml`` is left out if it does not exist, is too large, or if the ``PKG-INFO`` is complete without it.
    """
    texts: dict[str, str] = {}
    read = _zip_texts if filename.endswith(".zip") else _tar_texts
    with closing(read(sdist, filename)) as found:
        for name, text in found:
            texts.setdefault(name, text)
            if len(texts) == len(_SDIST_TEXTS) or (_PKG_INFO in texts and is_complete(texts[_PKG_INFO])):
                break
    if _PKG_INFO not in texts:
        raise ArchiveError(f"`{filename}` contains no `PKG-INFO`")
    return texts


def _zip_texts(sdist: BinaryIO, filename: str) -> Generator[tuple[str, str]]:
    with open_zip(sdist, filename) as archive:
        names = archive.namelist()
        check_members(len(names), filename)
        for path in names:
            name = _text_at(path)
            if name and _is_readable(name, archive.getinfo(path).file_size, filename):
                yield name, _text(archive, path, filename)


def _tar_texts(sdist: BinaryIO, filename: str) -> Generator[tuple[str, str]]:
    with open_tar(sdist, filename) as tar:
        for member in members_of(tar, filename):
            name = _text_at(member.name)
            if (
                name
                and (extracted := tar.extractfile(member)) is not None
                and _is_readable(name, member.size, filename)
            ):
                yield name, extracted.read().decode("utf-8", "replace")


def _text_at(path: str) -> str:
    """Return which text of an sdist is at a path in it; empty for other files."""
    folder, _, name = path.rpartition("/")
    return name if name in _SDIST_TEXTS and folder and "/" not in folder else ""


def _is_readable(name: str, size: int, filename: str) -> bool:
    """Whether a text has an acceptable size; it is an error if the ``PKG-INFO`` has not, which is necessary."""
    if name == _PKG_INFO:
        _check_length(size, name, filename)
    return size <= METADATA_BYTES


def check_members(count: int, filename: str) -> None:
    """Check the number of members of an sdist."""
    if count > MEMBERS:
        raise TooLargeError(f"`{filename}` contains more than {MEMBERS} members")


def members_of(tar: tarfile.TarFile, filename: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an sdist, and forget each with its headers, which `tarfile` stores."""
    for count, member in enumerate(tar, start=1):
        check_members(count, filename)
        yield member
        cast(Any, tar).members.clear()


class _HeaderBudget:
    """Limits the extension headers of one tar archive, because `tarfile` reads each of them into memory."""

    def __init__(self) -> None:
        self._total = self._steps = self._global = self._chained = 0

    def take(self, member: tarfile.TarInfo) -> None:
        """Count the header of a member.

        Raises:
            tarfile.TarError: If a limit is exceeded, or the member is sparse.
        """
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.TarError("it contains a sparse member")
        if member.size < 0:
            raise tarfile.TarError("a member has a negative size")
        if member.type not in _EXTENSIONS:
            self._chained = 0
            return
        self._chained += 1
        self._total += member.size
        self._steps += member.size**2
        self._global += member.size if member.type == tarfile.XGLTYPE else 0
        if (
            member.size > _HEADER_BYTES
            or self._total > _HEADERS_BYTES
            or self._steps > _HEADER_STEPS
            or self._global > _GLOBAL_BYTES
            or self._chained > _CHAINED
        ):
            raise tarfile.TarError("its members have too many or too long headers")


class _Member(tarfile.TarInfo):
    """A member of a tar archive. Sparse members are rejected: they can claim any size, and their map has no limit."""

    budget: _HeaderBudget

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        cls.budget.take(member)
        return member

    def _refuse(self, *_: object) -> NoReturn:
        raise tarfile.TarError("it contains a sparse member")

    # `tarfile` calls these for the three formats of sparse members in extension headers.
    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


@contextmanager
def open_tar(sdist: BinaryIO, filename: str) -> Iterator[tarfile.TarFile]:
    """Open an sdist that is a compressed tar archive. Its members must be read in order."""
    member = type("Member", (_Member,), {"budget": _HeaderBudget()})
    try:
        with _decompressed(sdist, filename) as plain:
            stream = BoundedStream(cast(BinaryIO, plain), filename)
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", tarinfo=member) as tar:
                yield tar
    except _UNREADABLE as error:
        raise ArchiveError(f"`{filename}` is not a readable sdist: {_reason(error)}") from None


def _decompressed(file: BinaryIO, filename: str) -> gzip.GzipFile | bz2.BZ2File | _XzFile:
    """Return the content of a compressed file; its name says how it is compressed."""
    if filename.endswith(".bz2"):
        return bz2.BZ2File(file)
    return _XzFile(file) if filename.endswith(".xz") else gzip.GzipFile(fileobj=file, mode="rb")


class _XzFile(io.RawIOBase):
    """The content of a file that is compressed with xz; unlike `lzma.LZMAFile`, with a limit on the memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``; nothing at the end.

        Raises:
            EOFError: If the file is truncated.
            lzma.LZMAError: If it is damaged, or needs too much memory.
        """
        content = b""
        while not content and not self._decompressor.eof:
            compressed = self._file.read(64 * KIB) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not compressed:
                raise EOFError("it is truncated")
            content = self._decompressor.decompress(compressed, size)
        return content


@contextmanager
def open_zip(file: BinaryIO | RangedFile, filename: str, kind: str = "sdist") -> Iterator[zipfile.ZipFile]:
    """Open a wheel, or an sdist that is a zip archive."""
    try:
        with zipfile.ZipFile(cast(BinaryIO, BoundedFile(cast(BinaryIO, file), filename))) as archive:
            # Other methods have no limit on the decompressed size; wheels and sdists do not use them.
            if any(entry.compress_type not in _METHODS for entry in archive.infolist()):
                raise ArchiveError(f"`{filename}` is not a readable {kind}: its compression is not supported")
            yield archive
    except _UNREADABLE as error:
        raise ArchiveError(f"`{filename}` is not a readable {kind}: {_reason(error)}") from None


def _text(archive: zipfile.ZipFile, name: str, filename: str) -> str:
    entry = archive.getinfo(name)
    _check_length(entry.file_size, name, filename)
    with archive.open(entry) as member:
        # Without a size, `zipfile` would decompress the whole member before it cuts.
        return member.read(max(1, entry.file_size)).decode("utf-8", "replace")


def _check_length(length: int, name: str, filename: str) -> None:
    if length > METADATA_BYTES:
        raise ArchiveError(f"`{name}` of `{filename}` exceeds {bytes_text(METADATA_BYTES)}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
