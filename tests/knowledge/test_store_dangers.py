"""Failures of a knowledge base: concurrent and killed writers, a full disk, old tables, damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knowledge.domain.observation import Observation
from knowledge.exchange.files import check_observation, read_observations, write_observations
from knowledge.store import sqlite_file
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import open_import_source, open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from tests.examples import examples
from tests.knowledge.next_revision import NEXT, OLDER, older_knowledge
from tests.knowledge.samples import MACHINE, RUN, block, observation

WRITER = """
import sys
from knowledge.store.engine import open_knowledge_base
from tests.knowledge.samples import observation
address, writer, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open_knowledge_base(address, shipped=False) as store:
    for start in range(0, count, 50):
        # Half of the observations of each writer are in its own block, half in a shared one.
        store.add(
            observation(round=r, block=f"own-{writer}" if r % 2 else "shared") for r in range(start, start + 50)
        )
        print(start, flush=True)
"""


def writer(address: str, number: int, count: int) -> subprocess.Popen[str]:
    """Start a process that adds observations, fifty a transaction, and prints a line after each."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, address, str(number), str(count)], stdout=subprocess.PIPE, text=True
    )


def test_older_tables_are_upgraded(next_revision: str, tmp_path: Path) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")

    with open_knowledge_base(str(path), shipped=False) as store:
        content = store.content()
        damage = list(store.find_damage())
        again = store.add([observation("2.1.0", block="b3")])

    assert content.revision == next_revision
    assert dict(content.observations) == {"ok": 9, "import-error": 1}
    assert content.blocks == 3
    assert damage == []
    assert again.known == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM note").fetchall() == [(f"b{n}", "measured") for n in (1, 2, 3)]


def test_there_is_a_frozen_database_for_every_revision() -> None:
    from alembic.script import ScriptDirectory

    revisions = {script.revision for script in ScriptDirectory("knowledge/store/migrations").walk_revisions()}

    assert {path.name.split(".")[0] for path in OLDER.parent.glob("*.sqlite.gz")} == revisions


def test_older_tables_of_a_server_are_upgraded(address: str, request: pytest.FixtureRequest) -> None:
    with open_knowledge_base(address, shipped=False) as store:
        store.add([observation()])
    request.getfixturevalue("next_revision")

    with open_knowledge_base(address, shipped=False) as store:
        assert list(store.find_damage()) == []
        assert [b.observations for b in store.blocks()] == [1]
        assert store.revision() == NEXT


def test_the_file_of_an_imported_knowledge_base_with_older_tables_stays_as_it_is(
    next_revision: str, tmp_path: Path
) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")
    with closing(sqlite3.connect(path)) as connection:
        # As programs leave it.
        connection.execute("PRAGMA journal_mode=wal")
    before = path.read_bytes()

    with open_import_source(str(path)) as store:
        assert store.revision() == next_revision
        assert sum(1 for _ in store.observations()) == 10

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["k.sqlite"]


@pytest.mark.slow
def test_eight_concurrent_writers_store_every_observation_once(address: str) -> None:
    running = [writer(address, number, 200) for number in range(8)]

    assert [process.wait() for process in running] == [0] * 8
    with open_knowledge_base(address, shipped=False) as store:
        counted = {b.name: b.observations for b in store.blocks()}
        assert list(store.find_damage()) == []
    assert counted == {"shared": 100, **{f"own-{number}": 100 for number in range(8)}}


def test_a_killed_writer_leaves_only_complete_transactions(address: str) -> None:
    process = writer(address, 0, 100_000)
    assert process.stdout is not None
    acknowledgements = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGKILL)
    process.wait()

    with open_knowledge_base(address, shipped=False) as store:
        count = sum(b.observations for b in store.blocks())
        assert list(store.find_damage()) == []
    assert count % 50 == 0
    assert count >= 50 * len(acknowledgements)


