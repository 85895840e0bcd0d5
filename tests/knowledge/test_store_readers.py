"""Concurrent readers and writers: isolation, locks, and files that cannot be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from knowledge.domain.observation import Observation
from knowledge.store import sqlite_file
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.state_hash import state_hash
from tests.knowledge.next_revision import NEWEST, older_knowledge
from tests.knowledge.samples import observation

READER = """
import sys
from knowledge.domain.errors import AdvisorError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.state_hash import state_hash
try:
    with open_knowledge_base(sys.argv[1]) as store:
        observations = store.observations()
        next(observations)
        print("begun", flush=True)
        sys.stdin.readline()
        print(1 + sum(1 for _ in observations), state_hash(sys.argv[1]) is not None, flush=True)
        store.add([])
except AdvisorError as error:
    print(error.message, error.hint)
"""


def journal_mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


@pytest.fixture
def read_only(tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder, and the prefix of a command that sees the folder on a read-only medium."""
    folder = tmp_path / "medium"
    folder.mkdir()
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", mount, str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no read-only medium can be mounted here: it takes root")
    return folder, before


def reader(before: list[str], address: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", READER, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_reader_does_not_block_writers_and_reads_one_state(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 50)
    with (
        open_knowledge_base(address, shipped=False) as store,
        open_knowledge_base(address, shipped=False) as writer,
    ):
        store.add(observation(round=r) for r in range(10))
        store.add([observation("1.26.4", block="b2")])
        reading = store.observations()
        first = next(reading)

        removed = writer.remove(["b2"])
        added = writer.add([observation(round=r) for r in range(10, 20)])
        rest = list(reading)

        assert (removed, added.added) == (1, 10)
        assert [o.round for o in (first, *rest)] == [*range(10), 0]
        assert rest[-1].stack.version_of("numpy") == "1.26.4"
        assert len(list(store.observations())) == 20


def test_a_writer_that_waited_reads_the_transaction_of_the_other_writer(address: str) -> None:
    if address.startswith("postgresql"):
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    begun, ending = threading.Event(), threading.Event()

    def slowly() -> Iterator[Observation]:
        yield observation()
        begun.set()
        ending.wait(30)

    with (
        open_knowledge_base(address, shipped=False) as first,
        open_knowledge_base(address, shipped=False) as second,
    ):
        slow = threading.Thread(target=lambda: first.add(slowly()))
        slow.start()
        begun.wait(30)
        results: list[tuple[int, int]] = []

        def wait_and_add() -> None:
            result = second.add([observation(), observation(round=1)])
            results.append((result.added, result.known))

        waiting = threading.Thread(target=wait_and_add)
        waiting.start()
        waiting.join(0.3)
        ending.set()
        slow.join(30)
        waiting.join(30)

        assert results == [(1, 1)]
        assert list(second.find_damage()) == []


def test_a_file_in_the_old_journal_mode_is_changed_when_it_is_opened(tmp_path: Path) -> None:
    path = older_knowledge(tmp_path / "k.sqlite")
    assert journal_mode(path) == "delete"

    with open_knowledge_base(str(path), shipped=False) as store:
        assert sum(n for _, n in store.content().observations) == 10

    assert journal_mode(path) == "wal"
    # A closed knowledge base is one file, which can be copied.
    assert [p.name for p in tmp_path.iterdir()] == ["k.sqlite"]


def test_a_file_that_is_read_in_the_old_journal_mode_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = older_knowledge(tmp_path / "k.sqlite", NEWEST)
    monkeypatch.setattr(sqlite_file, "PATIENCE_MS", 10)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM block").fetchone()

        with open_knowledge_base(str(path), shipped=False) as store:
            assert sum(n for _, n in store.content().observations) == 10
        other.execute("ROLLBACK")
    other.close()

    open_knowledge_base(str(path), shipped=False).close()
    assert journal_mode(path) == "wal"


def test_a_file_on_a_network_file_system_keeps_the_old_journal_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k.sqlite"
    open_knowledge_base(str(path), shipped=False).close()
    before = journal_mode(path)
    monkeypatch.setattr(sqlite_file, "_mounts", lambda: [("/", "ext4"), (str(tmp_path), "nfs4")])

    with open_knowledge_base(str(path), shipped=False) as store:
        store.add([observation()])

        assert (before, journal_mode(path)) == ("wal", "delete")
        assert list(store.observations()) == [observation()]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/k.sqlite", "ext4"),
        ("/home/me/net/k.sqlite", "nfs4"),
        ("/home/me/network", "ext4"),
        ("/mnt/a b/k.sqlite", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "26 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "31 26 0:40 / /home/me/net rw shared:1 master:2 - nfs4 server:/home rw\n"
        "32 26 0:41 / /mnt/a\\040b rw - fuse.sshfs host: rw\n"
        "33 26 0:41 / /mnt/gone\n"
    )
    monkeypatch.setattr(sqlite_file, "_MOUNTS", table)

    assert sqlite_file.file_system_of(Path(path)) == expected


def test_the_journal_does_not_grow_with_the_number_of_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "MOST_JOURNAL_BYTES", 200_000)
    path = tmp_path / "k.sqlite"
    log = tmp_path / "k.sqlite-wal"
    sizes = []
    with open_knowledge_base(str(path), shipped=False) as store:
        for number in range(60):
            store.add([observation(round=number)])
            sizes.append(log.stat().st_size)
        # The space of one long transaction is released by the next ones.
        store.add(observation(round=number) for number in range(1000))
        long = log.stat().st_size
        store.add([observation("1.26.4")])

        assert max(sizes) < 400_000 < long
        assert log.stat().st_size < 400_000
        assert list(store.find_damage()) == []


