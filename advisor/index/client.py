"""Reads project pages and core metadata from the configured indexes, through the cache."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from packaging.utils import NormalizedName

from advisor.index.access import Futures, IndexAccess
from advisor.index.addresses import local_path
from advisor.index.cache import DiskCache
from advisor.index.configuration import IndexConfiguration, split_credentials, without_credentials
from advisor.index.git import GitRepositories
from advisor.index.http.transport import Transport
from advisor.index.metadata.confinement import StoppableProcesses
from advisor.index.metadata.core import CoreMetadata
from advisor.index.metadata.distributions import Distributions, MetadataError
from advisor.index.metadata.file_sizes import FileSizes
from advisor.index.pages.page import DistributionFile, FileSelector
from advisor.index.pages.reader import IndexAnswerError, Pages, ProjectPage, index_directory
from advisor.index.variants.files import VariantFiles
from advisor.index.variants.metadata import VariantMetadata
from advisor.index.vulnerabilities.database import AdvisoryDatabase
from advisor.index.vulnerabilities.records import Advisories, PackageVersion
from knowledge.domain.errors import UnavailableError
from knowledge.domain.identity import content_hash

_M_ARENA_MAX = -8
"""The parameter of `mallopt` for the number of pools."""
_WORKERS = 16
_T = TypeVar("_T")


class _Inline(Executor):
    """An executor that runs each task immediately, in the calling thread."""

    def submit(self, task: Callable[..., _T], /, *values: Any, **options: Any) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(task(*values, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class IndexClient:
    """All configured indexes.

    Answers are cached: pages until they are stale, metadata permanently. A client may be used by many threads, and
    requests nothing twice. A method that reads an index raises an `UnavailableError` if the index does not answer as
    the standards say, or if the cache does not have the answer while offline.

    A package that is bound to an index comes only from there. Other packages come only from the first index that has
    them, so that nobody can add a version on another index (dependency confusion). Directories of this machine are
    always searched, and indexes with further builds of a package for that package only.

    Attributes:
        configuration: The indexes, without credentials.
        cache: Cache of what they answer.
        offline: Whether to answer from the cache alone.
        transport: Connection to the indexes.
        repositories: Repositories of packages that come from no index.
        distributions: Files on indexes and at other addresses.
        failed_builds: Why an index with further builds could not be read, by its address.
    """

    def __init__(
        self,
        configuration: IndexConfiguration,
        *,
        cache: DiskCache,
        offline: bool = False,
        refresh: bool = False,
        advisory_service: str | None = None,
        advisory_database: AdvisoryDatabase | None = None,
    ) -> None:
        self.configuration, credentials = split_credentials(configuration)
        self.cache = cache
        self.offline = offline
        self.transport = Transport(self.configuration, credentials)
        access = IndexAccess(transport=self.transport, cache=cache, offline=offline, refresh=refresh)
        self.repositories = GitRepositories(access)
        self.distributions = Distributions(access)
        self.file_sizes = FileSizes(self.distributions, offline=offline)
        self._reader = Pages(self.configuration, access)
        self._advisories = Advisories(access, service=advisory_service, database=advisory_database)
        self._local = [base for base in self.configuration.extra if index_directory(base) is not None]
        further = [base for base in self.configuration.extra if base not in self._local]
        # Further indexes and the default one in the same order as uv, and supplemental ones as Poetry.
        self._remote = [*further, self.configuration.default, *self.configuration.supplemental]
        self.failed_builds: dict[str, UnavailableError] = {}
        self._answers: dict[NormalizedName, tuple[ProjectPage, ...]] = {}
        if not offline:
            # Threads share two memory pools, where the C library is glibc: by default each keeps what it freed for
            # itself (mallopt(3)).
            with contextlib.suppress(AttributeError, OSError, TypeError):
                ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        # Without network access, threads bring no speed.
        self._pool = _Inline() if offline else ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="index")
        self._builders = ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1), thread_name_prefix="build")
        self._build_processes = StoppableProcesses()
        self._background = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="ahead")
        self._pages: Futures[tuple[NormalizedName, str], ProjectPage] = Futures(self._pool, self._reader.read)
        self._linked: Futures[str, Mapping[NormalizedName, ProjectPage]] = Futures(self._pool, self._reader.linked)
        self._metadata: Futures[str, CoreMetadata] = Futures(self._pool, self.distributions.metadata)
        self._built: Futures[str, CoreMetadata] = Futures(self._builders, self._build)
        self._variants: Futures[str, VariantMetadata | str] = Futures(self._pool, VariantFiles(access).read)
        self._records: Futures[PackageVersion, tuple[str, ...] | None] = Futures(self._pool, self._advisories.read)

    def close(self) -> None:
        """Cancel the queued requests, stop the builds and end the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._background.shutdown(wait=False, cancel_futures=True)
        self._builders.shutdown(wait=False, cancel_futures=True)
        # Python waits for the threads at its end, and a build may take minutes.
        self._build_processes.stop()
        self.file_sizes.close()

    def in_background(self, task: Callable[[], None]) -> None:
        """Run a task that only prefetches; it may fail or be cancelled without consequences.

        These tasks have their own threads, so that they may wait for pages and metadata.
        """

        def run() -> None:
            with contextlib.suppress(UnavailableError, MetadataError, CancelledError, RuntimeError):
                task()

        with contextlib.suppress(RuntimeError):
            self._background.submit(run)

    def pages(self, project: NormalizedName) -> tuple[ProjectPage, ...]:
        """Return the pages of a project; empty if no index has it."""
        if project not in self._answers:
            self._answers[project] = tuple(self._read_pages(project))
        return self._answers[project]

    @property
    def read_projects(self) -> frozenset[NormalizedName]:
        """Projects whose pages were read so far."""
        return frozenset(list(self._answers))

    def renew(self, project: NormalizedName) -> None:
        """Request the pages of a project again, even if they are fresh, to get newer releases."""
        stale = [key for key in self._pages.started() if key[0] == project]
        self._pages.forget(stale)
        self._answers.pop(project, None)
        for key in stale:
            self._pages.start(key, *key, refresh=True)
        self.pages(project)

    def _read_pages(self, project: NormalizedName) -> list[ProjectPage]:
        if project in self.configuration.bindings:
            return [self._page(project, self.configuration.bindings[project])]
        pages = [] if project in self.configuration.exclusive else self._unbound_pages(project)
        pages += [page for base in self.configuration.builds.get(project, ()) if (page := self._builds(project, base))]
        return [page for page in pages if page.exists]

    def _unbound_pages(self, project: NormalizedName) -> list[ProjectPage]:
        """Return the pages of a project on the indexes that any package may come from."""
        pages = []
        for base in self._remote:
            page = self._page(project, base)
            if page.exists:
                pages.append(page)
                if self.configuration.strategy == "first-index":
                    break
        pages += [self._page(project, base) for base in self._local]
        linked = (self._linked.start(links, links).result() for links in self.configuration.find_links)
        return pages + [by_project[project] for by_project in linked if project in by_project]

    def _builds(self, project: NormalizedName, base: str) -> ProjectPage | None:
        """Return the page of a project on an index with further builds; `None` if it cannot be read."""
        if base in self.failed_builds:
            return None
        try:
            return self._page(project, base)
        except UnavailableError as error:
            # The other builds can still be used.
            self.failed_builds[base] = error
            return None

    def digests(self, projects: Iterable[str]) -> dict[str, str]:
        """Return a hash of the pages of each project, by its normalised name."""
        pages = {name: self.pages(NormalizedName(name)) for name in projects}
        return {
            name: content_hash([p.digest or [[f.filename, f.size] for f in p.files] for p in listed])
            for name, listed in pages.items()
        }

    def files(self, project: NormalizedName) -> tuple[DistributionFile, ...]:
        """Return every file of a project; if several pages have a file of the same name, the first one."""
        by_name: dict[str, DistributionFile] = {}
        for page in self.pages(project):
            for file in page.files:
                by_name.setdefault(file.filename, file)
        return tuple(by_name.values())

    def select_files(self, project: NormalizedName, selector: FileSelector) -> tuple[DistributionFile, ...]:
        """Return the files of a project, on all of its pages and of any kind, that a selector accepts by name."""
        return tuple(file for page in self.pages(project) for file in page.read(selector).files)

    def metadata(self, file: DistributionFile) -> CoreMetadata:
        """Return the core metadata of a wheel or sdist.

        Raises:
            MetadataError: If it is malformed or is of another file.
        """
        return self._metadata.start(file.identity, file).result()

    def licenses(self, file: DistributionFile) -> tuple[str, ...]:
        """Return the licences that a distribution states; empty if it states none or its metadata cannot be read."""
        try:
            return self.metadata(file).licenses
        except (MetadataError, UnavailableError):
            return ()

    def prefetch(self, projects: Iterable[NormalizedName] = (), files: Iterable[DistributionFile] = ()) -> None:
        """Start fetching pages and metadata without waiting for them."""
        for project in projects:
            bound = self.configuration.bindings.get(project)
            builds = self.configuration.builds.get(project, ()) if bound is None else ()
            for base in (bound if bound is not None else self._remote[0], *builds):
                self._pages.start((project, base), project, base)
        for file in files:
            self._metadata.start(file.identity, file)

    def vulnerabilities(self, file: DistributionFile, name: str, version: str) -> tuple[str, ...] | None:
        """Return the identifiers of a version's known vulnerabilities; `None` if nothing has a record of it."""
        record = self._records.start((name, version), file, name, version).result()
        if record is not None:
            return record
        records = {key: future for key, future in self._records.started().items() if future.done()}
        others = [key for key, future in records.items() if not future.exception() and future.result() is None]
        return self._advisories.read_from_service((name, version), others)

    def prefetch_vulnerabilities(self, versions: Iterable[tuple[DistributionFile, str, str]]) -> None:
        """Start fetching vulnerability records without waiting for them."""
        for file, name, version in versions:
            self._records.start((name, version), file, name, version)

    def size(self, file: DistributionFile) -> int | None:
        """Return the size of a file in bytes, requested if the index page does not contain it; `None` if unknown."""
        with contextlib.suppress(UnavailableError):
            return self.distributions.size(file)
        return None

    def unpacked_size(self, file: DistributionFile) -> int | None:
        """Return the unpacked size of a wheel in bytes; `None` if it is unknown."""
        with contextlib.suppress(UnavailableError):
            return self.distributions.unpacked_size(file)
        return None

    def prefetch_sizes(self, files: Iterable[DistributionFile]) -> None:
        """Request the sizes that index pages do not contain, in one parallel batch."""
        list(self._pool.map(self.size, files))

    def _page(self, project: NormalizedName, base: str) -> ProjectPage:
        return self._pages.start((project, base), project, base).result()

    def variants(self, files: Iterable[DistributionFile]) -> list[VariantMetadata | str]:
        """Return the contents of files that describe variants, or why they cannot be used, in one parallel batch."""
        return [future.result() for future in [self._variants.start(file.identity, file) for file in files]]

    def built_metadata(self, file: DistributionFile) -> CoreMetadata:
        """Return the metadata of an sdist from a build, which runs its code; the result is cached.

        Raises:
            MetadataError: If the build fails, or generates malformed metadata.
        """
        return self._built.start(file.identity, file).result()

    def prefetch_builds(self, files: Iterable[DistributionFile]) -> None:
        """Start building the metadata of sdists without waiting."""
        for file in files:
            self._built.start(file.identity, file)

    def _build(self, file: DistributionFile) -> CoreMetadata:
        with self._build_processes.of_this_thread():
            return self.distributions.built_metadata(file)

    def pinned(self, file: DistributionFile) -> DistributionFile:
        """Return a file with size and hash, which a lock needs; a file that no index lists is downloaded for it.

        Raises:
            IndexAnswerError: If the index provides no SHA-256 and the file is not on this machine.
        """
        digest = file.sha256
        if digest is None:
            is_listed = file.index and file.index not in self.configuration.find_links
            if is_listed and local_path(file.url) is None:
                raise IndexAnswerError(
                    f"`{without_credentials(file.index)}` has no SHA-256 of `{file.filename}`, which a lock needs",
                    hint="use an index that publishes hashes",
                )
            digest = self.distributions.sha256(file)
        return replace(file, sha256=digest, size=self.size(file))
