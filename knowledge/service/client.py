"""The service's client: delivers and reads observations, and merges two knowledge bases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import requests
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.lines import lines_of
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store.base import KnowledgeBase, StoredBlock

_NDJSON = "application/x-ndjson"
_MIB = 2**20
_ANSWER_BYTES = 32 * _MIB
"""Longest answer that is no observation file, decompressed."""
_BLOCK_BYTES = 256 * _MIB
"""Longest observation file of one block, decompressed."""
_CHUNK_BYTES = 2**16
_MESSAGE_CHARACTERS = 300
"""How much of what a service says of a refusal is repeated."""
_HINT = "is it the address of a knowledge base's service?"
_PART_BYTES = 4_000_000
_SECONDS = 60
_WAITS = (0.5, 2.0, 8.0)
"""Seconds before each further try."""
_BUSY = (429, 502, 503, 504)


class ServiceUnavailableError(UnavailableError):
    """Raised when a service does not answer, or cannot do its work."""

    code = "service"


class TokenError(UnavailableError):
    """Raised when a service does not take the token."""

    code = "token"


class _BlockEntry(BaseModel):
    """A block, as a service lists it."""

    name: str
    observations: Annotated[int, Field(ge=0, lt=2**63)]
    digest: str
    source: str


class _QuarantineEntry(BaseModel):
    """An observation that a service keeps apart."""

    id: str
    reason: str


class _Receipt(BaseModel):
    """What a service says of a delivery."""

    added: Annotated[int, Field(ge=0, lt=2**63)]
    known: Annotated[int, Field(ge=0, lt=2**63)]
    quarantined: list[_QuarantineEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A status and a body."""

    status: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """What became of observations that were delivered.

    Attributes:
        added: How many were new.
        known: How many were there already.
        quarantined: How many are kept apart, by reason.
    """

    added: int
    known: int
    quarantined: tuple[tuple[str, str], ...]


