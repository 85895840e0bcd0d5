"""Imports of observations that ship, or shipped with another version: which of them count as the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.api.stores import AdmittingSink
from knowledge.store import tables
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.conftest import Advisor
from tests.knowledge.shipped_stores import (
    identities,
    import_as_user,
    in_files,
    open_with,
    removed_blocks,
    rounds,
    sets_of_files,
)


def test_what_the_user_imports_stays_when_it_does_not_ship_any_more(store: SqlKnowledgeBase) -> None:
    open_with(store, 1)

    import_as_user(store, rounds("b1", 0, 1))
    open_with(store, 2)

    assert identities(store.observations(block="b1")) == identities(rounds("b1", 0, 1, 2, 3))


def test_a_delivery_of_another_source_does_not_keep_a_record_that_does_not_ship_any_more(
    store: SqlKnowledgeBase,
) -> None:
    open_with(store, 1)

    import_as_user(store, rounds("b1", 0, 1, 2), source="service")
    store.add(rounds("b1", 0, 1, 2), source="service")
    open_with(store, 2)

    assert identities(store.observations()) == in_files(sets_of_files()[1])


@pytest.mark.parametrize("own", [(), (0,)])
def test_of_another_knowledge_base_only_the_users_records_stay(
    own: tuple[int, ...], advisor_here: Advisor, tmp_path: Path
) -> None:
    other, here = str(tmp_path / "other.sqlite"), str(tmp_path / "here.sqlite")
    for path in (other, here):
        with open_knowledge_base(path, shipped=False) as store:
            open_with(store, 1)
            # Later than that of the program: its own files are not imported.
            set_version(store, 1_000_000)
            if path == other:
                store.add(rounds("b1", *own))

    result = advisor_here("knowledge", "import", other, "--knowledge", here)

    assert "0 added, 7 already stored" in result.stdout
    with open_knowledge_base(here, shipped=False) as store:
        set_version(store, 1)
        open_with(store, 2)
        assert identities(store.observations()) == in_files(sets_of_files()[1]) | identities(rounds("b1", *own))


@pytest.mark.parametrize("source", ["", "colleague"])
def test_records_that_only_other_versions_ship_are_not_imported(source: str, tmp_path: Path) -> None:
    here, other = str(tmp_path / "here.sqlite"), str(tmp_path / "other.sqlite")
    with open_knowledge_base(here, shipped=False) as store, open_knowledge_base(other, shipped=False) as colleague:
        open_with(store, 2)
        open_with(colleague, 1)
        colleague.add(rounds("b9", 0))
        sink = AdmittingSink(store, source=source)

        result = sink.add(colleague.observations(), shipped=colleague.shipped_identities())

        # Version 2 ships neither round 0 of b1 nor round 1 of b2.
        assert (result.added, result.known, result.omitted, result.quarantined) == (1, 5, 2, ())
        assert identities(store.observations()) == in_files(sets_of_files()[1]) | identities(rounds("b9", 0))
        store.add_shipped([], version=3)
        assert identities(store.observations()) == identities(rounds("b9", 0))


def test_removed_blocks_do_not_come_back_with_the_shipped_records_of_another_knowledge_base(
    advisor_here: Advisor, tmp_path: Path
) -> None:
    here, other = str(tmp_path / "here.sqlite"), str(tmp_path / "other.sqlite")
    for path in (here, other):
        with open_knowledge_base(path, shipped=False) as store:
            open_with(store, 1)
            set_version(store, 1_000_000)
            if path == here:
                store.remove(["b1", "b2"])

    result = advisor_here("knowledge", "import", other, "--knowledge", here)

    assert "0 added, 2 already stored, 5 left out that only shipped files brought there" in result.stdout
    with open_knowledge_base(here, shipped=False) as store:
        assert {block.name for block in store.blocks()} == {"b3"}
        assert removed_blocks(store) == {"b1", "b2"}


def test_a_removed_block_counts_as_the_users_again_if_another_source_delivered_the_records_first(
    store: SqlKnowledgeBase,
) -> None:
    open_with(store, 1)
    store.remove(["b1"])
    import_as_user(store, rounds("b1", 0), source="service")
    assert removed_blocks(store) == {"b1"}

    import_as_user(store, rounds("b1", 0))

    assert removed_blocks(store) == set()
    open_with(store, 2)
    assert identities(store.observations()) == in_files(sets_of_files()[1]) | identities(rounds("b1", 0))


def set_version(store: SqlKnowledgeBase, version: int) -> None:
    """Change the recorded version of the shipped data."""
    with store._engine.begin() as connection:
        connection.execute(sa.update(tables.shipped_data).values(version=version))
