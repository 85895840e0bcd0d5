"""Sizes of many files at once, read in the background while the program does something else.

Sizes are only reported, so the program waits for them for a limited time. A server that did not answer, or does not
support range requests, gets no further requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from urllib.parse import urlsplit

from advisor.index.access import Futures
from advisor.index.addresses import origin_of
from advisor.index.http.errors import GoneError, RangeError, deadline
from advisor.index.limits import TooLargeError
from advisor.index.metadata.archive import ArchiveError, ChangedFileError
from advisor.index.metadata.distributions import Distributions
from advisor.index.pages.page import DistributionFile
from knowledge.domain.errors import UnavailableError

SECONDS = 10.0
"""Maximum time of each request."""
WAIT_SECONDS = 3.0
"""Maximum time that an answer is delayed for sizes; the next run finds those that arrive later in the cache."""
_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a size is not known.

    Attributes:
        text: The reason, as part of a sentence.
        temporary: Whether the next run may succeed.
    """

    text: str
    temporary: bool


OFFLINE = Problem(text="they are not in the cache, and `--offline` reads nothing else", temporary=True)
UNREADABLE = Problem(text="the files cannot be read", temporary=False)
UNSTATED = Problem(text="their index does not state them", temporary=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSize:
    """The sizes of one file, in bytes.

    Attributes:
        download: Size of the file; `None` if it is not known.
        installed: Unpacked size of a wheel; `None` if it is not known, and for an sdist.
        problem: Why a size that could be known is not; `None` if nothing is missing.
    """

    download: int | None = None
    installed: int | None = None
    problem: Problem | None = None


class FileSizes:
    """Reads the sizes of files, each once. Safe for many threads."""

    def __init__(self, distributions: Distributions, *, offline: bool) -> None:
        """Create a reader; it starts nothing, and requests nothing if it is offline."""
        self._distributions = distributions
        self._offline = offline
        self._pool = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="sizes")
        self._sizes: Futures[str, FileSize] = Futures(self._pool, self._read)
        self._unavailable: dict[str, Problem] = {}
        """Servers that did not answer."""
        self._without_ranges: dict[str, Problem] = {}
        """Servers that do not support range requests."""

    def prefetch(self, files: Iterable[DistributionFile]) -> None:
        """Start to read the sizes of files without waiting for them."""
        for file in files:
            self._sizes.start(file.identity, file)

    def read(self, files: Iterable[DistributionFile], *, wait_for: bool = True) -> dict[str, FileSize]:
        """Return the sizes of files by the identity of each file, and wait for missing ones if ``wait_for``."""
        futures = [(file, self._sizes.start(file.identity, file)) for file in files]
        wait((future for _, future in futures), timeout=WAIT_SECONDS if wait_for else 0)
        late = Problem(text=f"their index did not give them within {WAIT_SECONDS:g} seconds", temporary=True)
        return {
            file.identity: future.result() if future.done() else FileSize(download=file.size, problem=late)
            for file, future in futures
        }

    def known(self, file: DistributionFile) -> FileSize:
        """Return the sizes of a file without a request: from its index page, the cache and what was read so far."""
        future = self._sizes.started().get(file.identity)
        if future is not None and future.done():
            return future.result()
        download, installed = self._distributions.known_sizes(file)
        return FileSize(download=download, installed=installed)

    def close(self) -> None:
        """Cancel the queued requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, file: DistributionFile) -> FileSize:
        download, installed = self._distributions.known_sizes(file)
        problem = None
        if installed is None and file.filename.endswith(".whl"):
            installed, problem = self._attempt(file, self._distributions.unpacked_size, self._without_ranges)
            # The answer to the request for the table of contents also contains the size of the file.
            download = download if download is not None else self._distributions.known_sizes(file)[0]
        if download is None:
            download, other = self._attempt(file, self._distributions.size, {})
            problem = problem or other
        return FileSize(download=download, installed=installed, problem=problem)

    def _attempt(
        self,
        file: DistributionFile,
        read: Callable[[DistributionFile], int | None],
        incapable: dict[str, Problem],
    ) -> tuple[int | None, Problem | None]:
        """Return one size of a file, unless its server failed before, and why it is not known.

        Servers that cannot answer this kind of request are added to the incapable ones.
        """
        server = origin_of(file.url)
        if (problem := self._unavailable.get(server) or incapable.get(server)) is not None:
            return None, problem
        try:
            with deadline(SECONDS):
                size = read(file)
        except (ArchiveError, ChangedFileError, GoneError, TooLargeError):
            return None, UNREADABLE
        except RangeError:
            reason = f"`{_host(file)}` does not support range requests"
            return None, incapable.setdefault(server, Problem(text=reason, temporary=False))
        except UnavailableError:
            reason = f"`{_host(file)}` could not be read"
            return None, self._unavailable.setdefault(server, Problem(text=reason, temporary=True))
        if size is None:
            return None, OFFLINE if self._offline else UNSTATED
        return size, None


def _host(file: DistributionFile) -> str:
    """Return the host of a file with its port, for people."""
    parts = urlsplit(file.url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
