"""The contract of a knowledge base.

Ownership: a knowledge base owns its connection; whoever opened it closes it, and it is a context manager. It holds no
reference to what it was given, and what it yields is the caller's.

Threads and processes: one knowledge base serves one thread; open another one for another thread or process. Any number
of them may have the same database open. Writers wait for each other, readers for nobody. One case is weaker: a SQLite
file on a network file system, where a reader and a writer also wait for each other.

Transactions: ``add`` and ``remove`` are one transaction each. After one returned, what it did survives a crash; what a
failing one was to do is not in the store, none of it. Iterators read one consistent state each.

Identity: an observation is known by the content hash of what it says. Adding a known one changes nothing, and what is
there never changes; so knowledge bases merge in any order to the same content. Only ``remove`` takes anything away, and
whole blocks only.

Derived values: what others work out of the observations of a state, they may leave here, named by the digest of what
they saw. A derived value is never truth: it may vanish at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from knowledge.domain.errors import UnavailableError
from knowledge.domain.observation import Observation


class KnowledgeBaseError(UnavailableError):
    """Raised when a knowledge base cannot be opened, read or written."""

    code = "knowledge-base"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What became of the observations of one ``add``.

    Attributes:
        added: How many were new.
        known: How many were there already.
    """

    added: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlock:
    """A block of observations, counted.

    Attributes:
        name: Its name.
        observations: How many it has.
        digest: Hash of their identities, whatever their order: equal exactly when the observations are.
        source: Who delivered it; empty where it is the user's own.
        trust: How much its source is trusted, from 0 to 1.
    """

    name: str
    observations: int
    digest: str
    source: str = ""
    trust: float = 1.0

    @property
    def state(self) -> tuple[str, str] | tuple[str, str, float]:
        """What an estimate depends on: another one may say something else."""
        return (self.name, self.digest) if self.trust == 1 else (self.name, self.digest, self.trust)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who delivers observations.

    Attributes:
        name: Its name; empty for the user's own measurements.
        trust: How much it is trusted, from 0 to 1.
        blocks: How many blocks it delivered.
        observations: How many observations those have.
        quarantined: How many observations of it are kept apart.
    """

    name: str
    trust: float
    blocks: int
    observations: int
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedObservation:
    """An observation that is kept apart.

    Attributes:
        observation: The observation.
        source: Who delivered it.
        reason: What speaks against it.
        received_at: When, ISO 8601, UTC.
    """

    observation: Observation
    source: str
    reason: str
    received_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a knowledge base holds, counted.

    Attributes:
        address: Where it is, without a password.
        revision: Revision of its tables.
        digest: Hash of all identities, whatever their order.
        observations: By status.
        stacks: Distinct stacks.
        hardware: Distinct hardware profiles.
        blocks: Distinct blocks.
        indicators: Observations by indicator and backend, sorted.
    """

    address: str
    revision: str
    digest: str
    observations: tuple[tuple[str, int], ...]
    stacks: int
    hardware: int
    blocks: int
    indicators: tuple[tuple[str, int], ...]


class KnowledgeBase(Protocol):
    """What every knowledge base does."""

    def add(
        self,
        observations: Iterable[Observation],
        *,
        source: str = "",
        quarantine: Iterable[QuarantinedObservation] = (),
    ) -> IngestResult:
        """Store observations in one transaction.

        Args:
            observations: What is let in.
            source: Who delivers them; a block belongs to whoever delivered its first observation.
            quarantine: What is kept apart, in the same transaction.

        Raises:
            KnowledgeBaseError: If it cannot be written; then nothing was stored.
        """

    def identities(self, asked: Iterable[str]) -> frozenset[str]:
        """Return which identities are known, let in or kept apart."""

    def machines_of(self, block: str) -> frozenset[str]:
        """Return the identities of the machines on which a block was measured."""

    def quarantined(self) -> tuple[QuarantinedObservation, ...]:
        """Return what is kept apart, oldest first."""

    def release(self, identities: Collection[str]) -> IngestResult:
        """Let in what is kept apart, in one transaction."""

    def drop(self, identities: Collection[str]) -> int:
        """Remove what is kept apart, in one transaction, and return how many observations went."""

    def sources(self) -> tuple[Source, ...]:
        """Return who delivered something, or is known by its trust, by name."""

    def trust(self, name: str, trust: float) -> None:
        """Set how much a source is trusted: from 0, what it says is not looked at, to 1."""

    def observations(
        self,
        *,
        frameworks: Iterable[str] | None = None,
        block: str | None = None,
        indicator: str | None = None,
        rounds: Collection[int] | None = None,
    ) -> Iterator[Observation]:
        """Yield observations in order of block, round, arm and indicator.

        Args:
            frameworks: Only those measured through one of these distributions.
            block: Only those of one block.
            indicator: Only those of indicators of this name.
            rounds: Only those of these rounds.
        """

    def blocks(self, names: Collection[str] | None = None) -> tuple[StoredBlock, ...]:
        """Return what blocks there are, by name; quick, however many observations there are.

        Args:
            names: Only these.
        """

    def remove(self, blocks: Collection[str]) -> int:
        """Remove whole blocks in one transaction, and return how many observations went."""

    def find_damage(self) -> Iterator[str]:
        """Read everything, and tell one by one what is not as it was stored; nothing where all is well."""

    def load_derived(self, kind: str, seen: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the derived values of a kind by key, of those keys that were worked out of the state that is asked.

        Args:
            kind: What it is, such as ``evidence``.
            seen: Key and digest of what the value must have been worked out of.
        """

    def store_derived(self, kind: str, values: Iterable[tuple[str, str, Any]]) -> None:
        """Leave derived values, JSON-ready, by key and digest of what they saw; nothing where it cannot be written."""

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
