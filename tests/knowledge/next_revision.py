"""A program with one more revision of the tables than this one: the tables of version 0.1.0 are older there."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from knowledge.store import engine
from knowledge.store.tables import HEAD

FIXTURES = Path(__file__).parents[1] / "fixtures"
OLDER = FIXTURES / "databases" / "0101.sqlite.gz"
"""A knowledge base of version 0.1.0."""
NEWEST = FIXTURES / "databases" / f"{HEAD}.sqlite.gz"
"""A knowledge base whose tables this program uses as they are."""
NEXT = "0103"
"""The revision, which adds the table `note`."""
REVISIONS = f"{engine.REVISIONS} {FIXTURES / 'next_revision'}"


def install() -> None:
    """Make this process a program with the revision."""
    vars(engine).update(HEAD=NEXT, REVISIONS=REVISIONS)


@contextmanager
def installed() -> Iterator[None]:
    """Make this process a program with the revision within this context."""
    before = {name: getattr(engine, name) for name in ("HEAD", "REVISIONS")}
    install()
    try:
        yield
    finally:
        vars(engine).update(before)


def older_knowledge(path: Path, file: Path = OLDER) -> Path:
    """Write a knowledge base whose tables are older than the revision."""
    path.write_bytes(gzip.decompress(file.read_bytes()))
    return path
