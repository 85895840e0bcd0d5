"""Known vulnerabilities of package versions.

They come from the local copy of an advisory database if one was imported, else from the records of the index. For
versions without such a record, a service with the API of OSV is asked
(https://google.github.io/osv.dev/post-v1-querybatch/).
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.index.access import DatedEntries, IndexAccess
from advisor.index.http.transport import Transport
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import index_directory
from advisor.index.vulnerabilities.database import ECOSYSTEM, AdvisoryDatabase
from knowledge.domain.errors import UnavailableError

logger = logging.getLogger(__name__)

DEFAULT_SERVICE = "https://api.osv.dev"
_MOST_QUERIES = 500
"""Queries of one request."""
_MOST_PAGES = 20
"""Pages of answers to one request."""

PackageVersion = tuple[str, str]
"""Normalised name and public version."""
SILENT_SECONDS = 60.0
"""How long a service that could not be reached is not asked again."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_UNREADABLE = "malformed-identifier"
"""Replaces an invalid identifier: the vulnerability is counted, but its text appears in no report."""


class AdvisoryServiceError(UnavailableError):
    """Raised when the service does not answer, or not as the API says."""

    code = "advisory-service"


class Advisories:
    """Reads vulnerability records. Safe for many threads."""

    def __init__(
        self,
        access: IndexAccess,
        *,
        service: str | None = None,
        database: AdvisoryDatabase | None = None,
    ) -> None:
        """Create a reader.

        Args:
            access: How to reach the index and the service.
            service: Address of a service with the API of OSV; `None` to use no service.
            database: Local copy of an advisory database.
        """
        self._access = access
        self._entries = DatedEntries(access, "advisories", "ids")
        self._service = service
        self._database = database if database is not None and database.exists else None
        self._answers: dict[PackageVersion, tuple[str, ...] | None] = {}
        self._lock = threading.Lock()
        self._silent_until = -math.inf

    def read(self, file: DistributionFile, name: str, version: str) -> tuple[str, ...] | None:
        """Return the identifiers of a version's vulnerabilities, sorted; `None` without a local copy or a record.

        Raises:
            UnavailableError: If the index does not answer, or the local copy cannot be read.
        """
        if self._database is not None:
            return _checked(self._database.vulnerabilities(name, Version(version)))
        base, simple, _ = file.index.rstrip("/").rpartition("/simple")
        if not simple or index_directory(file.index) is not None:
            return None
        url = f"{base}/pypi/{name}/{version}/json"
        record = self._usable_record(url)
        if record is None and not self._access.offline:
            answer = self._access.transport.get(url, accept="application/json")
            record = self._entries.write(url, {"ids": _ids(answer.body) if answer.status == 200 else None})
        return None if record is None or record["ids"] is None else tuple(record["ids"])

    def read_from_service(
        self, version: PackageVersion, others: Iterable[PackageVersion] = ()
    ) -> tuple[str, ...] | None:
        """Return the identifiers of a version's vulnerabilities from the service; `None` if it does not answer.

        The other versions are needed soon; they are in the same request.
        """
        if self._service is None:
            return None
        with self._lock:
            if version not in self._answers:
                self._ask_service(self._service, list(dict.fromkeys((version, *others))))
            return self._answers[version]

    def _ask_service(self, service: str, versions: list[PackageVersion]) -> None:
        public = {version: (canonicalize_name(version[0]), Version(version[1]).public) for version in versions}
        unknown: list[PackageVersion] = []
        for version in (version for version in versions if version not in self._answers):
            record = self._usable_record(_service_key(service, public[version]))
            if record is None and not self._access.offline:
                unknown.append(version)
            else:
                ids = record["ids"] if record else None
                self._answers[version] = None if ids is None else tuple(ids)
        self._answers |= dict.fromkeys(unknown)
        if not unknown or time.monotonic() < self._silent_until:
            return
        try:
            results = _query_service(self._access.transport, service, list(dict.fromkeys(public[v] for v in unknown)))
        except UnavailableError as error:
            logger.warning("the service for known vulnerabilities is not used: %s", error.message)
            self._silent_until = time.monotonic() + SILENT_SECONDS
            return
        for version in unknown:
            self._answers[version] = _checked(results[public[version]])
            self._entries.write(_service_key(service, public[version]), {"ids": list(self._answers[version] or ())})

    def _usable_record(self, key: str) -> dict[str, Any] | None:
        """Return a cached record; `None` if it is absent, or stale while a newer one can be requested."""
        record = self._entries.read(key)
        return record if record is not None and self._entries.is_usable(record) else None


def _ids(body: bytes) -> list[str] | None:
    """Return the identifiers in a record of vulnerabilities, without withdrawn vulnerabilities."""
    try:
        records = json.loads(body)["vulnerabilities"]
        identifiers = {str(record["id"]) for record in records if not record.get("withdrawn")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return list(_checked(identifiers))


def _checked(identifiers: Iterable[str]) -> tuple[str, ...]:
    """Return identifiers, sorted; invalid ones are replaced."""
    return tuple(sorted(name if _IDENTIFIER.fullmatch(name) else _UNREADABLE for name in identifiers))


def _service_key(service: str, version: PackageVersion) -> str:
    return f"{service} {version[0]} {version[1]}"


def _query_service(
    transport: Transport, address: str, versions: Sequence[PackageVersion]
) -> dict[PackageVersion, set[str]]:
    """Return the identifiers of the vulnerabilities of some versions, whose names become known to the service.

    Raises:
        UnavailableError: If the service does not answer, or not as the API says.
    """
    identifiers: dict[PackageVersion, set[str]] = {version: set() for version in versions}
    for start in range(0, len(versions), _MOST_QUERIES):
        pending: dict[PackageVersion, str] = dict.fromkeys(versions[start : start + _MOST_QUERIES], "")
        for _ in range(_MOST_PAGES):
            results = _results(transport, address, pending)
            following: dict[PackageVersion, str] = {}
            for version, result in zip(pending, results, strict=True):
                identifiers[version] |= {str(record["id"]) for record in result.get("vulns") or ()}
                if token := result.get("next_page_token"):
                    following[version] = str(token)
            pending = following
            if not pending:
                break
    return identifiers


def _results(transport: Transport, address: str, pending: Mapping[PackageVersion, str]) -> list[Mapping[str, Any]]:
    """Send one request, and return the result of each query."""
    queries = [
        {"package": {"ecosystem": ECOSYSTEM, "name": name}, "version": version}
        | ({"page_token": token} if token else {})
        for (name, version), token in pending.items()
    ]
    url = f"{address.rstrip('/')}/v1/querybatch"
    answer = transport.post(url, json.dumps({"queries": queries}).encode())
    try:
        results = json.loads(answer.body)["results"] if answer.status == 200 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        results = None
    if not isinstance(results, list) or len(results) != len(queries) or not all(_is_result(r) for r in results):
        raise AdvisoryServiceError(
            f"`{url}` does not answer like OSV", hint="set `--advisories` to the address of such a service, or to `off`"
        )
    return results


def _is_result(result: Any) -> bool:
    vulnerabilities = result.get("vulns") or () if isinstance(result, dict) else None
    return isinstance(vulnerabilities, (list, tuple)) and all(
        isinstance(v, dict) and "id" in v for v in vulnerabilities
    )