def test_a_file_on_a_read_only_medium_is_read(read_only: tuple[Path, list[str]]) -> None:
    folder, before = read_only
    with open_knowledge_base(str(folder / "k.sqlite"), shipped=False) as store:
        store.add(observation(round=r) for r in range(3))

    output, _ = reader(before, folder / "k.sqlite").communicate("\n")

    assert output.splitlines()[:2] == ["begun", "3 True"]
    assert "is read-only" in output.splitlines()[2]
    assert [p.name for p in folder.iterdir()] == ["k.sqlite"]


def test_a_file_that_cannot_be_written_here_is_read_while_another_writes_it(read_only: tuple[Path, list[str]]) -> None:
    folder, before = read_only
    with open_knowledge_base(str(folder / "k.sqlite"), shipped=False) as store:
        store.add(observation(round=r) for r in range(3))
        process = reader(before, folder / "k.sqlite")
        assert process.stdout is not None
        begun = process.stdout.readline()
        store.add([observation(round=3)])
        output, _ = process.communicate("\n")

    assert (begun, output.splitlines()[0]) == ("begun\n", "3 True")


def test_a_file_that_changes_while_it_is_read_without_a_journal_is_an_error(
    read_only: tuple[Path, list[str]],
) -> None:
    folder, before = read_only
    with open_knowledge_base(str(folder / "k.sqlite"), shipped=False) as store:
        store.add(observation(round=r) for r in range(3))
    process = reader(before, folder / "k.sqlite")
    assert process.stdout is not None
    begun = process.stdout.readline()
    with open_knowledge_base(str(folder / "k.sqlite"), shipped=False) as store:
        store.add([observation(round=3)])

    output, _ = process.communicate("\n")

    assert begun == "begun\n"
    assert "was changed while it was read" in output


def test_a_journal_of_a_killed_writer_on_a_read_only_medium_is_an_error(
    read_only: tuple[Path, list[str]],
) -> None:
    folder, before = read_only
    path = folder / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        store.add([observation()])
        for name in ("k.sqlite", "k.sqlite-wal"):
            shutil.copy(folder / name, folder.parent / name)
    for name in ("k.sqlite", "k.sqlite-wal"):
        shutil.copy(folder.parent / name, folder / name)

    output, _ = reader(before, path).communicate("\n")

    assert "`k.sqlite-wal`" in output
    assert "copy both files" in output


def test_the_state_hash_includes_transactions_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        before = state_hash(str(path))
        store.add([observation()])

        assert state_hash(str(path)) not in (None, before)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_read_without_creating_other_files(tmp_path: Path) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False) as store:
        store.add([observation()])
    path.chmod(0o444)

    with open_knowledge_base(str(path)) as store:
        assert list(store.observations()) == [observation()]
        with pytest.raises(KnowledgeBaseError, match="is read-only"):
            store.add([])

    assert [p.name for p in tmp_path.iterdir()] == ["k.sqlite"]