class KnowledgeService:
    """A knowledge base behind an address."""

    def __init__(self, address: str, token: str, *, waits: tuple[float, ...] = _WAITS) -> None:
        """Remember where it is.

        Args:
            address: Such as ``https://knowledge.example.org``.
            token: Bearer token; empty sends none.
            waits: Seconds before each further try.

        Raises:
            InputError: If it is no address of a service.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"`{address}` is no address of a service", hint="write it as `https://HOST`")
        if parts.username or parts.password:
            raise InputError(
                f"the address of `{parts.hostname}` holds credentials, which would stand in logs",
                hint="set the token as `ADVISOR_TOKEN`",
            )
        self.address = address.rstrip("/")
        self.name = parts.hostname
        self._waits = waits
        self._session = requests.Session()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def blocks(self) -> tuple[StoredBlock, ...]:
        """Return the blocks that it has.

        Raises:
            InputError: If it answers with something else.
            UnavailableError: If it does not answer.
        """
        found = _validated(list[_BlockEntry], self._ask("GET", "/blocks"), self.address)
        return tuple(
            StoredBlock(name=b.name, observations=b.observations, digest=b.digest, source=b.source) for b in found
        )

    def observations(self, block: str) -> Iterator[Observation]:
        """Yield the observations of a block.

        Raises:
            InputError: If it answers with something else.
            UnavailableError: If it does not answer.
        """
        content = self._ask("GET", "/observations", most=_BLOCK_BYTES, params={"block": block})
        where = f"{self.address} block {block}"
        try:
            # By what it says of its characters, or by a guess, the library would read another text.
            lines = lines_of(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"`{where}` cannot be read: {error}") from None
        yield from read_observations(lines, where=where)

    def deliver(self, content: bytes) -> DeliveryResult:
        """Deliver an observation file; repeating it changes nothing.

        Raises:
            InputError: If it is refused, or the answer is something else than a receipt.
            UnavailableError: If the service does not answer.
        """
        return _receipt(
            self._ask("POST", "/observations", data=content, headers={"Content-Type": _NDJSON}), self.address
        )

    def check_delivery_allowed(self) -> None:
        """Check that the token may deliver, with an empty delivery, which changes nothing.

        Raises:
            TokenError: If the token is missing, invalid or may only read.
            UnavailableError: If the service does not answer.
        """
        self.deliver(b"")

    def _ask(self, method: str, path: str, *, most: int | None = None, **more: Any) -> bytes:
        headers = {**self._headers, **more.pop("headers", {})}
        for wait in (*self._waits, None):
            try:
                answer = self._read(method, path, _ANSWER_BYTES if most is None else most, headers=headers, **more)
                cause = f"it answers with {answer.status}"
            except requests.RequestException as error:
                answer, cause = None, _cause(error)
            if answer is not None and answer.status not in _BUSY:
                return self._checked(answer)
            if wait is not None:
                time.sleep(wait)
        raise ServiceUnavailableError(
            f"the knowledge base at `{self.address}` cannot be used: {cause}",
            hint="nothing is lost: the same command goes on where it stopped",
        )

    def _read(self, method: str, path: str, most: int, **more: Any) -> _Answer:
        """Return an answer of bounded length."""
        url = f"{self.address}{path}"
        with self._session.request(
            method, url, timeout=_SECONDS, allow_redirects=False, stream=True, **more
        ) as response:
            # Each further compression multiplies what one piece can grow to.
            if "," in response.headers.get("Content-Encoding", ""):
                raise InputError(f"the answer of `{url}` is compressed more than once", hint=_HINT)
            content = bytearray()
            for chunk in response.iter_content(_CHUNK_BYTES):
                content += chunk
                if len(content) > most:
                    raise InputError(f"the answer of `{url}` is longer than {most // _MIB} MiB", hint=_HINT)
            return _Answer(status=response.status_code, content=bytes(content))

    def _checked(self, answer: _Answer) -> bytes:
        if answer.status == 200:
            return answer.content
        try:
            problem = json.loads(answer.content)
            message, hint = str(problem["message"]), str(problem.get("hint", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            message, hint = f"it answers with {answer.status}", _HINT
        message, hint = message[:_MESSAGE_CHARACTERS], hint[:_MESSAGE_CHARACTERS]
        if answer.status in (401, 403):
            raise TokenError(
                f"the knowledge base at `{self.address}` refuses the request: {message}",
                hint=f"{hint}: set it as `ADVISOR_TOKEN`; the operator makes one with `advisor knowledge token create`",
            )
        raise InputError(f"the knowledge base at `{self.address}` refuses the request: {message}", hint=hint)


_T = TypeVar("_T")


def _validated(kind: type[_T], content: bytes, address: str) -> _T:
    """Return what an answer holds.

    Raises:
        InputError: If that is something else.
    """
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{f'`{where}`: ' if where else ''}{first['msg'].lower()}"[:_MESSAGE_CHARACTERS]
        raise InputError(f"`{address}` did not answer as a knowledge base's service: {reason}", hint=_HINT) from None


def _receipt(content: bytes, address: str) -> DeliveryResult:
    done = _validated(_Receipt, content, address)
    return DeliveryResult(
        added=done.added, known=done.known, quarantined=tuple((entry.id, entry.reason) for entry in done.quarantined)
    )


def push(store: KnowledgeBase, service: KnowledgeService, *, progress: Callable[[str], None]) -> DeliveryResult:
    """Deliver every block that a service does not have, or has with other observations.

    Observations that the service has already are not counted twice.

    Raises:
        TokenError: If the token may only read, even if there is nothing to deliver.
        UnavailableError: If the service does not answer.
    """
    service.check_delivery_allowed()
    there = {block.name: block.digest for block in service.blocks()}
    total = DeliveryResult(added=0, known=0, quarantined=())
    for block in store.blocks():
        if there.get(block.name) != block.digest:
            progress(block.name)
            for part in _parts(store.observations(block=block.name)):
                total = _sum(total, service.deliver(part))
    return total


def pull(
    service: KnowledgeService,
    store: KnowledgeBase,
    add: Callable[[Iterable[Observation]], DeliveryResult],
    *,
    progress: Callable[[str], None],
) -> DeliveryResult:
    """Fetch every block that a knowledge base has not, or has otherwise.

    Args:
        service: Where from.
        store: What is there already.
        add: Lets observations in.
        progress: Called with the name of each block.
    """
    here = {block.name: block.digest for block in store.blocks()}
    total = DeliveryResult(added=0, known=0, quarantined=())
    for block in service.blocks():
        if here.get(block.name) != block.digest:
            progress(block.name)
            total = _sum(total, add(service.observations(block.name)))
    return total


def _parts(observations: Iterable[Observation]) -> Iterator[bytes]:
    """Yield observation files of bounded size."""
    some: list[Observation] = []
    size = 0
    for o in observations:
        some.append(o)
        size += len(o.document)
        if size > _PART_BYTES:
            yield _file(some)
            some, size = [], 0
    if some:
        yield _file(some)


def _file(observations: Iterable[Observation]) -> bytes:
    return "".join(f"{line}\n" for line in write_observations(observations)).encode()


def _sum(a: DeliveryResult, b: DeliveryResult) -> DeliveryResult:
    return DeliveryResult(added=a.added + b.added, known=a.known + b.known, quarantined=a.quarantined + b.quarantined)


def _cause(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return f"it gives no answer in {_SECONDS} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not accepted: {error}"
    return "it cannot be reached: " + str(error).rpartition(": ")[2].strip("')\" ")
