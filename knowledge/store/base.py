"""The contract of a knowledge base.

Ownership: a knowledge base owns its connection; whoever opened it closes it, and it is a context manager.
Threads: one knowledge base serves one thread; open another one for another thread or process.
Transactions: ``add`` is one transaction; after it returned, what it was given survives a crash. What a failing ``add``
was given is not in the store, none of it.
Identity: an observation is known by the content hash of what it says. Adding a known one changes nothing. Nothing is
ever changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from knowledge.domain.errors import UnavailableError
from knowledge.domain.observation import Observation


class KnowledgeBaseError(UnavailableError):
    """Raised when a knowledge base cannot be opened, read or written."""

    code = "knowledge-base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """What became of the observations of one ``add``.

    Attributes:
        added: How many were new.
        known: How many were there already.
    """

    added: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a knowledge base holds, counted.

    Attributes:
        address: Where it is, without a password.
        revision: Revision of its tables.
        observations: By status.
        stacks: Distinct stacks.
        hardware: Distinct hardware profiles.
        blocks: Distinct blocks.
        indicators: Observations by indicator and backend, sorted.
    """

    address: str
    revision: str
    observations: tuple[tuple[str, int], ...]
    stacks: int
    hardware: int
    blocks: int
    indicators: tuple[tuple[str, int], ...]


class KnowledgeBase(Protocol):
    """What every knowledge base does."""

    def add(self, observations: Iterable[Observation]) -> Ingest:
        """Store observations in one transaction."""

    def observations(
        self, *, frameworks: Iterable[str] | None = None, block: str | None = None
    ) -> Iterator[Observation]:
        """Yield observations in order of block, round, slot and indicator.

        Args:
            frameworks: Only those measured through one of these distributions.
            block: Only those of one block.
        """

    def content(self) -> Content:
        """Count what is there."""

    def close(self) -> None:
        """Give the connection back."""

    def __enter__(self) -> Self:
        """Return the knowledge base itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
