"""The service's client: delivers and reads observations, and merges two knowledge bases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.lines import lines_of
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store.base import Block, KnowledgeBase

_NDJSON = "application/x-ndjson"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
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

    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks that it has."""
        found = self._ask("GET", "/blocks").json()
        return tuple(
            Block(name=b["name"], observations=b["observations"], digest=b["digest"], source=b["source"]) for b in found
        )

    def observations(self, block: str) -> Iterator[Observation]:
        """Yield the observations of a block."""
        answer = self._ask("GET", "/observations", params={"block": block})
        where = f"{self.address} block {block}"
        try:
            # By what it says of its characters, or by a guess, the library would read another text.
            lines = lines_of(answer.content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"`{where}` cannot be read: {error}") from None
        yield from read_observations(lines, where=where)

    def deliver(self, content: bytes) -> Delivered:
        """Deliver an observation file; repeating it changes nothing."""
        done = self._ask("POST", "/observations", data=content, headers={"Content-Type": _NDJSON}).json()
        apart = tuple((entry["id"], entry["reason"]) for entry in done["quarantined"])
        return Delivered(added=done["added"], known=done["known"], quarantined=apart)

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {**self._headers, **more.pop("headers", {})}
        for wait in (*self._waits, None):
            try:
                answer = self._session.request(
                    method, f"{self.address}{path}", headers=headers, timeout=_SECONDS, allow_redirects=False, **more
                )
                cause = f"it answers with {answer.status_code}"
            except requests.RequestException as error:
                answer, cause = None, _cause(error)
            if answer is not None and answer.status_code not in _BUSY:
                return self._checked(answer)
            if wait is not None:
                time.sleep(wait)
        raise ServiceUnavailableError(
            f"the knowledge base at `{self.address}` cannot be used: {cause}",
            hint="nothing is lost: the same command goes on where it stopped",
        )

    def _checked(self, answer: requests.Response) -> requests.Response:
        if answer.status_code == 200:
            return answer
        try:
            problem = answer.json()
            message, hint = str(problem["message"]), str(problem.get("hint", ""))
        except (ValueError, KeyError, TypeError):
            message, hint = f"it answers with {answer.status_code}", "is it the address of a knowledge base's service?"
        if answer.status_code in (401, 403):
            raise TokenError(
                f"the knowledge base at `{self.address}` refuses the request: {message}",
                hint=f"{hint}: set it as `ADVISOR_TOKEN`; the operator makes one with `advisor knowledge token create`",
            )
        raise InputError(f"the knowledge base at `{self.address}` refuses the request: {message}", hint=hint)


def push(store: KnowledgeBase, service: KnowledgeService, *, progress: Callable[[str], None]) -> Delivered:
    """Deliver every block that a service has not, or has otherwise; what it has of one is not counted twice."""
    there = {block.name: block.digest for block in service.blocks()}
    total = Delivered(added=0, known=0, quarantined=())
    for block in store.blocks():
        if there.get(block.name) != block.digest:
            progress(block.name)
            for part in _parts(store.observations(block=block.name)):
                total = _sum(total, service.deliver(part))
    return total


def pull(
    service: KnowledgeService,
    store: KnowledgeBase,
    add: Callable[[Iterable[Observation]], Delivered],
    *,
    progress: Callable[[str], None],
) -> Delivered:
    """Fetch every block that a knowledge base has not, or has otherwise.

    Args:
        service: Where from.
        store: What is there already.
        add: Lets observations in.
        progress: Called with the name of each block.
    """
    here = {block.name: block.digest for block in store.blocks()}
    total = Delivered(added=0, known=0, quarantined=())
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


def _sum(a: Delivered, b: Delivered) -> Delivered:
    return Delivered(added=a.added + b.added, known=a.known + b.known, quarantined=a.quarantined + b.quarantined)


def _cause(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return f"it gives no answer in {_SECONDS} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return f"its certificate is not accepted: {error}"
    return "it cannot be reached: " + str(error).rpartition(": ")[2].strip("')\" ")
