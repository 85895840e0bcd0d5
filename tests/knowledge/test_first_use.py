"""The first use of the program: the shipped observations and their contrasts, complete or not at all."""

from __future__ import annotations

import gzip
import importlib.resources
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from knowledge.estimate.model_cache import frameworks_of
from knowledge.evidence.block_evidence import SHIPPED, compute_evidence, evidence_of, load_evidence
from knowledge.store import tables
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import open_knowledge_base
from knowledge.store.shipped_files import ShippedFile, shipped_files
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.sqlite_file import connect_read_only
from tests.knowledge.samples import observation
from tests.knowledge.shipped_stores import content_of, rows, small_files

KILLED = """
import os, signal, sys
import sqlalchemy as sa
from knowledge.store import engine, shipped_files, tables

def stop(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def stop_after(*arguments, **options):
    insert(*arguments, **options)
    stop()

insert = shipped_files.add_shipped_lines
if sys.argv[2] == "tables":
    sa.event.listen(tables.observation, "before_create", stop)
else:
    shipped_files.add_shipped_lines = stop_after
engine.open_knowledge_base(sys.argv[1])
"""
FULL_DISK = """
import resource, signal, sys
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.engine import open_knowledge_base
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))
try:
    open_knowledge_base(sys.argv[1])
except KnowledgeBaseError as error:
    print(error.message)
"""


def test_the_shipped_files_are_stored_as_an_import_stores_them(address: str, tmp_path: Path) -> None:
    files = small_files()
    with (
        open_knowledge_base(address, shipped=False) as first,
        open_knowledge_base(str(tmp_path / "imported.sqlite"), shipped=False) as imported,
    ):
        first.add_shipped(files, version=2)
        for file in files:
            imported.add(content_of(file))

        assert rows(first) == rows(imported)
        assert first.shipped() == {file.sha256 for file in files}


def test_new_shipped_files_are_added_to_an_older_knowledge_base(store: SqlKnowledgeBase) -> None:
    files = small_files()
    known = content_of(files[0])
    store.add_shipped(files[1:3], version=1)
    # The user's own observations, and some that another way brought here.
    store.add([observation(), *known[:5]])

    store.add_shipped(files, version=2)

    counts = {block.name: block.observations for block in store.blocks()}
    every = [observation(), *(o for file in files for o in content_of(file))]
    assert counts == {name: sum(o.block == name for o in every) for name in {o.block for o in every}}
    assert list(store.find_damage()) == []
    before = rows(store)
    store.add_shipped(files, version=2)
    assert rows(store) == before


def test_a_damaged_shipped_file_is_an_error_message_and_nothing_is_stored(store: SqlKnowledgeBase) -> None:
    files = small_files()
    last = files[-1]
    damaged = ShippedFile(name=last.name, sha256=last.sha256, content=last.content[:-9])
    assert last.name.endswith(".gz")

    with pytest.raises(KnowledgeBaseError, match=rf"`{last.name}` of the program is damaged"):
        store.add_shipped([*files[:-1], damaged], version=1)

    assert store.blocks() == ()
    assert store.shipped() == frozenset()


@pytest.mark.parametrize("moment", [pytest.param("tables", marks=pytest.mark.slow), "observations"])
def test_a_first_use_after_a_killed_one_is_complete(moment: str, tmp_path: Path, first_knowledge: Path) -> None:
    path = tmp_path / "k.sqlite"

    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), moment])

    assert killed.returncode == -signal.SIGKILL
    if moment == "observations":
        # A part of the transaction is in the file, and will be undone.
        assert path.with_name("k.sqlite-journal").stat().st_size > 0
    whole = shutil.copy(first_knowledge, tmp_path / "whole.sqlite")
    with open_knowledge_base(str(path)) as store, open_knowledge_base(str(whole)) as other:
        assert rows(store) == rows(other)


def test_a_read_only_file_with_an_unfinished_transaction_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k.sqlite"
    with open_knowledge_base(str(path), shipped=False):
        pass
    path.with_name("k.sqlite-journal").write_bytes(b"begun")
    monkeypatch.setattr("knowledge.store.sqlite_file.may_write", lambda _: False)

    with pytest.raises(KnowledgeBaseError, match="its last writer was killed, and `k.sqlite-journal` holds data"):
        connect_read_only(path)


def test_a_first_use_on_a_full_disk_is_an_error_message(tmp_path: Path, first_knowledge: Path) -> None:
    path = tmp_path / "k.sqlite"

    run = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True)

    assert "could not be written" in run.stdout, run.stderr
    with open_knowledge_base(str(path), shipped=False) as store:
        assert store.blocks() == ()
        assert store.shipped() == frozenset()
    with open_knowledge_base(str(path)) as store:
        assert store.shipped() == {file.sha256 for file in shipped_files()}


@pytest.mark.slow
def test_the_shipped_contrasts_are_those_of_the_shipped_observations(first_knowledge: Path) -> None:
    shipped = json.loads(gzip.decompress((importlib.resources.files("knowledge.data") / SHIPPED).read_bytes()))
    with open_knowledge_base(str(first_knowledge)) as store:
        computed = json.loads(json.dumps(compute_evidence(store)))

    advice = "run `python docs/contrasts.py`"
    numbers = [[row.pop(9) for _ in range(5)] for part in (shipped, computed) for row in part["contrasts"]["rows"]]
    half = len(numbers) // 2
    assert shipped == computed, advice
    assert [x for row in numbers[:half] for x in row] == pytest.approx([x for row in numbers[half:] for x in row])


def test_the_first_advice_reads_no_shipped_observation(
    first_knowledge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlKnowledgeBase, "observations", None)
    path = shutil.copy(first_knowledge, tmp_path / "k.sqlite")
    with open_knowledge_base(str(path)) as store:
        with store._engine.begin() as connection:
            connection.execute(sa.delete(tables.derived))

        evidence = load_evidence(store)

    assert ("torch", "cpu") in frameworks_of(evidence)


def test_a_shipped_block_with_further_observations_is_read(store: SqlKnowledgeBase) -> None:
    (file,) = (file for file in small_files() if "numpy" in file.name)
    store.add_shipped([file], version=1)
    block = store.blocks()[0].name
    before = load_evidence(store)

    store.add([observation("9.9", block=block)])

    after = load_evidence(store)
    expected = evidence_of(store.observations(block=block))
    assert len(before.contrasts) > 0
    assert {run.version for run in after.runs} == {"9.9", *(run.version for run in before.runs)}
    assert [c for c in after.contrasts if c.block == block] == list(expected.contrasts)
