"""How much is read of what an index serves; nobody needs to trust it for that.

Large ones are normal: the page of `ddtrace` on pypi.org has 21 MB as JSON, and there are wheels of 3 GB. Everything
above these limits is an error that names the address and the limit.
"""

from __future__ import annotations

from typing import BinaryIO

from knowledge.domain.errors import UnavailableError

KIB, MIB, GIB = 2**10, 2**20, 2**30

PAGE_BYTES = 32 * MIB
"""Longest project page or vulnerability record, decompressed."""
PAGE_FILES = 100_000
"""Most files of a project page."""
NAME_CHARACTERS = 1024
"""Longest name of a file."""
ADDRESS_CHARACTERS = 8192
"""Longest address of a file."""
METADATA_BYTES = 16 * MIB
"""Longest core metadata document: ``METADATA``, ``PKG-INFO``, or separate metadata."""
HEADER_BYTES = 2 * MIB
"""Longest header of such a document; the rest of it is the description, which is not read."""
DIRECTORY_BYTES = 16 * MIB
"""Longest table of contents of a zip archive, and longest part of one that is read at a time."""
FILE_BYTES = 4 * GIB
"""Longest wheel or sdist that is fetched whole."""
UNPACKED_BYTES = GIB
"""How much of an sdist is decompressed, to find its metadata or to build it."""
MEMBERS = 100_000
"""How many members an sdist may have."""
_ENDS = 100
"""How often a stream is read at its end."""
REDIRECTS = 10
"""How many redirects are followed."""
RETRY_AFTER_SECONDS = 30
"""Longest wait that an index may ask for before the next try."""
ANSWER_TIMEOUTS = 10
"""How many time-outs of one wait a page, metadata or a part of a file may take in all, with redirects and tries."""
FILE_TIMEOUTS = 120
"""The same for a file that is fetched whole."""


class TooLargeError(UnavailableError):
    """Raised when something from an index is larger than its limit."""

    code = "index-too-large"


def bytes_text(amount: int) -> str:
    """Return a limit as text, such as ``32 MiB``."""
    unit, name = (GIB, "GiB") if amount >= GIB else (MIB, "MiB")
    return f"{amount // unit} {name}"


class BoundedFile:
    """A seekable file of which no read returns more than :data:`DIRECTORY_BYTES`.

    ``zipfile`` reads a table of contents in one piece, of the length that the archive claims.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.seek = file.seek
        self.tell = file.tell

    def seekable(self) -> bool:
        """Return true, which the library asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read as a file does.

        Raises:
            TooLargeError: If more would be read.
        """
        content = self._file.read(DIRECTORY_BYTES + 1 if size < 0 else min(size, DIRECTORY_BYTES + 1))
        if len(content) > DIRECTORY_BYTES:
            raise TooLargeError(f"the table of contents of `{self._name}` exceeds {bytes_text(DIRECTORY_BYTES)}")
        return content


class BoundedStream:
    """A stream of which no more than :data:`UNPACKED_BYTES` are read, and no more than a few times behind its end.

    ``tarfile`` skips a member in blocks of 10 KiB, as many as the member claims to have.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._left = UNPACKED_BYTES
        self._beyond = 0

    def read(self, size: int) -> bytes:
        """Read as a file does.

        Raises:
            TooLargeError: If more would be read.
            EOFError: If the reader does not stop at the end.
        """
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        self._beyond += not content
        if self._beyond > _ENDS:
            raise EOFError("it ends within a member")
        if self._left < 0:
            raise TooLargeError(f"`{self._name}` unpacks to more than {bytes_text(UNPACKED_BYTES)}")
        return content
