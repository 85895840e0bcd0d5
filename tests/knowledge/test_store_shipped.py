"""Shipped files that a later version of the program replaces: the newest set is in the knowledge base."""

from __future__ import annotations

import importlib.resources
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docs.contrasts import digest_of_files, version_record
from knowledge.domain.observation import Observation
from knowledge.store.engine import open_knowledge_base
from knowledge.store.shipped_files import VERSION_FILE, ShippedFile, shipped_files
from knowledge.store.sql import SqlKnowledgeBase
from tests.examples import examples
from tests.knowledge.next_revision import older_knowledge
from tests.knowledge.samples import observation
from tests.knowledge.shipped_stores import (
    content_of,
    identities,
    import_as_user,
    in_files,
    open_with,
    removed_blocks,
    rounds,
    rows,
    sets_of_files,
    shipped,
    small_files,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from knowledge.store import shipped_files
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.shipped_stores import sets_of_files

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

with open_knowledge_base(sys.argv[1], shipped=False) as store:
    setattr(shipped_files, sys.argv[2], stop)
    store.add_shipped(sets_of_files()[1], version=2)
"""


def without_a_third(file: ShippedFile) -> tuple[ShippedFile, list[Observation]]:
    """Return the file as a later version of the program ships it, without each third observation, and those."""
    content = content_of(file)
    return shipped(file.name, (o for number, o in enumerate(content) if number % 3)), content[::3]


def test_the_version_of_the_shipped_data_belongs_to_the_shipped_files() -> None:
    record = json.loads((importlib.resources.files("knowledge.data") / VERSION_FILE).read_text("utf-8"))

    assert record["digest"] == digest_of_files(shipped_files()), "run `python docs/contrasts.py`"
    assert record["version"] >= 1


def test_the_version_rises_only_if_the_files_change() -> None:
    first, second, _ = sets_of_files()
    record = version_record(first, None)

    assert json.loads(record)["version"] == 1
    assert version_record(reversed(first), record) == record
    assert json.loads(version_record(second, record)) == {"version": 2, "digest": digest_of_files(second)}


@pytest.mark.parametrize("versions", [(1, 2, 1, 2), (2, 1, 2, 1), (1, 2, 3, 1, 2, 3), (3, 1), (2, 3, 2)])
def test_programs_that_alternate_leave_the_files_of_the_newest(
    versions: tuple[int, ...], store: SqlKnowledgeBase
) -> None:
    own = [observation(block="own"), *rounds("b1", 0)]

    for number, version in enumerate(versions):
        open_with(store, version)
        if number == 0:
            import_as_user(store, own)
        newest = sets_of_files()[max(versions[: number + 1]) - 1]

        assert identities(store.observations()) == in_files(newest) | identities(own)
        assert store.shipped() == {file.sha256 for file in newest}
    assert list(store.find_damage()) == []


def test_two_programs_with_one_version_and_other_files_have_their_own_files(store: SqlKnowledgeBase) -> None:
    """Such as two branches of the source code."""
    for files in (*sets_of_files(), *sets_of_files()):
        store.add_shipped(files, version=1)

        assert identities(store.observations()) == in_files(files)


def test_a_program_that_lost_a_file_deletes_its_records(store: SqlKnowledgeBase) -> None:
    first, other = sets_of_files()[0]
    store.add_shipped([first, other], version=1)

    store.add_shipped([first], version=2)

    assert identities(store.observations()) == in_files([first])
    assert store.shipped() == {first.sha256}


ACTIONS = st.one_of(
    st.tuples(st.just("open"), st.integers(1, 3)),
    st.tuples(st.just("import"), st.sampled_from([*rounds("b1", 0, 1), *rounds("b2", 1), *rounds("b4", 0, 1)])),
    st.tuples(st.just("remove"), st.sampled_from(["b1", "b2", "b3", "b4"])),
)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=10))
def test_any_sequence_of_programs_and_users_gives_the_newest_files_and_what_the_user_did(
    actions: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    version, removed = 0, set[str]()
    stored: dict[str, Observation] = {}
    own: dict[str, Observation] = {}
    path = tmp_path_factory.mktemp("sequence") / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        for action, value in actions:
            if isinstance(value, int):
                open_with(store, value)
                if value > version:
                    version = value
                    shipping = (o for file in sets_of_files()[value - 1] for o in content_of(file))
                    stored = {o.identity: o for o in shipping if o.block not in removed} | own
            elif isinstance(value, Observation):
                import_as_user(store, [value])
                removed.discard(value.block)
                stored[value.identity] = own[value.identity] = value
            else:
                store.remove([str(value)])
                removed |= {o.block for o in stored.values() if o.block == value}
                stored, own = ({i: o for i, o in some.items() if o.block != value} for some in (stored, own))

            assert identities(store.observations()) == set(stored), action
            assert removed_blocks(store) == removed
        assert list(store.find_damage()) == []


def test_a_removed_block_stays_removed_when_its_own_file_is_replaced_until_it_is_imported(
    store: SqlKnowledgeBase,
) -> None:
    open_with(store, 1)
    store.remove(["b1"])

    open_with(store, 2)

    assert identities(store.observations()) == identities([*rounds("b2", 0), *rounds("b3", 0, 1)])
    # What others deliver is not the user's decision.
    import_as_user(store, rounds("b1", 9), source="service")
    assert removed_blocks(store) == {"b1"}
    store.remove(["b1"])
    import_as_user(store, rounds("b1", 7))
    assert removed_blocks(store) == set()
    open_with(store, 3)
    assert identities(store.observations()) == in_files(sets_of_files()[2]) | identities(rounds("b1", 7))


def test_a_block_of_which_the_user_has_every_record_stays_removed(store: SqlKnowledgeBase) -> None:
    open_with(store, 1)
    import_as_user(store, rounds("b1", 0, 1, 2))
    store.remove(["b1"])

    open_with(store, 2)

    assert "b1" not in {block.name for block in store.blocks()}


@pytest.mark.parametrize("moment", ["add_shipped_lines", "delete_unused"])
def test_a_replacement_that_is_killed_changes_nothing_and_is_repeated(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        open_with(store, 1)
        before = rows(store)

    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), moment])

    assert killed.returncode == -signal.SIGKILL
    with open_knowledge_base(str(path), shipped=False) as store:
        assert rows(store) == before
        open_with(store, 2)
        assert identities(store.observations()) == in_files(sets_of_files()[1])
        assert list(store.find_damage()) == []


def test_rows_of_version_0_1_0_are_deleted_with_their_file(tmp_path: Path) -> None:
    with open_knowledge_base(str(older_knowledge(tmp_path / "k.sqlite")), shipped=False) as store:
        own = identities(o for o in store.observations() if o.block != "b1")

        store.add_shipped([shipped("further.jsonl", rounds("b4", 0))], version=2)

        after = identities(store.observations())
        # One observation of the block is the user's, too.
        assert [(b.name, b.observations) for b in store.blocks()] == [("b1", 1), ("b2", 1), ("b3", 1), ("b4", 1)]
        assert own | identities(rounds("b4", 0)) < after
        assert list(store.find_damage()) == []


def test_observations_that_a_later_version_does_not_ship_are_deleted_but_not_the_users(
    store: SqlKnowledgeBase, tmp_path: Path
) -> None:
    first, *others = small_files()
    later, gone = without_a_third(first)
    store.add_shipped([first, *others], version=1)
    # One of them is the user's, too.
    store.add([gone[0], observation()])

    store.add_shipped([later, *others], version=2)

    with open_knowledge_base(str(tmp_path / "fresh.sqlite"), shipped=False) as fresh:
        fresh.add_shipped([later, *others], version=2)
        fresh.add([gone[0], observation()])
        assert rows(store) == rows(fresh)
    assert list(store.find_damage()) == []
    # The earlier version of the program neither brings them back nor removes the new file.
    before = rows(store)
    store.add_shipped([first, *others], version=1)
    assert rows(store) == before


def test_an_observation_of_two_files_stays_until_neither_ships(store: SqlKnowledgeBase) -> None:
    first, *others = small_files()
    later, gone = without_a_third(first)
    second = shipped("second.jsonl", gone[:5])
    store.add_shipped([first, second], version=1)

    store.add_shipped([later, second], version=2)

    assert store.known_identities(o.identity for o in gone) == {o.identity for o in gone[:5]}
    store.add_shipped([later, *others], version=3)
    assert store.known_identities(o.identity for o in gone) == frozenset()


def test_blocks_that_the_user_removed_stay_removed_when_others_are_replaced(store: SqlKnowledgeBase) -> None:
    first, second, *_ = (file for file in small_files() if "settings" in file.name)
    store.add_shipped([first, second], version=1)
    block = content_of(second)[0].block
    store.remove([block])

    store.add_shipped([without_a_third(first)[0], second], version=2)

    assert block not in {stored.name for stored in store.blocks()}
    assert list(store.find_damage()) == []
