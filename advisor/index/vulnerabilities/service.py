"""Known vulnerabilities from a service with the API of OSV.

Source: https://google.github.io/osv.dev/post-v1-querybatch/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.index.http.transport import Transport
from advisor.index.vulnerabilities.database import ECOSYSTEM
from knowledge.domain.errors import UnavailableError

DEFAULT_SERVICE = "https://api.osv.dev"
_MOST_QUERIES = 500
"""Queries of one request."""
_MOST_PAGES = 20
"""Pages of answers to one request."""

PackageVersion = tuple[str, str]
"""Normalised name and public version."""


class AdvisoryServiceError(UnavailableError):
    """Raised when the service does not answer, or not as the API says."""

    code = "advisory-service"


def query_service(
    transport: Transport, address: str, versions: Sequence[PackageVersion]
) -> dict[PackageVersion, tuple[str, ...]]:
    """Return the identifiers of the vulnerabilities of some versions, whose names become known to the service.

    Raises:
        UnavailableError: If the service does not answer, or not as the API says.
    """
    identifiers: dict[PackageVersion, set[str]] = {version: set() for version in versions}
    for part in _parts(versions):
        pending: dict[PackageVersion, str] = dict.fromkeys(part, "")
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
    return {version: tuple(sorted(names)) for version, names in identifiers.items()}


def _results(transport: Transport, address: str, pending: Mapping[PackageVersion, str]) -> list[Mapping[str, Any]]:
    """Send one request, and return the result of each query."""
    queries = [
        {
            "package": {"ecosystem": ECOSYSTEM, "name": name},
            "version": version,
            **({"page_token": token} if token else {}),
        }
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


def _parts(versions: Sequence[PackageVersion]) -> Iterator[Sequence[PackageVersion]]:
    for start in range(0, len(versions), _MOST_QUERIES):
        yield versions[start : start + _MOST_QUERIES]
