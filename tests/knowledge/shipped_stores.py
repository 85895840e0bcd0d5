"""Knowledge bases with few shipped files, and what they contain."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from advisor.api.stores import AdmittingSink
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations, write_observations
from knowledge.store import tables
from knowledge.store.shipped_files import ShippedFile, shipped_files
from knowledge.store.sql import SqlKnowledgeBase
from tests.knowledge.samples import observation

SMALL_FILES = ("numpy", "input", "settings-torch", "mlperf-training-v0.5", "lambda-hosts")


def small_files() -> tuple[ShippedFile, ...]:
    """Return a tenth of the shipped observations: of operations, whole models, settings, MLPerf and a table."""
    files = tuple(file for file in shipped_files() if any(name in file.name for name in SMALL_FILES))
    assert len(files) > len(SMALL_FILES)
    return files


def content_of(file: ShippedFile) -> list[Observation]:
    """Read and check the observations of a shipped file, as for an import."""
    return list(read_observations(file.lines(), where=file.name))


def rows(store: SqlKnowledgeBase) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables with observations, as they are stored, but not what brought an observation."""
    stored = (tables.hardware, tables.stack, tables.stack_package, tables.observation, tables.block, tables.coverage)
    columns = {table.name: [column for column in table.columns if column.name != "shipped"] for table in stored}
    with store._engine.connect() as connection:
        return {
            name: sorted(map(tuple, connection.execute(sa.select(*some))), key=repr) for name, some in columns.items()
        }


def shipped(name: str, observations: Iterable[Observation]) -> ShippedFile:
    """Return observations as a shipped file."""
    content = "".join(f"{line}\n" for line in write_observations(observations)).encode()
    content = gzip.compress(content) if name.endswith(".gz") else content
    return ShippedFile(name=name, sha256=hashlib.sha256(content).hexdigest(), content=content)


def rounds(block: str, *numbers: int) -> list[Observation]:
    """Return an observation of each round."""
    return [observation(block=block, round=number) for number in numbers]


def sets_of_files() -> tuple[tuple[ShippedFile, ...], ...]:
    """Return what the versions 1, 2 and 3 of a program ship: 2 corrects a file, and 3 ships the first one again."""
    first = shipped("first.jsonl", [*rounds("b1", 0, 1, 2), *rounds("b2", 0, 1)])
    corrected = shipped("first.jsonl", [*rounds("b1", 1, 2, 3), *rounds("b2", 0)])
    other = shipped("other.jsonl", rounds("b3", 0, 1))
    further = shipped("further.jsonl", [*rounds("b1", 3), *rounds("b4", 0)])
    return (first, other), (corrected, other), (first, further)


def identities(observations: Iterable[Observation]) -> set[str]:
    """Return the identities of observations."""
    return {o.identity for o in observations}


def in_files(files: Iterable[ShippedFile]) -> set[str]:
    """Return the identities of the observations of files."""
    return identities(o for file in files for o in content_of(file))


def open_with(store: SqlKnowledgeBase, version: int) -> None:
    """Use a knowledge base with a version of the program, as opening it does."""
    store.add_shipped(sets_of_files()[version - 1], version=version)


def import_as_user(store: SqlKnowledgeBase, observations: Iterable[Observation], source: str = "") -> None:
    """Import observations as the command line does."""
    assert AdmittingSink(store, source=source).add(observations).quarantined == ()


def removed_blocks(store: SqlKnowledgeBase) -> set[str]:
    """Return the names of the blocks that the user removed."""
    with store._engine.connect() as connection:
        return set(connection.execute(sa.select(tables.removed_block.c.name)).scalars())
