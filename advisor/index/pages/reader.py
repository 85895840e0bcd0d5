"""Reads project pages from the cache while they are fresh, from the index, or from a directory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName, canonicalize_name

from advisor.index.access import OFFLINE_HINT, DatedEntries, IndexAccess, OfflineError, fresh_seconds
from advisor.index.addresses import local_path, url_of_path
from advisor.index.configuration import IndexConfiguration, without_credentials
from advisor.index.pages.filenames import is_variants_file
from advisor.index.pages.page import DistributionFile, FileSelector, Listing, PageEntries, is_distribution, parse_page
from knowledge.domain.errors import UnavailableError

_FIELDS = ("digest", "exists", "type", "url", "index", "requested")
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class IndexAnswerError(UnavailableError):
    """Raised when the answer of an index does not conform to the simple repository API."""

    code = "index-answer"


@dataclass(frozen=True, kw_only=True)
class ProjectPage:
    """The page of a project on one index.

    Attributes:
        digest: SHA-256 of the page and its addresses before and after redirects; empty for a directory, whose content
            may change at any time.
        exists: Whether the index has the project.
        entries: Returns the entries of an existing page; raises :class:`ValueError` if it is not a project page.
        url: Address of the page; empty for a directory.
    """

    digest: str
    exists: bool
    entries: Callable[[], PageEntries]
    url: str = ""

    def read(self, selector: FileSelector | None) -> Listing:
        """Return the files that a selector accepts; without a selector, all wheels and sdists.

        Raises:
            UnavailableError: If it is not a project page, or its cached content is damaged and cannot be replaced.
        """
        if not self.exists:
            return Listing()
        with _explained(self.url):
            return self.entries().select(selector)

    @cached_property
    def files(self) -> tuple[DistributionFile, ...]:
        """All wheels and sdists, parsed at first use."""
        return self.read(None).files


class Pages:
    """Reads project pages. Safe for many threads.

    An `UnavailableError` is raised if an index does not answer with a page, or the cache lacks the page while offline.
    """

    def __init__(self, configuration: IndexConfiguration, access: IndexAccess) -> None:
        self._configuration = configuration
        self._access = access
        self._entries = DatedEntries(access, "pages", *_FIELDS)

    def read(self, project: NormalizedName, base: str, *, refresh: bool = False) -> ProjectPage:
        """Return the page of a project on an index, requested even if the cached one is fresh if ``refresh`` is set.

        It has no files if the index does not have the project.
        """
        if (directory := index_directory(base)) is not None:
            return self._directory_page(directory / project, base)
        index = base or self._configuration.default_url
        what = f"the page of `{project}` on {f'`{without_credentials(base)}`' if base else 'the default index'}"
        url = f"{index.rstrip('/')}/{project}/"
        return self._page(f"{base.rstrip('/')}/{project}/", url, index, what, refresh=refresh)

    def _page(self, key: str, url: str, index: str, what: str, *, refresh: bool = False) -> ProjectPage:
        """Return a page from the cache while it is fresh, or from an address; ``what`` describes it in an error."""
        about = self._entries.read(key)
        if self._access.offline and about is None:
            raise self._access.missing(what)
        if about is not None and (self._access.offline or not refresh) and self._entries.is_usable(about):
            return self._stored_page(key, about)
        return self._fetch(url, index, key, about)

    def linked(self, links: str) -> Mapping[NormalizedName, ProjectPage]:
        """Return pages with the files in a find-links directory, or that a find-links page links to, by project."""
        by_project: dict[NormalizedName, list[DistributionFile]] = {}
        for file in self._files_of(links):
            # The name ends at the last hyphen of an sdist, and at the first one of other files.
            is_first = file.filename.endswith(".whl") or is_variants_file(file.filename)
            name = file.filename.partition("-")[0] if is_first else file.filename.rpartition("-")[0]
            by_project.setdefault(canonicalize_name(name), []).append(file)
        return {name: _directory_listing(tuple(files), exists=True) for name, files in by_project.items()}

    def _files_of(self, links: str) -> tuple[DistributionFile, ...]:
        """Return the files in a find-links directory, or that a find-links page links to."""
        if (directory := local_path(links)) is not None:
            return _directory_files(directory, links)
        what = f"find-links page `{without_credentials(links)}`"
        page = self._page(links, links, links, f"the {what}")
        if not page.exists:
            raise IndexAnswerError(f"there is no {what}", hint="check the address of `--find-links`")
        return page.read(_is_listed).files

    def _fetch(self, url: str, base: str, key: str, about: dict[str, Any] | None) -> ProjectPage:
        """Request the page at an address of an index, or the find-links page itself."""
        requested = url
        if about is not None and self._body(key, about) is None:
            # Otherwise the index could answer "not modified", and the page would stay damaged.
            about = None
        answer = self._access.transport.get(url, accept=_ACCEPT, etag=about.get("etag") if about else None)
        if about is not None and answer.status == 304 and answer.url != about["url"]:
            # The page has moved, so that its relative links have changed.
            answer = self._access.transport.get(url, accept=_ACCEPT)
        url = answer.url or url
        digest = _digest(key, url, answer.body)
        fresh = fresh_seconds(answer.cache_control)
        exists = answer.status != 404
        is_unchanged = answer.status == 304 or (
            about is not None and (about["digest"], about["exists"]) == (digest, exists)
        )
        if about is not None and is_unchanged:
            return self._stored_page(key, self._entries.write(key, about, fresh=fresh))
        about = {"etag": answer.etag, "digest": digest, "exists": exists, "type": answer.content_type}
        about |= {"url": url, "index": base, "requested": requested}
        with _explained(url):
            # Only valid pages are cached.
            entries = _entries_of(answer.body, about) if exists else None
        cache = self._access.cache
        if exists:
            cache.write("bodies", key, answer.body)
        about = self._entries.write(key, about, fresh=fresh)
        if exists and not cache.path_of("bodies", key).exists():
            return _page_of(about, partial(_entries_of, answer.body, about))
        return self._stored_page(key, about, entries)

    def _body(self, key: str, about: dict[str, Any]) -> bytes | None:
        """Return the cached body of a page; `None` if it is damaged or of another answer."""
        if not about["exists"]:
            return b""
        body = self._access.cache.read("bodies", key)
        return body if body is not None and _digest(key, about["url"], body) == about["digest"] else None

    def _stored_page(self, key: str, about: dict[str, Any], entries: PageEntries | None = None) -> ProjectPage:
        """Return a cached page. Entries that were just parsed are kept until it is read once."""
        parsed = [] if entries is None else [entries]

        def read() -> PageEntries:
            with suppress(IndexError):
                return parsed.pop()
            body = self._body(key, about)
            return self._replace_damaged(key, about).entries() if body is None else _entries_of(body, about)

        return _page_of(about, read)

    def _replace_damaged(self, key: str, about: dict[str, Any]) -> ProjectPage:
        """Request a page again because its cached body is damaged; it is an error if it has changed."""
        if self._access.offline:
            raise OfflineError(
                f"the cache entry of the page `{without_credentials(about['url'])}` is damaged", hint=OFFLINE_HINT
            )
        page = self._fetch(about["requested"], about["index"], key, None)
        if page.digest != about["digest"]:
            # Data that was read before, such as cached compatible files, is of the old page.
            raise IndexAnswerError(
                f"the page `{without_credentials(about['url'])}` changed while its damaged cache entry was replaced",
                hint="run the same command again",
            )
        return page

    def _directory_page(self, directory: Path, base: str) -> ProjectPage:
        page, url = directory / "index.html", f"{url_of_path(directory)}/"
        if not page.is_file():
            return _directory_listing(_directory_files(directory, base), exists=directory.is_dir())
        try:
            body = page.read_bytes()
        except OSError as error:
            raise UnavailableError(f"the index page `{page}` cannot be read: {error.strerror}") from None
        digest = hashlib.sha256(url.encode() + body).hexdigest()
        about = {"digest": digest, "exists": True, "type": "text/html", "url": url, "index": base}
        return _page_of(about, partial(_entries_of, body, about))


def _digest(key: str, url: str, body: bytes) -> str:
    return hashlib.sha256(f"{key} {url} ".encode() + body).hexdigest()


def _directory_listing(files: tuple[DistributionFile, ...], *, exists: bool) -> ProjectPage:
    entries = PageEntries(items=[(file.filename, file) for file in files], make=lambda _, file: file)
    return ProjectPage(digest="", exists=exists, entries=lambda: entries)


def _page_of(about: dict[str, Any], entries: Callable[[], PageEntries]) -> ProjectPage:
    return ProjectPage(digest=about["digest"], exists=bool(about["exists"]), entries=entries, url=about["url"])


def _entries_of(body: bytes, about: dict[str, Any]) -> PageEntries:
    links = about.get("requested") == about["index"]
    return parse_page(body, about["type"], url=about["url"], index=about["index"], links=links)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Explain why an answer is not a page."""
    try:
        yield
    except ValueError as error:
        reason = " ".join(str(error).split())[:300]
        raise IndexAnswerError(
            f"`{without_credentials(url)}` did not answer with a project page: {reason}",
            hint="check the index address: a project name must follow it directly, as in `.../simple/NAME/`",
        ) from None


def index_directory(base: str) -> Path | None:
    """Return the directory of a local index; `None` for an index on the network."""
    return local_path(base) if base else None


def _directory_files(directory: Path, base: str) -> tuple[DistributionFile, ...]:
    if not directory.is_dir():
        return ()
    return tuple(
        DistributionFile(filename=path.name, url=url_of_path(path), index=base, size=path.stat().st_size)
        for path in sorted(directory.iterdir())
        if _is_listed(path.name) and path.is_file()
    )


def _is_listed(filename: str) -> bool:
    return is_distribution(filename) or is_variants_file(filename)
