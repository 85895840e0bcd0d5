"""Reads project pages and core metadata from the configured indexes, through the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from packaging.utils import NormalizedName

from advisor.index.archive import read_sdist_metadata, read_wheel_metadata
from advisor.index.cache import DiskCache
from advisor.index.configuration import IndexConfiguration, split_credentials, without_credentials
from advisor.index.metadata import CoreMetadata, header_of, parse_metadata
from advisor.index.page import DistributionFile, dump_files, load_files, parse_page
from advisor.index.transport import Transport, local_path, url_of_path
from knowledge.domain.errors import UnavailableError

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_DISTRIBUTION = (".whl", ".tar.gz", ".zip")


class IndexAnswerError(UnavailableError):
    """Raised when an index answers, but not with what the simple repository API promises."""

    code = "index-answer"


class OfflineError(UnavailableError):
    """Raised when ``--offline`` needs something that the cache does not hold."""

    code = "offline"


class MetadataError(ValueError):
    """Raised when one distribution's metadata is malformed: that distribution cannot be a candidate."""


class IndexClient:
    """The configured indexes, seen as one.

    Every answer is kept: pages are fetched anew on each run unless offline, metadata never. One client serves many
    threads, and asks for the same thing once.
    """

    def __init__(
        self, configuration: IndexConfiguration, *, cache: DiskCache, offline: bool = False, workers: int = 16
    ) -> None:
        self.configuration, credentials = split_credentials(configuration)
        self.cache = cache
        self.offline = offline
        self.transport = Transport(self.configuration, credentials)
        self._bases = (self.configuration.default_url, *self.configuration.extra)
        self._pages: dict[NormalizedName, Future[tuple[DistributionFile, ...]]] = {}
        self._metadata: dict[str, Future[CoreMetadata]] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="index")
        self._links: dict[str, tuple[DistributionFile, ...]] = {}

    def close(self) -> None:
        """Drop what is still queued and let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def files(self, project: NormalizedName) -> tuple[DistributionFile, ...]:
        """Return every file of a project over all indexes, empty where no index knows it.

        Where several indexes offer a file of one name, the first index's counts.

        Raises:
            UnavailableError: If an index does not answer, or not with a page, or the cache lacks it while offline.
        """
        return self._page_future(project).result()

    def metadata(self, file: DistributionFile) -> CoreMetadata:
        """Return the core metadata of a wheel or sdist.

        Raises:
            MetadataError: If it is malformed or does not belong to the file.
            UnavailableError: As for :meth:`files`.
        """
        return self._metadata_future(file).result()

    def prefetch(self, projects: Iterable[NormalizedName] = (), files: Iterable[DistributionFile] = ()) -> None:
        """Start fetching pages and metadata without waiting for them."""
        for project in projects:
            self._page_future(project)
        for file in files:
            self._metadata_future(file)

    def size(self, file: DistributionFile) -> int | None:
        """Return the size of a file in bytes, asking for it where the index page does not tell."""
        if file.size is not None:
            return file.size
        if (path := local_path(file.url)) is not None:
            return path.stat().st_size
        if (known := self.cache.read("size", file.url)) is not None:
            return int(known)
        if self.offline:
            return None
        length = self.transport.length(file.url)
        if length is not None:
            self.cache.write("size", file.url, str(length).encode())
        return length

    def prefetch_sizes(self, files: Iterable[DistributionFile]) -> None:
        """Ask for the sizes that index pages did not tell, in one parallel batch."""
        list(self._pool.map(self._size_or_none, files))

    def _size_or_none(self, file: DistributionFile) -> int | None:
        # A lock without a size is valid; a missing one is no reason to fail.
        with contextlib.suppress(UnavailableError):
            return self.size(file)
        return None

    def _page_future(self, project: NormalizedName) -> Future[tuple[DistributionFile, ...]]:
        with self._lock:
            if project not in self._pages:
                self._pages[project] = self._pool.submit(self._fetch_files, project)
            return self._pages[project]

    def _metadata_future(self, file: DistributionFile) -> Future[CoreMetadata]:
        with self._lock:
            if file.url not in self._metadata:
                self._metadata[file.url] = self._pool.submit(self._fetch_metadata, file)
            return self._metadata[file.url]

    def _fetch_files(self, project: NormalizedName) -> tuple[DistributionFile, ...]:
        found: dict[str, DistributionFile] = {}
        for links in self.configuration.find_links:
            for file in self._linked_files(links):
                if re.match(re.escape(project).replace(r"\-", "[-_.]+") + r"-\d", file.filename, re.IGNORECASE):
                    found.setdefault(file.filename, file)
        for base in self._bases:
            for file in self._fetch_page(project, base):
                found.setdefault(file.filename, file)
        return tuple(found.values())

    def _linked_files(self, links: str) -> tuple[DistributionFile, ...]:
        """List a find-links directory, once."""
        if links not in self._links:
            directory = local_path(links)
            if directory is None:
                raise UnavailableError(
                    f"the find-links location `{without_credentials(links)}` is not a directory of this machine",
                    hint="remote find-links pages are not supported: name the index with `--extra-index-url`",
                )
            self._links[links] = self._directory_files(directory, links)
        return self._links[links]

    def _directory_files(self, directory: Path, base: str) -> tuple[DistributionFile, ...]:
        if not directory.is_dir():
            return ()
        return tuple(
            DistributionFile(filename=path.name, url=url_of_path(path), index=base, size=path.stat().st_size)
            for path in sorted(directory.iterdir())
            if path.name.endswith(_DISTRIBUTION)
        )

    def _fetch_page(self, project: NormalizedName, base: str) -> tuple[DistributionFile, ...]:
        url = f"{base.rstrip('/')}/{project}/"
        if (directory := local_path(base)) is not None:
            return self._local_page(directory / project, url, project, base)
        stored = self._stored_page(url)
        if self.offline:
            if stored is None:
                raise OfflineError(
                    f"`{without_credentials(url)}` is not in the cache `{self.cache.directory}`",
                    hint="run the same command once without `--offline`",
                )
            return stored[1]
        answer = self.transport.get(url, accept=_ACCEPT, etag=stored[0].get("etag") if stored else None)
        if answer.status == 304 and stored:
            return stored[1]
        if answer.status == 404:
            self._store_page(url, {"etag": "", "digest": ""}, ())
            return ()
        digest = hashlib.sha256(answer.body).hexdigest()
        if stored and stored[0].get("digest") == digest:
            return stored[1]
        try:
            files = parse_page(answer.body, answer.content_type, project=project, url=url, index=base)
        except (ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise IndexAnswerError(
                f"`{without_credentials(url)}` did not answer with a project page: {reason}",
                hint="check the index address: it must end where project names begin, as `.../simple/` does",
            ) from None
        files = tuple(file for file in files if file.filename.endswith(_DISTRIBUTION))
        self._store_page(url, {"etag": answer.etag, "digest": digest}, files)
        return files

    def _local_page(
        self, directory: Path, url: str, project: NormalizedName, base: str
    ) -> tuple[DistributionFile, ...]:
        page = directory / "index.html"
        if page.is_file():
            return parse_page(page.read_bytes(), "text/html", project=project, url=url, index=base)
        return self._directory_files(directory, base)

    def _stored_page(self, url: str) -> tuple[dict[str, str], tuple[DistributionFile, ...]] | None:
        content = self.cache.read("pages", url)
        if content is None:
            return None
        try:
            document = json.loads(content)
            return document["about"], load_files(document["files"])
        except (ValueError, KeyError, TypeError):
            # Written by another version of the program.
            return None

    def _store_page(self, url: str, about: dict[str, str], files: tuple[DistributionFile, ...]) -> None:
        self.cache.write("pages", url, json.dumps({"about": about, "files": dump_files(files)}).encode())

    def _fetch_metadata(self, file: DistributionFile) -> CoreMetadata:
        key = f"{file.sha256 or file.url}"
        stored = self.cache.read("metadata", key)
        if stored is None:
            text = self._read_metadata(file)
            self.cache.write("metadata", key, text.encode())
        else:
            text = stored.decode()
        try:
            return parse_metadata(text)
        except ValueError as error:
            raise MetadataError(f"metadata of `{file.filename}`: {error}") from None

    def _read_metadata(self, file: DistributionFile) -> str:
        path = local_path(file.url)
        if path is None and self.offline:
            raise OfflineError(
                f"the metadata of `{file.filename}` is not in the cache `{self.cache.directory}`",
                hint="run the same command once without `--offline`",
            )
        if file.metadata_sha256 is not None:
            answer = self.transport.get(file.url + ".metadata", accept="*/*")
            if answer.status == 200:
                self._check_hash(answer.body, file.metadata_sha256, file.url + ".metadata")
                return header_of(answer.body.decode("utf-8", "replace"))
        if not file.filename.endswith(".whl"):
            body = path.read_bytes() if path else self.transport.fetch(file.url)
            self._check_hash(body, file.sha256 or "", file.url)
            return header_of(read_sdist_metadata(body, file.filename))
        text, size = read_wheel_metadata(self.transport, file.url, file.filename)
        if size is not None:
            self.cache.write("size", file.url, str(size).encode())
        return header_of(text)

    def _check_hash(self, body: bytes, expected: str, url: str) -> None:
        if expected and hashlib.sha256(body).hexdigest() != expected:
            raise IndexAnswerError(
                f"the hash of `{without_credentials(url)}` does not match the one on its index page",
                hint="the file or the page was changed on the way: try again, or another index",
            )

    def pinned(self, file: DistributionFile) -> DistributionFile:
        """Return a file with size and hash filled in, as a lock needs them.

        Raises:
            IndexAnswerError: If the index gives no SHA-256 and the file is not on this machine.
        """
        digest = file.sha256
        if digest is None:
            path = local_path(file.url)
            if path is None:
                raise IndexAnswerError(
                    f"`{without_credentials(file.index)}` gives no sha256 for `{file.filename}`, which a lock needs",
                    hint="use an index that publishes hashes",
                )
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return replace(file, sha256=digest, size=self._size_or_none(file))
