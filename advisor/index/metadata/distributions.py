"""Metadata and sizes of wheels and sdists, cached.

Cache entries of a file are valid only for its index and address. The hash on a page proves nothing before the file was
read; so no index can replace the cache entries of another index's file. This also holds for sizes: only the table of
contents of a wheel is read for them, and no hash on a page covers a part of a file. An index that lists the hash of
another index's file could otherwise state a size for that file. The price is one request for each further index.
"""

from __future__ import annotations

import hashlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from advisor.index.access import IndexAccess
from advisor.index.addresses import local_path
from advisor.index.cache import SOURCE_FORMAT
from advisor.index.configuration import without_credentials
from advisor.index.http.errors import GoneError, RangeError
from advisor.index.limits import METADATA_BYTES, TooLargeError
from advisor.index.metadata.archive import (
    ArchiveError,
    ChangedFileError,
    RangedFile,
    read_sdist_texts,
    read_unpacked_size,
    read_wheel,
)
from advisor.index.metadata.core import CoreMetadata, header_of, parse_metadata
from advisor.index.metadata.sdist import is_static, static_metadata
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import IndexAnswerError
from knowledge.domain.errors import UnavailableError

_SETTLED_SECONDS = 2.0
"""Age from which a file of this machine is cached: longer than the resolution of the times of any file system."""


class MetadataError(ValueError):
    """Raised when one distribution's metadata is malformed: that distribution cannot be a candidate.

    Attributes:
        missing_module: The module that a build of the metadata did not find; empty for other reasons.
    """

    def __init__(self, message: str, *, missing_module: str = "") -> None:
        super().__init__(message)
        self.missing_module = missing_module


