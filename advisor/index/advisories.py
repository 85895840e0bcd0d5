"""Known vulnerabilities of package versions, from the JSON API of the index."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from advisor.index.cache import DiskCache
from advisor.index.page import DistributionFile
from advisor.index.pages import FRESH_SECONDS, index_directory
from advisor.index.transport import Transport

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_UNREADABLE = "malformed-identifier"
"""Replaces an invalid identifier: the vulnerability is counted, but its text appears in no report."""


class Advisories:
    """Reads vulnerability records. Safe for many threads."""

    def __init__(self, transport: Transport, cache: DiskCache, *, offline: bool, refresh: bool) -> None:
        self._transport = transport
        self._cache = cache
        self._offline = offline
        self._refresh = refresh

    def read(self, file: DistributionFile, name: str, version: str) -> tuple[str, ...] | None:
        """Return the identifiers of a version's vulnerabilities, sorted; none if the index has no records.

        Raises:
            UnavailableError: If the index does not answer.
        """
        base, simple, _ = file.index.rstrip("/").rpartition("/simple")
        if not simple or index_directory(file.index) is not None:
            return None
        url = f"{base}/pypi/{name}/{version}/json"
        record = self._cached_record(url)
        if self._offline or (record and not self._refresh and 0 <= time.time() - record["fetched"] < FRESH_SECONDS):
            return None if record is None or record["ids"] is None else tuple(record["ids"])
        answer = self._transport.get(url, accept="application/json")
        ids = _ids(answer.body) if answer.status == 200 else None
        self._cache.write("advisories", url, json.dumps({"fetched": time.time(), "ids": ids}).encode())
        return None if ids is None else tuple(ids)

    def _cached_record(self, url: str) -> dict[str, Any] | None:
        content = self._cache.read("advisories", url)
        try:
            record = json.loads(content or b"null")
            return record if record and {"fetched", "ids"} <= set(record) else None
        except (ValueError, TypeError):
            return None


def _ids(body: bytes) -> list[str] | None:
    """Return the identifiers in a record of vulnerabilities, without withdrawn vulnerabilities."""
    try:
        records = json.loads(body)["vulnerabilities"]
        identifiers = {str(record["id"]) for record in records if not record.get("withdrawn")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return sorted(name if _IDENTIFIER.fullmatch(name) else _UNREADABLE for name in identifiers)
