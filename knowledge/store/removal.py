"""Deletion of observations, with what only they used. Each connection holds the write lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, insert, select, update

from knowledge.store import tables
from knowledge.store.state_hash import combine


def delete_observations(connection: Connection, condition: ColumnElement[bool]) -> frozenset[str]:
    """Delete the observations that satisfy a condition, and return their identities.

    Counts and digests of their blocks are corrected. Call :func:`delete_unused` afterwards.
    """
    table, block = tables.observation, tables.block
    removed: dict[str, list[str]] = defaultdict(list)
    for name, identity in connection.execute(select(table.c.block, table.c.id).where(condition)):
        removed[name].append(identity)
    connection.execute(delete(table).where(condition))
    affected = connection.execute(select(block).where(block.c.name.in_(sorted(removed)))).all()
    changed = [
        {
            "name": row.name,
            "observations": row.observations - len(removed[row.name]),
            "digest": combine(row.digest, removed[row.name], sign=-1),
        }
        for row in affected
    ]
    update_blocks(connection, changed)
    return frozenset(identity for identities in removed.values() for identity in identities)


def update_blocks(connection: Connection, blocks: Iterable[Mapping[str, Any]]) -> None:
    """Replace the counts and digests of blocks, each with its name, ``observations`` and ``digest``."""
    statement = update(tables.block).where(tables.block.c.name == bindparam("key"))
    statement = statement.values(observations=bindparam("observations"), digest=bindparam("digest"))
    if rows := [{**block, "key": block["name"]} for block in blocks]:
        connection.execute(statement, rows)


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
