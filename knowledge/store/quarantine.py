"""Quarantined observations: complete records in a table of their own, until a user accepts or drops them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, delete, insert, select

from knowledge.domain.documents import lines_of
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store.base import QuarantinedObservation
from knowledge.store.ingest import absent
from knowledge.store.tables import quarantine


def quarantine_observations(connection: Connection, entries: Iterable[QuarantinedObservation]) -> None:
    """Quarantine observations; entries of observations that are already quarantined stay unchanged."""
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
    if new := absent(connection, quarantine, rows):
        connection.execute(insert(quarantine), [row for identity, row in rows.items() if identity in new])


def read_quarantine(
    connection: Connection, identities: Iterable[str] | None = None
) -> Iterator[QuarantinedObservation]:
    """Yield quarantined observations, ordered by time and identity; all if no identities are given."""
    query = select(quarantine).order_by(quarantine.c.received_at, quarantine.c.id)
    if identities is not None:
        query = query.where(quarantine.c.id.in_(sorted(identities)))
    for row in connection.execute(query):
        for observation in read_observations(lines_of(row.document), where=f"quarantine {row.id[:12]}"):
            yield QuarantinedObservation(
                observation=observation, source=row.source, reason=row.reason, received_at=row.received_at
            )


def delete_from_quarantine(connection: Connection, identities: Iterable[str]) -> int:
    """Delete observations from the quarantine, and return the number of deleted entries."""
    return int(connection.execute(delete(quarantine).where(quarantine.c.id.in_(sorted(identities)))).rowcount)