class Distributions:
    """Reads distributions. Safe for many threads.

    An `UnavailableError` is raised if the index does not answer, its answer does not match its page, a file cannot be
    read, or the cache has no entry while offline.
    """

    def __init__(self, access: IndexAccess) -> None:
        self._access = access
        self._transport = access.transport
        self._cache = access.cache
        self._offline = access.offline

    def metadata(self, file: DistributionFile) -> CoreMetadata:
        """Return the core metadata of a wheel or sdist.

        Raises:
            MetadataError: If it is malformed.
        """
        key = _cache_key(file)
        if key is not None and not file.filename.endswith(".whl"):
            key = f"sdist {SOURCE_FORMAT} {key}"
        try:
            return self._cached_metadata(key, lambda: self._read_metadata(file))
        except GoneError:
            raise MetadataError("metadata: the file no longer exists on the index; try `--refresh`") from None

    def built_metadata(self, file: DistributionFile) -> CoreMetadata:
        """Return the metadata of an sdist from a build, which runs its code; the result is cached.

        Raises:
            MetadataError: If the build fails, or generates malformed metadata.
        """

        def build_metadata() -> str:
            if self._offline:
                raise MetadataError(f"metadata of `{file.filename}` needs a build, and `--offline` forbids it")
            from advisor.index.metadata import build

            try:
                with self._opened(file) as sdist:
                    return build.build_metadata(sdist, file.filename)
            except build.BuildError as error:
                raise MetadataError(f"metadata: {error.message}", missing_module=error.missing_module) from None

        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        key = f"built by {version} {file.identity}" if local_path(file.url) is None else None
        return self._cached_metadata(key, build_metadata)

    def _cached_metadata(self, key: str | None, read: Callable[[], str]) -> CoreMetadata:
        """Return the metadata with a key in the cache, or read and store its text; without a key, it is not cached."""
        cached = None if key is None else self._cache.read("metadata", key)
        try:
            text = header_of(read()) if cached is None else cached.decode()
            if key is not None and cached is None:
                self._cache.write("metadata", key, text.encode())
            return parse_metadata(text)
        except MetadataError:
            raise
        except (ArchiveError, TooLargeError, ValueError) as error:
            raise MetadataError(f"metadata: {getattr(error, 'message', error)}") from None

    def unpack(self, file: DistributionFile, folder: Path) -> Path:
        """Unpack an sdist or an archive of a repository to a new folder, and return its top-level directory."""
        from advisor.index.metadata.build import unpack

        self._check_reachable(file)
        with self._opened(file) as archive:
            return unpack(archive, file.filename, folder)

    def sha256(self, file: DistributionFile) -> str:
        """Return the SHA-256 of a file that no index lists; a remote one is downloaded, or cached if offline."""
        key, is_remote = _cache_key(file), local_path(file.url) is None
        if key and (self._offline or not is_remote) and (cached := self._cache.read("hash", key)) is not None:
            return cached.decode()
        if is_remote:
            self._check_reachable(file)
            with self._transport.download(file.url) as (_, digest):
                pass
        else:
            with self._opened(file) as opened:
                digest = hashlib.file_digest(cast(io.BufferedReader, opened), "sha256").hexdigest()
        if key:
            self._cache.write("hash", key, digest.encode())
        return digest

    def _check_reachable(self, file: DistributionFile) -> None:
        """Check that a file is on this machine, or may be requested."""
        if self._offline and local_path(file.url) is None:
            raise self._access.missing(f"`{file.filename}`")

    def size(self, file: DistributionFile) -> int | None:
        """Return the size of a file in bytes; it is requested if the index page does not contain it."""
        if file.size is not None:
            return file.size
        if (path := local_path(file.url)) is not None:
            try:
                return path.stat().st_size
            except OSError as error:
                raise _unreadable(file, error) from None
        length = self._number("size", file.identity)
        if length is None and not self._offline and (length := self._transport.length(file.url)) is not None:
            self._cache.write("size", file.identity, str(length).encode())
        return length

    def _number(self, bucket: str, key: str) -> int | None:
        """Return a cached number of bytes; `None` if it is not cached."""
        cached = self._cache.read(bucket, key)
        return None if cached is None else int(cached)

    def known_sizes(self, file: DistributionFile) -> tuple[int | None, int | None]:
        """Return the size and the unpacked size of a file in bytes, as far as page and cache contain them."""
        key = _cache_key(file) or ""
        unpacked = self._number("unpacked", key) if file.filename.endswith(".whl") else None
        return file.size if file.size is not None else self._number("size", key), unpacked

    def unpacked_size(self, file: DistributionFile) -> int | None:
        """Return the unpacked size of a wheel in bytes; `None` for an sdist, or if it is not cached while offline.

        Only the table of contents is read, with range requests; a file is never downloaded for it.

        Raises:
            RangeError: If the server does not support range requests.
        """
        if not file.filename.endswith(".whl"):
            return None
        if (key := _cache_key(file)) and (cached := self._number("unpacked", key)) is not None:
            return cached
        if (path := local_path(file.url)) is not None:
            try:
                with path.open("rb") as wheel:
                    return self._unpacked_size(file, wheel)
            except OSError as error:
                raise _unreadable(file, error) from None
        return None if self._offline else self._unpacked_size(file, self._ranged(file))

    def _unpacked_size(self, file: DistributionFile, wheel: BinaryIO | RangedFile) -> int:
        unpacked = read_unpacked_size(wheel, file.filename)
        self._store_sizes(file, wheel, unpacked)
        return unpacked

    def _ranged(self, file: DistributionFile) -> RangedFile:
        """Open a remote file to read parts of it; it is an error if it does not have the size on its page."""
        ranged = RangedFile(self._transport, file.url)
        if file.size not in (None, ranged.size):
            raise ChangedFileError(f"`{file.filename}` does not have the size on its page")
        return ranged

    def _store_sizes(self, file: DistributionFile, wheel: BinaryIO | RangedFile, unpacked: int) -> None:
        """Store the sizes of a wheel that was opened for its metadata or its table of contents."""
        if key := _cache_key(file):
            if file.size is None:
                self._cache.write("size", key, str(wheel.seek(0, io.SEEK_END)).encode())
            self._cache.write("unpacked", key, str(unpacked).encode())

    def _read_metadata(self, file: DistributionFile) -> str:
        if local_path(file.url) is None and self._offline:
            raise self._access.missing(f"the metadata of `{file.filename}`")
        is_wheel = file.filename.endswith(".whl")
        if file.metadata_sha256 is not None and (body := self._separate_metadata(file)) is not None:
            text = body.decode("utf-8", "replace")
            if is_wheel or is_static(text):
                return text
        if not is_wheel:
            with self._opened(file) as sdist:
                texts = read_sdist_texts(sdist, file.filename, is_complete=is_static)
            return static_metadata(texts["PKG-INFO"], texts.get("pyproject.toml"))
        if local_path(file.url) is None:
            try:
                return self._wheel_metadata(file, self._ranged(file))
            except RangeError:
                pass  # Download the whole wheel, and compare its hash.
        with self._opened(file) as wheel:
            return self._wheel_metadata(file, wheel)

    def _wheel_metadata(self, file: DistributionFile, wheel: BinaryIO | RangedFile) -> str:
        """Return the metadata of a wheel, and store its sizes, which need no further request."""
        text, unpacked = read_wheel(wheel, file.filename)
        self._store_sizes(file, wheel, unpacked)
        return text

    def _separate_metadata(self, file: DistributionFile) -> bytes | None:
        """Return the separate metadata of a file (PEP 658); `None` if it does not exist."""
        url = f"{file.url}.metadata"
        if (path := local_path(url)) is not None:
            try:
                with path.open("rb") as opened:
                    body = opened.read(METADATA_BYTES + 1)
            except OSError:
                return None
            if len(body) > METADATA_BYTES:
                raise TooLargeError(f"`{path}` is too large for metadata")
        else:
            answer = self._transport.get(url, accept="*/*", limit=METADATA_BYTES)
            if answer.status != 200:
                return None
            body = answer.body
        _check_hash(hashlib.sha256(body).hexdigest(), file.metadata_sha256, url)
        return body

    @contextmanager
    def _opened(self, file: DistributionFile) -> Iterator[BinaryIO]:
        """Open a whole file after its hash was compared with that on its page."""
        if (path := local_path(file.url)) is None:
            with self._transport.download(file.url) as (fetched, digest):
                _check_hash(digest, file.sha256, file.url)
                yield cast(BinaryIO, fetched)
            return
        try:
            with path.open("rb") as opened:
                if file.sha256:
                    _check_hash(hashlib.file_digest(opened, "sha256").hexdigest(), file.sha256, file.url)
                    opened.seek(0)
                yield opened
        except OSError as error:
            raise _unreadable(file, error) from None


def _cache_key(file: DistributionFile) -> str | None:
    """Return the key of a file's cache entries; `None` for a file of this machine that was changed just now.

    A file of this machine may change at any time: its key contains its size, its time and its number. Two changes
    within the resolution of the time would give the same key.
    """
    if (path := local_path(file.url)) is None:
        return file.identity
    try:
        state = path.stat()
    except OSError:
        return None
    if time.time() - state.st_mtime < _SETTLED_SECONDS:
        return None
    return f"{file.identity} {state.st_size} {state.st_mtime_ns} {state.st_ino}"


def _check_hash(digest: str, expected: str | None, url: str) -> None:
    if expected and digest != expected.lower():
        raise IndexAnswerError(
            f"the hash of `{without_credentials(url)}` does not match the one on its index page or in its requirement",
            hint="the file or the page was changed in transit: try again, or use another index",
        )


def _unreadable(file: DistributionFile, error: OSError) -> UnavailableError:
    return ArchiveError(f"`{local_path(file.url)}` cannot be read: {error.strerror or error}")
