"""Core metadata from inside a wheel or an sdist; nothing is unpacked to disk or executed."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from advisor.index.configuration import without_credentials
from advisor.index.limits import KIB, METADATA_BYTES, MIB, BoundedFile, BoundedStream, bytes_text
from advisor.index.transport import RangeError, Transport
from knowledge.domain.errors import UnavailableError

_TAIL_BYTES = 128 * KIB
_AHEAD_BYTES = 64 * KIB
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE = (
    *(OSError, EOFError, ValueError, OverflowError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error),
)
"""What the standard library raises for an archive that is damaged, encrypted or of an unknown kind."""


class ArchiveError(UnavailableError):
    """Raised when a distribution file is not a readable archive."""

    code = "distribution-archive"


class RangedFile:
    """A file at an address, of which only the parts that are read are fetched; the end of it first.

    Raises:
        RangeError: If the server does not serve parts.
        UnavailableError: If it does not answer.
    """

    def __init__(self, transport: Transport, url: str) -> None:
        self._transport = transport
        self._url = url
        self._part = transport.part(url, -_TAIL_BYTES)
        self.size = self._part.size
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, as of a file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("negative position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, size: int) -> bytes:
        """Read as a file does; what is not there yet is fetched.

        Raises:
            RangeError: If the file changed since its first part was read.
            UnavailableError: If the server does not answer.
        """
        first, end = self._position, min(self._position + size, self.size)
        if end <= first:
            return b""
        if first < self._part.start or end > self._part.start + len(self._part.content):
            last = min(max(end, first + _AHEAD_BYTES), self.size) - 1
            part = self._transport.part(self._url, first, last)
            if (part.size, part.etag) != (self.size, self._part.etag):
                # Parts of two files are none; a whole file has a hash.
                raise RangeError(f"`{without_credentials(self._url)}` changed while it was read")
            self._part = part
        self._position = end
        return self._part.content[first - self._part.start : end - self._part.start]


def read_wheel_metadata(wheel: BinaryIO | RangedFile, filename: str) -> str:
    """Return the ``METADATA`` of a wheel.

    Raises:
        ArchiveError: If the archive cannot be read or holds none.
        UnavailableError: If it exceeds a limit, or its server does not answer.
    """
    with open_zip(wheel, filename, "wheel") as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise ArchiveError(f"`{filename}` holds {len(names)} `.dist-info/METADATA` files, not one")
        return _text(archive, names[0], filename)


def read_unpacked_size(wheel: BinaryIO | RangedFile, filename: str) -> int:
    """Return how many bytes the files of a wheel have once unpacked.

    Raises:
        UnavailableError: As for :func:`read_wheel_metadata`.
    """
    with open_zip(wheel, filename, "wheel") as archive:
        return sum(entry.file_size for entry in archive.infolist())


def read_sdist_metadata(sdist: BinaryIO, filename: str) -> str:
    """Return the ``PKG-INFO`` at the top of an sdist.

    Raises:
        ArchiveError: If the archive cannot be read or holds none.
        UnavailableError: If it exceeds a limit.
    """
    if filename.endswith(".zip"):
        with open_zip(sdist, filename) as archive:
            for name in archive.namelist():
                if name.count("/") == 1 and name.endswith("/PKG-INFO"):
                    return _text(archive, name, filename)
    else:
        with open_tar(sdist, filename) as tar:
            for member in tar:
                if member.name.count("/") == 1 and member.name.endswith("/PKG-INFO"):
                    extracted = tar.extractfile(member)
                    if extracted is not None:
                        _check_length(member.size, "PKG-INFO", filename)
                        return extracted.read().decode("utf-8", "replace")
    raise ArchiveError(f"`{filename}` holds no `PKG-INFO`")


class _Member(tarfile.TarInfo):
    """A member of a tar archive; the library reads long names and further fields of one whole into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        found = super().frombuf(buf, encoding, errors)
        ordinary = found.type in tarfile.REGULAR_TYPES or found.type in (tarfile.DIRTYPE, tarfile.SYMTYPE)
        if not ordinary and found.size > MIB:
            raise ArchiveError(f"a header of a member exceeds {bytes_text(MIB)}")
        return found


@contextmanager
def open_tar(sdist: BinaryIO, filename: str) -> Iterator[tarfile.TarFile]:
    """Open an sdist that is a compressed tar archive; its members can be read in their order.

    Raises:
        ArchiveError: If it cannot be read.
        TooLargeError: If it decompresses to too much.
    """
    try:
        with gzip.GzipFile(fileobj=sdist, mode="rb") as plain:
            stream = BoundedStream(cast(BinaryIO, plain), filename)
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", tarinfo=_Member) as tar:
                yield tar
    except _UNREADABLE as error:
        raise ArchiveError(f"`{filename}` is not a readable sdist: {_reason(error)}") from None


@contextmanager
def open_zip(file: BinaryIO | RangedFile, filename: str, kind: str = "sdist") -> Iterator[zipfile.ZipFile]:
    """Open a wheel, or an sdist that is a zip archive.

    Raises:
        ArchiveError: If it cannot be read.
        TooLargeError: If its table of contents is too long.
    """
    try:
        with zipfile.ZipFile(cast(BinaryIO, BoundedFile(cast(BinaryIO, file), filename))) as archive:
            # Other methods decompress without a bound, and wheels and sdists do not use them.
            if any(entry.compress_type not in _METHODS for entry in archive.infolist()):
                raise ArchiveError(f"`{filename}` is not a readable {kind}: it is compressed by an unusual method")
            yield archive
    except _UNREADABLE as error:
        raise ArchiveError(f"`{filename}` is not a readable {kind}: {_reason(error)}") from None


def _text(archive: zipfile.ZipFile, name: str, filename: str) -> str:
    entry = archive.getinfo(name)
    _check_length(entry.file_size, name, filename)
    with archive.open(entry) as member:
        # Without a length, the library decompresses as much as there is before it cuts.
        return member.read(max(1, entry.file_size)).decode("utf-8", "replace")


def _check_length(length: int, name: str, filename: str) -> None:
    if length > METADATA_BYTES:
        raise ArchiveError(f"`{name}` of `{filename}` exceeds {bytes_text(METADATA_BYTES)}")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