def test_a_killed_server_is_an_error_message_and_keeps_stored_observations(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pgserver = pytest.importorskip("pgserver", reason="pgserver is not installed")
    folder = Path(tmp_path_factory.mktemp("killed"))
    server = pgserver.get_server(folder)
    address = server.get_uri()
    with open_knowledge_base(address, shipped=False) as store:
        store.add([observation()])

        def then_killed() -> Iterator[Observation]:
            yield from (observation(round=r) for r in range(2500))
            number = int((folder / "postmaster.pid").read_text().splitlines()[0])
            os.kill(number, signal.SIGQUIT)  # An immediate stop, as in a crash.
            time.sleep(0.5)
            yield from (observation(round=r) for r in range(2500, 5000))

        with pytest.raises(KnowledgeBaseError, match="could not be written") as caught:
            store.add(then_killed())
    assert "\n" not in caught.value.message

    server._instances.pop(server.pgdata)  # pgserver caches one handle for each folder, even if the server was killed.
    restarted = pgserver.get_server(folder)
    with open_knowledge_base(restarted.get_uri(), shipped=False) as store:
        assert [b.observations for b in store.blocks()] == [1]
        assert list(store.find_damage()) == []
    restarted.cleanup()


def test_a_full_disk_is_an_error_message_and_nothing_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        store.add([observation()])
    program = (
        "import resource, signal, sys\n"
        "from knowledge.store.base import KnowledgeBaseError\n"
        "from knowledge.store.engine import open_knowledge_base\n"
        "from tests.knowledge.samples import observation\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try:\n"
        "    open_knowledge_base(sys.argv[1], shipped=False).add(observation(round=r) for r in range(20000))\n"
        "except KnowledgeBaseError as error:\n"
        "    print(error.message)\n"
    )

    run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)

    assert "could not be written" in run.stdout, run.stderr
    with open_knowledge_base(str(path), shipped=False) as store:
        assert [b.observations for b in store.blocks()] == [1]
        assert list(store.find_damage()) == []


def test_a_locked_file_is_an_error_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.sqlite"
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 10)
    with open_knowledge_base(str(path), shipped=False) as store, sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(KnowledgeBaseError, match="database is locked"):
            store.add([observation()])
        other.execute("ROLLBACK")

        assert store.add([observation()]).added == 1


@pytest.mark.usefixtures("next_revision")
def test_old_tables_in_a_locked_file_are_an_error_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 10)
    monkeypatch.setattr(sqlite_file, "PATIENCE_MS", 10)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(KnowledgeBaseError, match="cannot be opened: database is locked"):
            open_knowledge_base(str(path))


def test_a_read_only_file_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        store.add([observation()])
    address = f"sqlite:///file:{path}?mode=ro&uri=true"
    if os.getuid() != 0:
        path.chmod(0o444)
        address = str(path)

    with open_knowledge_base(address) as store:
        assert sum(1 for _ in store.observations()) == 1
        store.store_derived("fit", [("a", "b", 1)])
        assert store.load_derived("fit", [("a", "b")]) == {}
        with pytest.raises(KnowledgeBaseError, match="is read-only"):
            store.add([observation(round=1)])


@pytest.mark.usefixtures("next_revision")
def test_a_read_only_file_of_an_older_revision_is_refused(tmp_path: Path) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")

    with pytest.raises(KnowledgeBaseError, match=r"read-only, and its tables of revision 0101 are older"):
        open_knowledge_base(f"sqlite:///file:{path}?mode=ro&uri=true")


def test_damaged_records_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        store.add(block({"2.0.0": 1.0, "1.26.4": 0.9}, rounds=3))
        assert list(store.find_damage()) == []
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE observation SET document = replace(document, '1.0', '7.0') WHERE round = 0")
        connection.execute("UPDATE observation SET status = 'crashed' WHERE round = 1 AND slot = 0")
        connection.execute("DELETE FROM observation WHERE round = 2 AND slot = 0")

    with open_knowledge_base(str(path), shipped=False) as store:
        damage = "\n".join(store.find_damage())

    assert "its content does not match its hash" in damage
    assert "column `status` is `crashed`, but the record has `ok`" in damage
    assert "block `b1` is recorded with 6 observations, and has 5" in damage


def test_stacks_and_machines_of_removed_blocks_are_removed(store: SqlKnowledgeBase) -> None:
    store.add([observation(), observation("1.26.4", block="b2")])
    before = store.content()
    store.store_derived("fit", [("a", "b", 1)])

    removed = store.remove(["b2"])

    after = store.content()
    assert (removed, after.stacks, after.blocks, sum(n for _, n in after.observations)) == (1, 1, 1, 1)
    assert after.digest != before.digest
    assert store.load_derived("fit", [("a", "b")]) == {}
    assert list(store.find_damage()) == []
    store.add([observation("1.26.4", block="b2")])
    assert store.content() == before


