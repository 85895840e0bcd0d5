"""Client of the service: delivers and reads observations, and merges two knowledge bases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests

from knowledge.domain.documents import lines_of
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import BENCHMARK, Observation
from knowledge.exchange.admission import AdmissionResult
from knowledge.exchange.files import observation_file, read_observations
from knowledge.records import RecordError, value_from
from knowledge.service.messages import BlockEntry, DeliveryReceipt
from knowledge.store.base import KnowledgeBase, StoredBlock

_NDJSON = "application/x-ndjson"
_MIB = 2**20
_RESPONSE_BYTES = 32 * _MIB
"""Largest response that is not an observation file, decompressed."""
_BLOCK_BYTES = 256 * _MIB
"""Largest observation file of one block, decompressed."""
_CHUNK_BYTES = 2**16
_MESSAGE_CHARACTERS = 300
"""Longest message of a service that is repeated in an error."""
_HINT = "check that it is the address of a knowledge base's service"
_PART_BYTES = 4_000_000
_SECONDS = 60
_WAITS = (0.5, 2.0, 8.0)
"""Seconds before each retry."""
_BUSY = (429, 502, 503, 504)


class ServiceUnavailableError(UnavailableError):
    """Raised when a service does not answer or reports that it is unavailable."""

    code = "service"


class TokenError(UnavailableError):
    """Raised when a service refuses the token."""

    code = "token"


class KnowledgeService:
    """A knowledge base that is reached over HTTP."""

    def __init__(self, address: str, token: str, *, waits: tuple[float, ...] = _WAITS) -> None:
        """Create a client.

        Args:
            address: Address of the service, such as ``https://knowledge.example.org``.
            token: Bearer token; no token is sent if empty.
            waits: Seconds before each retry.

        Raises:
            InputError: If the address is not valid.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"`{address}` is not the address of a service", hint="write it as `https://HOST`")
        if parts.username or parts.password:
            raise InputError(
                f"the address of `{parts.hostname}` contains credentials, which would appear in logs",
                hint="set the token as `ADVISOR_TOKEN`",
            )
        self.address = address.rstrip("/")
        self.name = parts.hostname
        self._waits = waits
        self._session = requests.Session()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def blocks(self) -> tuple[StoredBlock, ...]:
        """Return the blocks of the service.

        Raises:
            InputError: If the response is not valid.
            UnavailableError: If the service does not answer.
        """
        entries = validated(list[BlockEntry], self._request("GET", "/blocks"), self.address)
        return tuple(StoredBlock(**entry.model_dump()) for entry in entries)

    def observations(self, block: str) -> Iterator[Observation]:
        """Yield the observations of a block.

        Raises:
            InputError: If the response is not valid.
            UnavailableError: If the service does not answer.
        """
        content = self._request("GET", "/observations", most_bytes=_BLOCK_BYTES, params={"block": block})
        where = f"{self.address} block {block}"
        try:
            # Always UTF-8: requests would use the charset of the header, or guess one.
            lines = lines_of(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"`{where}` cannot be read: {error}") from None
        yield from read_observations(lines, where=where)

    def deliver(self, content: bytes) -> DeliveryReceipt:
        """Deliver an observation file; repeating it changes nothing.

        Raises:
            InputError: If the delivery is refused, or the response is not valid.
            UnavailableError: If the service does not answer.
        """
        response = self._request("POST", "/observations", data=content, headers={"Content-Type": _NDJSON})
        return validated(DeliveryReceipt, response, self.address)

    def _request(self, method: str, path: str, *, most_bytes: int | None = None, **more: Any) -> bytes:
        """Return the body of a response; retry while the service is busy or unreachable."""
        headers = {**self._headers, **more.pop("headers", {})}
        for wait in (*self._waits, None):
            try:
                status, content = self._read(method, path, most_bytes or _RESPONSE_BYTES, headers=headers, **more)
                if status not in _BUSY:
                    return self._checked(status, content)
                cause = f"it answers with status {status}"
            except requests.RequestException as error:
                cause = _cause(error)
            if wait is not None:
                time.sleep(wait)
        raise ServiceUnavailableError(
            f"the knowledge base at `{self.address}` cannot be used: {cause}",
            hint="run the same command again to continue: observations that were already stored are skipped",
        )

    def _read(self, method: str, path: str, most_bytes: int, **more: Any) -> tuple[int, bytes]:
        """Return the status of a response, and its body of limited size."""
        url = f"{self.address}{path}"
        with self._session.request(
            method, url, timeout=_SECONDS, allow_redirects=False, stream=True, **more
        ) as response:
            # Each further layer of compression multiplies the size that a chunk can decompress to.
            if "," in response.headers.get("Content-Encoding", ""):
                raise InputError(f"the response of `{url}` is compressed more than once", hint=_HINT)
            content = bytearray()
            for chunk in response.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > most_bytes:
                    raise InputError(f"the response of `{url}` is larger than {most_bytes // _MIB} MiB", hint=_HINT)
            return response.status_code, bytes(content)

    def _checked(self, status: int, content: bytes) -> bytes:
        if status == 200:
            return content
        try:
            problem = json.loads(content)
            message, hint = str(problem["message"]), str(problem.get("hint", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            message, hint = f"it answers with status {status}", _HINT
        message, hint = message[:_MESSAGE_CHARACTERS], hint[:_MESSAGE_CHARACTERS]
        if status in (401, 403):
            raise TokenError(
                f"the knowledge base at `{self.address}` refuses the request: {message}",
                hint=f"{hint}: set it as `ADVISOR_TOKEN` (created with `advisor knowledge token create`)",
            )
        raise InputError(f"the knowledge base at `{self.address}` refuses the request: {message}", hint=hint)


_T = TypeVar("_T")


def validated(kind: type[_T], content: bytes, address: str) -> _T:
    """Parse a response.

    Raises:
        InputError: If it is not a valid response of the service.
    """
    try:
        return value_from(kind, content)
    except RecordError as error:
        reason = f"{f'`{error.place}`: ' if error.place else ''}{error.reason}"[:_MESSAGE_CHARACTERS]
        raise InputError(f"`{address}` did not answer as a knowledge base's service: {reason}", hint=_HINT) from None


def push(store: KnowledgeBase, service: KnowledgeService, *, progress: Callable[[str], None]) -> DeliveryReceipt:
    """Deliver every block that a service does not have, or has with other observations.

    Observations that the service has already are not counted twice. Blocks of benchmarks are not delivered: they are
    about one project, and contain its name and what its program printed.

    Raises:
        TokenError: If the token may only read, even if there is nothing to deliver.
        UnavailableError: If the service does not answer.
    """
    # An empty delivery changes nothing, and fails if the token may only read.
    service.deliver(b"")
    remote = {block.name: block.digest for block in service.blocks()}
    total = DeliveryReceipt(added=0, known=0, quarantined=[])
    private = {o.block for o in store.observations(indicator=BENCHMARK)}
    for block in store.blocks():
        if block.name in private:
            progress(f"{block.name}: not delivered: benchmarks of projects are private")
        elif remote.get(block.name) != block.digest:
            progress(block.name)
            for part in _parts(store.observations(block=block.name)):
                total += service.deliver(part)
    return total


def pull(
    service: KnowledgeService,
    store: KnowledgeBase,
    add: Callable[[Iterable[Observation]], AdmissionResult],
    *,
    progress: Callable[[str], None],
) -> DeliveryReceipt:
    """Fetch every block that a knowledge base does not have, or has with other observations, and ``add`` it there.

    ``progress`` is called with the name of each block.
    """
    local = {block.name: block.digest for block in store.blocks()}
    total = DeliveryReceipt(added=0, known=0, quarantined=[])
    for block in service.blocks():
        if local.get(block.name) != block.digest:
            progress(block.name)
            total += DeliveryReceipt.of(add(service.observations(block.name)))
    return total


def _parts(observations: Iterable[Observation]) -> Iterator[bytes]:
    """Yield observation files of limited size."""
    part: list[Observation] = []
    size = 0
    for o in observations:
        part.append(o)
        size += len(o.document)
        if size > _PART_BYTES:
            yield observation_file(part)
            part, size = [], 0
    if part:
        yield observation_file(part)


def _cause(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return f"it did not answer within {_SECONDS} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate was refused: {error}"
    return "it cannot be reached: " + str(error).rpartition(": ")[2].strip("')\" ")
