"""Lets observations in, or keeps them apart with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from knowledge.admission.plausibility import IndicatorCatalogue, implausibilities
from knowledge.domain.observation import Observation
from knowledge.store.base import KnowledgeBase, QuarantinedObservation

_Key = tuple[int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResult:
    """What became of the observations of one delivery.

    Attributes:
        added: How many were new, and are in the knowledge base.
        known: How many were there already, or apart already.
        quarantined: Those that are kept apart, with the reason.
    """

    added: int
    known: int
    quarantined: tuple[QuarantinedObservation, ...]


class Admission:
    """The one way by which observations of others come into a knowledge base; one at a time adds.

    An observation whose form is wrong never comes here: reading refuses it (:mod:`knowledge.exchange.files`).
    """

    def __init__(
        self,
        store: KnowledgeBase,
        catalogue: IndicatorCatalogue,
        *,
        source: str = "",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Remember who delivers.

        Args:
            store: The knowledge base.
            catalogue: The program's indicators.
            source: Name of who delivers; empty for the user's own measurements.
            clock: Tells the time.
        """
        self._store = store
        self._catalogue = catalogue
        self._source = source
        self._clock = clock

    def add(self, observations: Iterable[Observation]) -> AdmissionResult:
        """Store what is plausible, keep the rest apart; both or neither.

        Raises:
            KnowledgeBaseError: If the knowledge base cannot be written; then nothing was stored.
        """
        incoming = tuple(observations)
        held = self._store.identities(o.identity for o in incoming)
        fresh = [o for o in incoming if o.identity not in held]
        now = self._clock()
        reasons = {**self._clashes(fresh), **self._oddities(fresh, now)}
        apart = tuple(
            QuarantinedObservation(
                observation=o,
                source=self._source,
                reason=reasons[o.identity],
                received_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            for o in fresh
            if o.identity in reasons
        )
        sound = [o for o in fresh if o.identity not in reasons]
        ingest = self._store.add(sound, source=self._source, quarantine=apart)
        return AdmissionResult(
            added=ingest.added,
            known=len(incoming) - len(fresh) + ingest.known,
            quarantined=apart,
        )

    def _oddities(self, fresh: Iterable[Observation], now: datetime) -> dict[str, str]:
        found = {}
        for o in fresh:
            if against := tuple(implausibilities(o, self._catalogue, now=now)):
                found[o.identity] = "; ".join(against)
        return found

    def _clashes(self, fresh: Iterable[Observation]) -> dict[str, str]:
        """Return what does not go with what is known of its block."""
        found: dict[str, str] = {}
        by_block: dict[str, list[Observation]] = defaultdict(list)
        for o in fresh:
            by_block[o.block].append(o)
        known = {block.name: block for block in self._store.blocks(by_block)}
        for name, members in by_block.items():
            measured: dict[_Key, str] = {}
            machine = members[0].hardware.identity
            if name in known:
                held = tuple(self._store.observations(block=name, rounds={o.round for o in members}))
                measured = {_key(o): o.identity for o in held}
                machine = min(self._store.machines_of(name), default=machine)
            for o in members:
                if name in known and known[name].source != self._source:
                    whose = f"`{known[name].source}`" if known[name].source else "this knowledge base's own"
                    found[o.identity] = f"block `{name}` is {whose}: one source measures a block"
                elif o.hardware.identity != machine:
                    found[o.identity] = f"block `{name}` was taken on another machine"
                elif measured.setdefault(_key(o), o.identity) != o.identity:
                    found[o.identity] = f"round {o.round} of arm {o.arm} in block `{name}` was measured already"
        return found


def _key(o: Observation) -> _Key:
    return o.round, o.arm, o.indicator.label
