"""Known vulnerabilities of package versions, from the index's own records (the JSON API beside the simple one)."""

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
"""Stands for what is no identifier: the vulnerability counts, its text reaches no report."""


class Advisories:
    """Reads vulnerability records. Safe for many threads."""

    def __init__(self, transport: Transport, cache: DiskCache, *, offline: bool, refresh: bool) -> None:
        self._transport = transport
        self._cache = cache
        self._offline = offline
        self._refresh = refresh

    def read(self, file: DistributionFile, name: str, version: str) -> tuple[str, ...] | None:
        """Return the identifiers of a version's vulnerabilities, sorted; none where the index keeps no record.

        Raises:
            UnavailableError: If the index does not answer.
        """
        base, simple, _ = file.index.rstrip("/").rpartition("/simple")
        if not simple or index_directory(file.index) is not None:
            return None
        url = f"{base}/pypi/{name}/{version}/json"
        stored = self._stored(url)
        if self._offline or (stored and not self._refresh and 0 <= time.time() - stored["fetched"] < FRESH_SECONDS):
            return None if stored is None or stored["ids"] is None else tuple(stored["ids"])
        answer = self._transport.get(url, accept="application/json")
        ids = _ids(answer.body) if answer.status == 200 else None
        self._cache.write("advisories", url, json.dumps({"fetched": time.time(), "ids": ids}).encode())
        return None if ids is None else tuple(ids)

    def _stored(self, url: str) -> dict[str, Any] | None:
        content = self._cache.read("advisories", url)
        try:
            stored = json.loads(content or b"null")
            return stored if stored and {"fetched", "ids"} <= set(stored) else None
        except (ValueError, TypeError):
            return None


def _ids(body: bytes) -> list[str] | None:
    """Return the identifiers of the vulnerabilities that a record names and that were not withdrawn."""
    try:
        records = json.loads(body)["vulnerabilities"]
        found = {str(record["id"]) for record in records if not record.get("withdrawn")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return sorted(name if _IDENTIFIER.fullmatch(name) else _UNREADABLE for name in found)
