"""The contract of a knowledge base.

Ownership: a knowledge base owns its database connection. The caller that opens it closes it; it is a context manager.
It keeps no reference to its arguments, and callers own the values that it returns.

Threads and processes: use one knowledge base per thread and per process. Any number of them can open the same database.
Writers wait for each other; readers do not wait. Exception: on a SQLite file on a network file system, a reader and a
writer also wait for each other.

Transactions: ``add`` and ``remove`` are one transaction each. After the call returns, its changes survive a crash; if
it fails, it changes nothing. Each iterator reads one consistent state.

Identity: the identity of an observation is the hash of its content. Adding an observation that is already stored
changes nothing, and stored observations never change, so knowledge bases merge in any order to the same content. Only
``remove`` deletes, and it deletes whole blocks. Exception: when a newer program opens the knowledge base, observations
that only earlier shipped files brought are deleted; see :mod:`knowledge.store.shipped_files`.

Derived values: values that other modules compute from observations can be cached in the knowledge base, with the digest
of the observations that they were computed from. They can be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from knowledge.domain.errors import UnavailableError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.domain.stack import Stack


class KnowledgeBaseError(UnavailableError):
    """Raised when a knowledge base cannot be opened, read or written."""

    code = "knowledge-base"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """Number of new observations, and of those that were already stored."""

    added: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlock:
    """Summary of a stored block of observations.

    Attributes:
        name: Name of the block.
        observations: Number of observations.
        digest: Hash of the identities of its observations, in any order: equal if and only if the observations are.
        source: Name of the source that delivered it; empty for the user's own measurements.
        trust: Trust in the source, from 0 to 1.
    """

    name: str
    observations: int
    digest: str
    source: str = ""
    trust: float = 1.0

    @property
    def state(self) -> tuple[str, str] | tuple[str, str, float]:
        """Everything about the block that an estimate depends on."""
        return (self.name, self.digest) if self.trust == 1 else (self.name, self.digest, self.trust)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of observations.

    Attributes:
        name: Name of the source; empty for the user's own measurements.
        trust: Trust in the source, from 0 to 1.
        blocks: Number of blocks that it delivered.
        observations: Number of observations in these blocks.
        quarantined: Number of its observations that are quarantined.
    """

    name: str
    trust: float
    blocks: int
    observations: int
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedObservation:
    """A quarantined observation.

    Attributes:
        observation: The observation.
        source: Name of the source that delivered it.
        reason: Why it was quarantined.
        received_at: Time of the delivery, ISO 8601, UTC.
    """

    observation: Observation
    source: str
    reason: str
    received_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Summary of the content of a knowledge base.

    Attributes:
        address: Address of the database, without the password.
        revision: Revision of the tables.
        digest: Hash of the identities of all observations, in any order.
        observations: Number of observations by status.
        stacks: Number of distinct stacks.
        hardware: Number of distinct hardware profiles.
        blocks: Number of blocks.
        indicators: Number of observations by indicator and backend, sorted.
    """

    address: str
    revision: str
    digest: str
    observations: tuple[tuple[str, int], ...]
    stacks: int
    hardware: int
    blocks: int
    indicators: tuple[tuple[str, int], ...]


DIMENSIONS = ("hardware", "framework", "indicator", "label", "device", "block", "source")
"""Dimensions by which observations are counted; ``hardware`` is the identity of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Number of observations with equal values of some dimensions.

    Attributes:
        key: Values of the dimensions that were asked for, in their order.
        observations: Number of observations.
        succeeded: Number of those with the status ``ok``.
        failed: Number of those that prove that a stack does not run.
        first: Start time of the first observation, ISO 8601.
        newest: Start time of the newest observation, ISO 8601.
    """

    key: tuple[str, ...]
    observations: int
    succeeded: int
    failed: int
    first: str
    newest: str


class KnowledgeBase(Protocol):
    """Interface of a knowledge base."""

    def add(
        self,
        observations: Iterable[Observation],
        *,
        source: str = "",
        quarantine: Iterable[QuarantinedObservation] = (),
        own: Collection[str] = (),
    ) -> IngestResult:
        """Store observations in one transaction.

        Args:
            observations: Accepted observations.
            source: Name of the source. A block belongs to the source that delivered its first observation.
            quarantine: Observations to quarantine, in the same transaction.
            own: Identities of stored observations that the user added, too: they stay if the program no longer ships
                them. So do ``observations`` without a source.

        Raises:
            KnowledgeBaseError: If the database cannot be written; nothing was stored.
        """

    def known_identities(self, identities: Iterable[str]) -> frozenset[str]:
        """Return the identities that belong to a stored or quarantined observation."""

    def machines_of(self, block: str) -> frozenset[str]:
        """Return the identities of the machines on which a block was measured."""

    def quarantined(self) -> tuple[QuarantinedObservation, ...]:
        """Return the quarantined observations, oldest first."""

    def release(self, identities: Collection[str]) -> IngestResult:
        """Accept quarantined observations, in one transaction."""

    def drop(self, identities: Collection[str]) -> int:
        """Delete quarantined observations, in one transaction, and return their number."""

    def sources(self) -> tuple[Source, ...]:
        """Return all sources that delivered observations or have a trust, ordered by name."""

    def trust(self, name: str, trust: float) -> None:
        """Set the trust in a source, from 0 (its observations are ignored) to 1."""

    def observations(
        self,
        *,
        frameworks: Iterable[str] | None = None,
        block: str | None = None,
        indicator: str | None = None,
        rounds: Collection[int] | None = None,
        arms: Collection[int] | None = None,
        label: str | None = None,
    ) -> Iterator[Observation]:
        """Yield the observations to which all conditions apply, in order of block, round, arm and indicator.

        ``label`` is the label of the indicator run.
        """

    def find_observation(self, identity: str) -> Observation | None:
        """Return the observation with an identity, or with a unique prefix of at least 8 characters.

        The result is ``None`` if there is no such observation, or more than one.
        """

    def machine(self, identity: str) -> HardwareProfile | None:
        """Return the hardware profile of a machine with observations, or ``None`` if there is none."""

    def stack(self, identity: str) -> Stack | None:
        """Return a measured stack, or ``None`` if there is none with this identity."""

    def coverage(self, by: Sequence[str], **where: str) -> tuple[Coverage, ...]:
        """Count the observations by some of the ``DIMENSIONS``, sorted by key; fast for any number of observations.

        Args:
            by: The dimensions.
            where: Required values of dimensions.

        Raises:
            InputError: If a dimension is unknown.
        """

    def blocks(self, names: Collection[str] | None = None) -> tuple[StoredBlock, ...]:
        """Return summaries of all blocks or of those with some names, by name; fast for any number of observations."""

    def recent_blocks(self, since: str) -> frozenset[str]:
        """Return the names of blocks with an observation that the user or a source added and that began after a time.

        Times are compared as text, so that one without the form ``2026-01-01T00:00:00`` may be returned, too.
        """

    def remove(self, blocks: Collection[str]) -> int:
        """Delete whole blocks in one transaction, and return the number of deleted observations.

        Shipped files do not bring them back, unless the user adds observations of the block again.
        """

    def find_damage(self) -> Iterator[str]:
        """Check all records against their hashes, and yield one sentence for each damaged record."""

    def load_derived(self, kind: str, digests: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return cached derived values of a kind, such as ``evidence``, by key.

        Each key comes with the digest of the observations that its value must have been computed from; values that were
        computed from other observations are left out.
        """

    def store_derived(self, kind: str, values: Iterable[tuple[str, str, Any]]) -> None:
        """Cache derived values of a kind; do nothing if the database cannot be written.

        A value, which is JSON-serialisable, comes after its key and the digest of the observations that it was computed
        from.
        """

    def content(self) -> Content:
        """Return a summary of the content."""

    def close(self) -> None:
        """Close the database connection."""

    def __enter__(self) -> Self:
        """Return the knowledge base itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database connection."""
        self.close()
