"""Reads the files that describe the variants of a version, through the cache."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from advisor.index.addresses import local_path
from advisor.index.cache import DiskCache
from advisor.index.configuration import without_credentials
from advisor.index.http.transport import Transport
from advisor.index.limits import VARIANTS_BYTES, TooLargeError
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import IndexAnswerError, OfflineError, fresh_seconds
from advisor.index.variants.metadata import VariantMetadata, parse_variants

_BUCKET = "variants"


class VariantFiles:
    """Reads variant metadata. Safe for many threads."""

    def __init__(self, transport: Transport, cache: DiskCache, *, offline: bool, refresh: bool) -> None:
        self._transport = transport
        self._cache = cache
        self._offline = offline
        self._refresh = refresh

    def read(self, file: DistributionFile) -> VariantMetadata | str:
        """Return the content of a `NAME-VERSION-variants.json`, or why it cannot be used.

        Such a file may change (PEP 825). If the page has its hash, it is requested again when the hash changes, else
        when it is no longer fresh, like a page.

        Raises:
            UnavailableError: If the index does not answer, the hash is another one than on the page, or the cache has
                no entry while offline.
        """
        try:
            return parse_variants(self._body(file))
        except TooLargeError as error:
            return f"`{file.filename}`: {error.message}"
        except (FileNotFoundError, ValueError) as error:
            return f"`{file.filename}`: {error}"

    def _body(self, file: DistributionFile) -> bytes:
        if (path := local_path(file.url)) is not None:
            try:
                with path.open("rb") as opened:
                    body = opened.read(VARIANTS_BYTES + 1)
            except OSError as error:
                raise FileNotFoundError(f"it cannot be read: {error.strerror}") from None
            _check_hash(body, file)
            return body
        entry = self._cached(file)
        if entry is not None and (self._offline or file.sha256 or self._is_fresh(entry)):
            return bytes(entry["body"], "utf-8")
        if self._offline:
            raise OfflineError(
                f"`{file.filename}` is not in the cache `{self._cache.directory}`",
                hint="run the same command once without `--offline`",
            )
        return self._fetch(file, entry)

    def _fetch(self, file: DistributionFile, entry: dict[str, Any] | None) -> bytes:
        etag = entry["etag"] if entry else None
        answer = self._transport.get(file.url, accept="*/*", etag=etag, limit=VARIANTS_BYTES)
        if answer.status == 404:
            raise FileNotFoundError("the index lists it, but does not have it")
        if entry is not None and answer.status == 304:
            body = bytes(entry["body"], "utf-8")
        else:
            body = answer.body
            _check_hash(body, file)
        stored = {"fetched": time.time(), "fresh": fresh_seconds(answer.cache_control), "etag": answer.etag or etag}
        text = body.decode("utf-8")
        self._cache.write(_BUCKET, file.identity, json.dumps({**stored, "body": text}).encode())
        return body

    def _cached(self, file: DistributionFile) -> dict[str, Any] | None:
        content = self._cache.read(_BUCKET, file.identity)
        try:
            entry = None if content is None else json.loads(content)
            return entry if entry is not None and {"fetched", "fresh", "etag", "body"} <= set(entry) else None
        except (ValueError, TypeError):
            return None  # Written by another version of the program.

    def _is_fresh(self, entry: dict[str, Any]) -> bool:
        return not self._refresh and 0 <= time.time() - entry["fetched"] < entry["fresh"]


def _check_hash(body: bytes, file: DistributionFile) -> None:
    if file.sha256 and hashlib.sha256(body).hexdigest() != file.sha256:
        raise IndexAnswerError(
            f"the hash of `{without_credentials(file.url)}` does not match the one on its index page",
            hint="the file or the page was changed in transit: try again, or use another index",
        )
