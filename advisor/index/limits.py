"""Limits on data from an index, which need not be trusted.

Large data is normal: the page of `ddtrace` on pypi.org has 21 MB as JSON, and there are wheels of 3 GB. Data above
these limits causes an error with the address and the limit.
"""

from __future__ import annotations

from typing import BinaryIO

from knowledge.domain.errors import UnavailableError

KIB, MIB, GIB = 2**10, 2**20, 2**30

PAGE_BYTES = 32 * MIB
"""Maximum size of a project page or vulnerability record, decompressed."""
PAGE_FILES = 100_000
"""Maximum number of files on a project page."""
NAME_CHARACTERS = 1024
"""Maximum length of a file name."""
ADDRESS_CHARACTERS = 8192
"""Maximum length of the address of a file."""
METADATA_BYTES = 16 * MIB
"""Maximum size of a core metadata document: ``METADATA``, ``PKG-INFO``, or separate metadata."""
HEADER_BYTES = 2 * MIB
"""Maximum size of the header of such a document; the rest is the description, which is not read."""
VARIANTS_BYTES = 4 * MIB
"""Maximum size of a file that describes the variants of a version."""
VARIANT_PROPERTIES = 100_000
"""Maximum number of variant properties in such a file."""
DIRECTORY_BYTES = 16 * MIB
"""Maximum size of the table of contents of a zip archive, and of a single read."""
FILE_BYTES = 4 * GIB
"""Maximum size of a wheel or sdist that is downloaded as a whole."""
UNPACKED_BYTES = GIB
"""Maximum decompressed size of an sdist, for its metadata or a build."""
MEMBERS = 100_000
"""Maximum number of members of an sdist."""
GIT_SECONDS = 300
"""Maximum time of each command of git."""
BUILD_SECONDS = 300
"""Maximum time of each step of a build."""
BUILD_MEMORY_BYTES = 8 * GIB
"""Maximum address space of each process of a build."""
BUILD_OUTPUT_BYTES = 64 * KIB
"""Part of the output of a build that is read, from its end."""
_MAX_READS_AT_END = 100
"""Maximum number of reads of a stream at its end."""
REDIRECTS = 10
"""Maximum number of redirects."""
RETRY_AFTER_SECONDS = 30
"""Maximum wait before a retry that an index may request."""
ANSWER_TIMEOUTS = 10
"""Maximum total time for a page, metadata or part of a file, with redirects and retries, in read timeouts."""
FILE_TIMEOUTS = 120
"""The same for a file that is downloaded as a whole."""


class TooLargeError(UnavailableError):
    """Raised when something from an index is larger than its limit."""

    code = "index-too-large"


def bytes_text(amount: int) -> str:
    """Return a limit as text, such as ``32 MiB``."""
    unit, name = (GIB, "GiB") if amount >= GIB else (MIB, "MiB")
    return f"{amount // unit} {name}"


class BoundedFile:
    """A seekable file with a limit of :data:`DIRECTORY_BYTES` for each read.

    ``zipfile`` reads the table of contents in one piece, with the size that the archive claims.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.seek = file.seek
        self.tell = file.tell

    def seekable(self) -> bool:
        """Return true, as ``zipfile`` requires."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read like a file.

        Raises:
            TooLargeError: If the limit is exceeded.
        """
        content = self._file.read(DIRECTORY_BYTES + 1 if size < 0 else min(size, DIRECTORY_BYTES + 1))
        if len(content) > DIRECTORY_BYTES:
            raise TooLargeError(f"the table of contents of `{self._name}` exceeds {bytes_text(DIRECTORY_BYTES)}")
        return content


class BoundedStream:
    """A stream with a limit of :data:`UNPACKED_BYTES`, whose end can be read only a few times.

    ``tarfile`` skips a member in blocks of 10 KiB, up to the size that the member claims.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._remaining = UNPACKED_BYTES
        self._reads_at_end = 0

    def read(self, size: int) -> bytes:
        """Read like a file.

        Raises:
            TooLargeError: If the limit is exceeded.
            EOFError: If the reader does not stop at the end.
        """
        content = self._stream.read(min(size, self._remaining + 1))
        self._remaining -= len(content)
        self._reads_at_end += not content
        if self._reads_at_end > _MAX_READS_AT_END:
            raise EOFError("it ends within a member")
        if self._remaining < 0:
            raise TooLargeError(f"`{self._name}` unpacks to more than {bytes_text(UNPACKED_BYTES)}")
        return content
