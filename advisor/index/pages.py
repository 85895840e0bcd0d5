"""Project pages: from the cache while they are fresh, from the index after that, or from a directory."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.utils import NormalizedName, canonicalize_name

from advisor.index.cache import DiskCache
from advisor.index.configuration import IndexConfiguration, without_credentials
from advisor.index.page import DistributionFile, Listing, Wanted, is_distribution, parse_page
from advisor.index.transport import Transport, local_path, url_of_path
from knowledge.domain.errors import UnavailableError

FRESH_SECONDS = 600
"""How long a page counts as fresh where its index does not say (`Cache-Control`); the large public ones say this."""
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class IndexAnswerError(UnavailableError):
    """Raised when an index answers, but not with what the simple repository API promises."""

    code = "index-answer"


class OfflineError(UnavailableError):
    """Raised when ``--offline`` needs something that the cache does not hold."""

    code = "offline"


@dataclass(frozen=True, kw_only=True)
class ProjectPage:
    """What one index offers of one project.

    Attributes:
        digest: SHA-256 of the page with its addresses, as named and after redirects; empty for a directory, whose
            content may change at any time.
        known: Whether the index knows the project.
        read: Reads the files that are wanted, or all wheels and sdists.
    """

    digest: str
    known: bool
    read: Callable[[Wanted | None], Listing]

    @cached_property
    def files(self) -> tuple[DistributionFile, ...]:
        """Every wheel and sdist, read when first asked for."""
        return self.read(None).files


class Pages:
    """Reads project pages. Safe for many threads."""

    def __init__(
        self,
        configuration: IndexConfiguration,
        transport: Transport,
        cache: DiskCache,
        *,
        offline: bool,
        refresh: bool,
    ) -> None:
        self._configuration = configuration
        self._transport = transport
        self._cache = cache
        self._offline = offline
        self._refresh = refresh
        self._listed: dict[str, Mapping[NormalizedName, tuple[DistributionFile, ...]]] = {}

    def read(self, project: NormalizedName, base: str, *, refresh: bool = False) -> ProjectPage:
        """Return a project's page of an index; without files where the index does not know the project.

        Args:
            project: The project.
            base: Address of the index.
            refresh: Ask for it even where it is fresh.

        Raises:
            UnavailableError: If the index does not answer, or not with a page, or the cache lacks it while offline.
        """
        if (directory := index_directory(base)) is not None:
            return self._directory_page(directory / project, base)
        # The default index is only named where it is asked: its name comes from a library that is slow to load.
        key = f"{base.rstrip('/')}/{project}/"
        about = self._stored(key)
        if self._offline and about is None:
            raise OfflineError(
                f"the page of `{project}` on {_named(base)} is not in the cache `{self._cache.directory}`",
                hint="run the same command once without `--offline`",
            )
        if about is not None and (self._offline or (not refresh and self._is_fresh(about))):
            return self._stored_page(project, key, about)
        return self._fetch(project, base or self._configuration.default_url, key, about)

    def linked(self, links: str, project: NormalizedName) -> ProjectPage:
        """Return a project's files in a find-links directory.

        Raises:
            UnavailableError: If it is no directory of this machine.
        """
        directory = local_path(links)
        if directory is None:
            raise UnavailableError(
                f"the find-links location `{without_credentials(links)}` is not a directory of this machine",
                hint="remote find-links pages are not supported: name the index with `--extra-index-url`",
            )
        if links not in self._listed:
            self._listed[links] = _by_project(_directory_files(directory, links))
        files = self._listed[links].get(project, ())
        return _listed(files, known=bool(files))

    def _is_fresh(self, about: dict[str, Any]) -> bool:
        age = time.time() - about.get("fetched", 0)
        return not self._refresh and 0 <= age < about.get("fresh", FRESH_SECONDS)

    def _fetch(self, project: NormalizedName, base: str, key: str, about: dict[str, Any] | None) -> ProjectPage:
        url = f"{base.rstrip('/')}/{project}/"
        if about is not None and self._body(key, about) is None:
            # An index that says "not changed" would leave the page damaged.
            about = None
        answer = self._transport.get(url, accept=_ACCEPT, etag=about.get("etag") if about else None)
        if about is not None and answer.status == 304 and answer.url != about["url"]:
            # The page is the same in another place, so that its relative links lead elsewhere.
            answer = self._transport.get(url, accept=_ACCEPT)
        url = answer.url or url
        digest = _digest(key, url, answer.body)
        fresh = _fresh_seconds(answer.cache_control)
        known = answer.status != 404
        same = answer.status == 304 or (about is not None and (about["digest"], about["known"]) == (digest, known))
        if about is not None and same:
            about = {**about, "fetched": time.time(), "fresh": fresh}
            self._cache.write("pages", key, json.dumps(about).encode())
            return self._stored_page(project, key, about)
        about = {"etag": answer.etag, "digest": digest, "known": known, "fetched": time.time(), "fresh": fresh}
        about |= {"type": answer.content_type, "url": url, "index": base}
        page = _page_of(answer.body if known else b"", about)
        # Nothing is kept that is not a page.
        page.read(lambda _: False)
        if known:
            self._cache.write("bodies", key, answer.body)
        self._cache.write("pages", key, json.dumps(about).encode())
        return page

    def _stored(self, key: str) -> dict[str, Any] | None:
        content = self._cache.read("pages", key)
        if content is None:
            return None
        try:
            about = json.loads(content)
            return about if {"digest", "known", "type", "url", "index"} <= set(about) else None
        except (ValueError, KeyError, TypeError):
            # Written by another version of the program.
            return None

    def _body(self, key: str, about: dict[str, Any]) -> bytes | None:
        """Return the stored body of a page; none where it is damaged or that of another answer."""
        if not about["known"]:
            return b""
        body = self._cache.read("bodies", key)
        return body if body is not None and _digest(key, about["url"], body) == about["digest"] else None

    def _stored_page(self, project: NormalizedName, key: str, about: dict[str, Any]) -> ProjectPage:
        def read(wanted: Wanted | None) -> Listing:
            body = self._body(key, about)
            page = self._replace_damaged(project, key, about) if body is None else _page_of(body, about)
            return page.read(wanted)

        return ProjectPage(digest=about["digest"], known=bool(about["known"]), read=read)

    def _replace_damaged(self, project: NormalizedName, key: str, about: dict[str, Any]) -> ProjectPage:
        """Fetch a page again whose body in the cache is damaged.

        Raises:
            UnavailableError: If the index is not to be asked, does not answer, or has another page by now.
        """
        if self._offline:
            raise OfflineError(
                f"the cache entry of the page `{without_credentials(about['url'])}` is damaged",
                hint="run the same command once without `--offline`",
            )
        page = self._fetch(project, about["index"], key, None)
        if page.digest != about["digest"]:
            # What was read before, such as remembered compatible files, belongs to the page that is gone.
            raise IndexAnswerError(
                f"the page `{without_credentials(about['url'])}` changed while its damaged cache entry was replaced",
                hint="run the same command again",
            )
        return page

    def _directory_page(self, directory: Path, base: str) -> ProjectPage:
        page, url = directory / "index.html", f"{url_of_path(directory)}/"
        if not page.is_file():
            return _listed(_directory_files(directory, base), known=directory.is_dir())
        try:
            body = page.read_bytes()
        except OSError as error:
            raise UnavailableError(f"the index page `{page}` cannot be read: {error.strerror}") from None
        digest = hashlib.sha256(url.encode() + body).hexdigest()
        return _page_of(body, {"digest": digest, "known": True, "type": "text/html", "url": url, "index": base})


def _digest(key: str, url: str, body: bytes) -> str:
    return hashlib.sha256(f"{key} {url} ".encode() + body).hexdigest()


def _listed(files: tuple[DistributionFile, ...], *, known: bool) -> ProjectPage:
    def read(wanted: Wanted | None) -> Listing:
        return Listing(files=tuple(f for f in files if wanted is None or wanted(f.filename)))

    return ProjectPage(digest="", known=known, read=read)


def _page_of(body: bytes, about: dict[str, Any]) -> ProjectPage:
    """Return the page that a body is; reading raises :class:`IndexAnswerError` where it is none."""

    def read(wanted: Wanted | None) -> Listing:
        if not about["known"]:
            return Listing()
        try:
            return parse_page(body, about["type"], url=about["url"], index=about["index"], wanted=wanted)
        except ValueError as error:
            reason = " ".join(str(error).split())[:300]
            raise IndexAnswerError(
                f"`{without_credentials(about['url'])}` did not answer with a project page: {reason}",
                hint="check the index address: it must end where project names begin, as `.../simple/` does",
            ) from None

    return ProjectPage(digest=about["digest"], known=about["known"], read=read)


def index_directory(base: str) -> Path | None:
    """Return the directory that an index is, or none for one on the network."""
    return local_path(base) if base else None


def _named(base: str) -> str:
    return f"`{without_credentials(base)}`" if base else "the default index"


def _directory_files(directory: Path, base: str) -> tuple[DistributionFile, ...]:
    if not directory.is_dir():
        return ()
    return tuple(
        DistributionFile(filename=path.name, url=url_of_path(path), index=base, size=path.stat().st_size)
        for path in sorted(directory.iterdir())
        if is_distribution(path.name) and path.is_file()
    )


def _by_project(files: Iterable[DistributionFile]) -> Mapping[NormalizedName, tuple[DistributionFile, ...]]:
    """Sort files by their project: a wheel is named by it up to the first dash, an sdist up to the last."""
    found: dict[NormalizedName, list[DistributionFile]] = {}
    for file in files:
        wheel = file.filename.endswith(".whl")
        name = file.filename.partition("-")[0] if wheel else file.filename.rpartition("-")[0]
        found.setdefault(canonicalize_name(name), []).append(file)
    return {name: tuple(named) for name, named in found.items()}


def _fresh_seconds(cache_control: str) -> int:
    """Return how long an answer may be used without asking again (RFC 9111)."""
    if "no-cache" in cache_control or "no-store" in cache_control:
        return 0
    found = re.search(r"max-age=(\d{1,9})", cache_control)
    return int(found[1]) if found else FRESH_SECONDS
