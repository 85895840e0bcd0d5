"""Reads the files that describe the variants of a version, through the cache."""

from __future__ import annotations

import hashlib
from typing import Any

from advisor.index.access import DatedEntries, IndexAccess, fresh_seconds
from advisor.index.addresses import local_path
from advisor.index.configuration import without_credentials
from advisor.index.limits import VARIANTS_BYTES, TooLargeError
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import IndexAnswerError
from advisor.index.variants.metadata import VariantMetadata, parse_variants


class VariantFiles:
    """Reads variant metadata. Safe for many threads."""

    def __init__(self, access: IndexAccess) -> None:
        self._access = access
        self._entries = DatedEntries(access, "variants", "etag", "body")

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
        entry = self._entries.read(file.identity)
        if entry is not None and (file.sha256 or self._entries.is_usable(entry)):
            return bytes(entry["body"], "utf-8")
        if self._access.offline:
            raise self._access.missing(f"`{file.filename}`")
        return self._fetch(file, entry)

    def _fetch(self, file: DistributionFile, entry: dict[str, Any] | None) -> bytes:
        etag = entry["etag"] if entry else None
        answer = self._access.transport.get(file.url, accept="*/*", etag=etag, limit=VARIANTS_BYTES)
        if answer.status == 404:
            raise FileNotFoundError("the index lists it, but does not have it")
        if entry is not None and answer.status == 304:
            body = bytes(entry["body"], "utf-8")
        else:
            body = answer.body
            _check_hash(body, file)
        stored = {"etag": answer.etag or etag, "body": body.decode("utf-8")}
        self._entries.write(file.identity, stored, fresh=fresh_seconds(answer.cache_control))
        return body


def _check_hash(body: bytes, file: DistributionFile) -> None:
    if file.sha256 and hashlib.sha256(body).hexdigest() != file.sha256:
        raise IndexAnswerError(
            f"the hash of `{without_credentials(file.url)}` does not match the one on its index page",
            hint="the file or the page was changed in transit: try again, or use another index",
        )
