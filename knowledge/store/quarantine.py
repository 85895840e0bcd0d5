"""Observations that were not let in: kept whole, apart from the others, until somebody decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, delete, insert, select

from knowledge.domain.lines import lines_of
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store.base import QuarantinedObservation
from knowledge.store.tables import quarantine


def quarantine_observations(connection: Connection, entries: Iterable[QuarantinedObservation]) -> None:
    """Keep observations apart; those that are apart already stay as they are."""
    rows = {
        entry.observation.identity: {
            "id": entry.observation.identity,
            "source": entry.source,
            "block": entry.observation.block,
            "reason": entry.reason,
            "received_at": entry.received_at,
            "document": "\n".join(write_observations([entry.observation])),
        }
        for entry in entries
    }
    known = quarantined_identities(connection, rows)
    if new := [row for identity, row in rows.items() if identity not in known]:
        connection.execute(insert(quarantine), new)


def quarantined_identities(connection: Connection, identities: Iterable[str]) -> frozenset[str]:
    """Return which observations are kept apart."""
    asked = sorted(identities)
    if not asked:
        return frozenset()
    return frozenset(connection.execute(select(quarantine.c.id).where(quarantine.c.id.in_(asked))).scalars())


def read_quarantine(
    connection: Connection, identities: Iterable[str] | None = None
) -> Iterator[QuarantinedObservation]:
    """Yield what is kept apart, by time and identity."""
    query = select(quarantine).order_by(quarantine.c.received_at, quarantine.c.id)
    if identities is not None:
        query = query.where(quarantine.c.id.in_(sorted(identities)))
    for row in connection.execute(query):
        for found in read_observations(lines_of(row.document), where=f"quarantine {row.id[:12]}"):
            yield QuarantinedObservation(
                observation=found, source=row.source, reason=row.reason, received_at=row.received_at
            )


def delete_from_quarantine(connection: Connection, identities: Iterable[str]) -> int:
    """Remove observations from those that are kept apart, and return how many there were."""
    return int(connection.execute(delete(quarantine).where(quarantine.c.id.in_(sorted(identities)))).rowcount)