def test_a_cached_value_is_valid_only_for_the_state_it_was_computed_from(store: SqlKnowledgeBase) -> None:
    store.store_derived("evidence", [("b1", "a" * 64, {"x": 1}), ("b2", "c" * 64, [2])])
    store.store_derived("evidence", [("b1", "b" * 64, {"x": 3})])

    assert store.load_derived("evidence", [("b1", "a" * 64), ("b2", "c" * 64)]) == {"b2": [2]}
    assert store.load_derived("evidence", [("b1", "b" * 64)]) == {"b1": {"x": 3}}
    assert store.load_derived("fit", [("b1", "b" * 64)]) == {}


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18)
AMOUNTS = st.floats(0, 1e300) | st.integers(0, 10**18)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
TABLE_OF_NUMBERS = st.dictionaries(st.text(), NUMBERS, max_size=3)
STORABLE = st.builds(
    replace,
    st.just(observation()),
    indicator=st.builds(
        replace, st.just(RUN), parameters=st.dictionaries(st.text(), AMOUNTS.filter(lambda n: n < 1e15) | st.text())
    ),
    samples=st.lists(st.floats(1e-9, 1e9) | st.integers(1, 10**9), min_size=1, max_size=4).map(tuple),
    loops=st.integers(0, 10**9),
    warmup_seconds=AMOUNTS,
    flops=AMOUNTS,
    bytes=AMOUNTS,
    error=st.none() | NUMBERS,
    tolerance=st.none() | NUMBERS,
    settings=st.dictionaries(st.text(), SCALARS, max_size=3),
    environment=st.dictionaries(st.text(), SCALARS, max_size=3),
    failure=st.text(),
    metrics=TABLE_OF_NUMBERS,
    telemetry=TABLE_OF_NUMBERS,
    schema=st.sampled_from([1, 2]),
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(STORABLE, min_size=1, max_size=10))
def test_every_storable_observation_survives_the_round_trip(store: SqlKnowledgeBase, stored: list[Observation]) -> None:
    for entry in stored:
        check_observation(entry)
    store.remove(["b1"])

    store.add(stored)

    read = list(store.observations())
    copied = read_observations(write_observations(read), where="the copy")
    expected = {entry.identity for entry in stored}
    assert {entry.identity for entry in read} == expected
    assert {entry.identity for entry in copied} == expected
    assert list(store.find_damage()) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(STORABLE, min_size=1, max_size=10))
def test_what_the_program_stored_before_it_wrote_whole_numbers_as_floats_is_intact(
    store: SqlKnowledgeBase, stored: list[Observation]
) -> None:
    store.remove(["b1"])
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr("knowledge.domain.observation._float_amounts", lambda record: {})
        store.add(stored)
    identities = {entry.identity for entry in stored}

    read = list(store.observations())
    copied = read_observations(write_observations(read), where="the copy")

    assert {entry.identity for entry in read} == identities
    assert {entry.identity for entry in copied} == identities
    assert list(store.find_damage()) == []


OBSERVATIONS = st.builds(
    observation,
    st.sampled_from(["2.0.0", "1.26.4"]),
    round=st.integers(0, 3),
    arm=st.integers(0, 1),
    block=st.sampled_from(["b1", "b2"]),
    hardware=st.sampled_from([MACHINE, replace(MACHINE, name="another name")]),
    status=st.sampled_from(["ok", "crashed"]),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.lists(OBSERVATIONS, max_size=6), min_size=1, max_size=4), data=st.data())
def test_merging_in_any_order_gives_the_same_content(
    parts: list[list[Observation]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    contents = []
    for number, order in enumerate((parts, data.draw(st.permutations(parts)))):
        with open_knowledge_base(str(folder / f"{number}.sqlite"), shipped=False) as merged:
            for place, part in enumerate(order):
                with open_knowledge_base(str(folder / f"{number}-{place}.sqlite"), shipped=False) as one:
                    one.add(part)
                    merged.add(one.observations())
            content = merged.content()
            contents.append((content.digest, content.observations, merged.blocks(), list(merged.observations())))

    assert contents[0] == contents[1]
    assert len(contents[0][3]) == len({o.identity for part in parts for o in part})
