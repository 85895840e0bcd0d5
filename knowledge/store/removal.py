"""Deletion of observations, with what only they used, and counts of blocks. Each connection holds the write lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, insert, select, update

from knowledge.store import tables
from knowledge.store.coverage import recount
from knowledge.store.state_hash import EMPTY, combine


def delete_observations(connection: Connection, condition: ColumnElement[bool]) -> frozenset[str]:
    """Delete the observations that satisfy a condition, and return their identities.

    Counts, digests and coverage of their blocks are corrected. Call :func:`delete_unused` afterwards.
    """
    table = tables.observation
    removed: dict[str, list[str]] = defaultdict(list)
    for name, identity in connection.execute(select(table.c.block, table.c.id).where(condition)):
        removed[name].append(identity)
    connection.execute(delete(table).where(condition))
    change_blocks(connection, removed, sign=-1)
    recount(connection, removed)
    return frozenset(identity for identities in removed.values() for identity in identities)


def change_blocks(
    connection: Connection, identities: Mapping[str, Collection[str]], *, sign: int = 1, source: str = ""
) -> None:
    """Correct counts and digests after observations of blocks, by name, were added (1) or deleted (-1).

    A new block belongs to the source.
    """
    table = tables.block
    stored = {row.name: row for row in connection.execute(select(table).where(table.c.name.in_(sorted(identities))))}
    new, old = [], []
    for name, members in sorted(identities.items()):
        count, digest = (stored[name].observations, stored[name].digest) if name in stored else (0, EMPTY)
        row = {"observations": count + sign * len(members), "digest": combine(digest, members, sign=sign)}
        if name in stored:
            old.append({**row, "key": name})
        else:
            new.append({**row, "name": name, "source": source})
    if new:
        connection.execute(insert(table), new)
    if old:
        statement = update(table).where(table.c.name == bindparam("key"))
        values = statement.values(observations=bindparam("observations"), digest=bindparam("digest"))
        connection.execute(values, old)


def record_removal(connection: Connection, blocks: Iterable[str]) -> None:
    """Record the names of removed blocks, so that shipped files do not bring them back."""
    table = tables.removed_block
    if names := sorted(blocks):
        connection.execute(delete(table).where(table.c.name.in_(names)))
        connection.execute(insert(table), [{"name": name} for name in names])


def forget_removal(connection: Connection, blocks: Iterable[str] | Select[tuple[str]]) -> None:
    """Delete the record that blocks were removed: the user has added observations of them again."""
    table = tables.removed_block
    names = blocks if isinstance(blocks, Select) else sorted(blocks)
    connection.execute(delete(table).where(table.c.name.in_(names)))


def delete_unused(connection: Connection) -> None:
    """Delete the blocks, stacks and machines without observations, and the cached derived values."""
    blocks = select(tables.observation.c.block)
    connection.execute(delete(tables.block).where(tables.block.c.name.not_in(blocks)))
    stacks = select(tables.observation.c.stack_id)
    connection.execute(delete(tables.stack_package).where(tables.stack_package.c.stack_id.not_in(stacks)))
    connection.execute(delete(tables.stack).where(tables.stack.c.id.not_in(stacks)))
    machines = select(tables.observation.c.hardware_id)
    connection.execute(delete(tables.hardware).where(tables.hardware.c.id.not_in(machines)))
    connection.execute(delete(tables.derived))
