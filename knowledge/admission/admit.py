"""Admission of observations from other sources: accepted, or quarantined with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from knowledge.admission.plausibility import IndicatorCatalogue, implausibilities
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.store.base import KnowledgeBase, QuarantinedObservation

_Key = tuple[int, int, str]
"""Round, arm and label of the indicator run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """Result of one delivery.

    Attributes:
        added: Number of new observations that were stored.
        known: Number of observations that were already stored or quarantined.
        omitted: Number of observations that were left out: only shipped files brought them to the sender.
        quarantined: Observations of this delivery that were quarantined, with the reasons.
    """

    added: int
    known: int
    omitted: int
    quarantined: tuple[QuarantinedObservation, ...]


class Admission:
    """Checks the observations of a source and adds them to a knowledge base; use one instance at a time.

    Observations whose form is wrong do not reach it: reading them fails (:mod:`knowledge.exchange.files`).
    """

    def __init__(
        self,
        store: KnowledgeBase,
        catalogue: IndicatorCatalogue,
        *,
        source: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Create the admission of one source.

        Args:
            store: The knowledge base.
            catalogue: The program's indicators.
            source: Name of the source; empty for the user's own measurements.
            clock: Returns the current time.
        """
        self._store = store
        self._catalogue = catalogue
        self._source = source
        self._clock = clock

    def add(self, observations: Iterable[Observation], *, shipped: Collection[str] = ()) -> AdmissionResult:
        """Store plausible observations and quarantine the others, in one transaction.

        Stored observations that the user adds, too, stay if the program no longer ships them; a delivery of another
        source does not change that. Observations that only shipped files brought to the sender are not stored: each
        program imports its own files.

        Args:
            observations: The delivered observations.
            shipped: Identities of those that are in the delivery only because the program ships them.

        Returns:
            How many observations are new, known, left out and quarantined.

        Raises:
            KnowledgeBaseError: If the knowledge base cannot be written; nothing was stored.
        """
        incoming = tuple(observations)
        stored = self._store.known_identities(o.identity for o in incoming)
        absent = [o for o in incoming if o.identity not in stored]
        new = [o for o in absent if o.identity not in shipped]
        now = self._clock()
        reasons = {**self._conflicts(new), **self._implausible(new, now)}
        quarantined = tuple(
            QuarantinedObservation(
                observation=o,
                source=self._source,
                reason=reasons[o.identity],
                received_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            for o in new
            if o.identity in reasons
        )
        accepted = [o for o in new if o.identity not in reasons]
        own = frozenset() if self._source else stored.difference(shipped)
        ingest = self._store.add(accepted, source=self._source, quarantine=quarantined, own=own)
        return AdmissionResult(
            added=ingest.added,
            known=len(incoming) - len(absent) + ingest.known,
            omitted=len(absent) - len(new),
            quarantined=quarantined,
        )

    def _implausible(self, new: Iterable[Observation], now: datetime) -> dict[str, str]:
        """Return why observations are implausible, by identity."""
        reasons = {}
        for o in new:
            if sentences := tuple(implausibilities(o, self._catalogue, now=now)):
                reasons[o.identity] = "; ".join(sentences)
        return reasons

    def _conflicts(self, new: Iterable[Observation]) -> dict[str, str]:
        """Return why observations contradict the stored or delivered rest of their block, by identity."""
        reasons: dict[str, str] = {}
        by_block: dict[str, list[Observation]] = defaultdict(list)
        for o in new:
            by_block[o.block].append(o)
        stored_blocks = {block.name: block for block in self._store.blocks(by_block)}
        for name, members in by_block.items():
            measured: dict[_Key, str] = {}
            machine = members[0].hardware.identity
            if name in stored_blocks:
                stored = self._store.observations(block=name, rounds={o.round for o in members})
                measured = {_key(o): o.identity for o in stored}
                machine = min(self._store.machines_of(name), default=machine)
            for o in members:
                if name in stored_blocks and stored_blocks[name].source != self._source:
                    owner = stored_blocks[name].source
                    text = f"source `{owner}`" if owner else "this knowledge base"
                    reasons[o.identity] = f"block `{name}` belongs to {text}: a block has only one source"
                elif o.indicator.name == PUBLISHED:
                    # The block is a repository: its rows have their own machines, and one round.
                    continue
                elif o.hardware.identity != machine:
                    reasons[o.identity] = f"block `{name}` was measured on another machine"
                elif measured.setdefault(_key(o), o.identity) != o.identity:
                    reasons[o.identity] = f"round {o.round} of arm {o.arm} in block `{name}` was measured already"
        return reasons


def _key(o: Observation) -> _Key:
    return o.round, o.arm, o.indicator.label
