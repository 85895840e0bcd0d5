"""`advisor knowledge` on knowledge bases without the shipped observations."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from tests.advisor.inputs import write
from tests.conftest import Advisor
from tests.knowledge.next_revision import older_knowledge


def test_knowledge_bases_merge(advisor_here: Advisor, tmp_path: Path, empty_knowledge: Path) -> None:
    other = f"sqlite:///{shutil.copy(empty_knowledge, tmp_path / 'other.sqlite')}"
    write(tmp_path / "both.jsonl", "both")
    write(tmp_path / "one.jsonl", "one")
    for arguments in (("both.jsonl",), ("both.jsonl", "--knowledge", other), ("one.jsonl", "--knowledge", other)):
        assert "18 added" in advisor_here("knowledge", "import", *arguments).stdout

    merged = advisor_here("knowledge", "import", "other.sqlite")
    again = advisor_here("knowledge", "import", other)

    assert "other.sqlite: 18 added, 18 already stored" in merged.stdout
    assert ": 0 added" in again.stdout
    one, two = (
        json.loads(advisor_here("knowledge", "status", "--format", "json", *more).stdout)
        for more in ((), ("--knowledge", other))
    )
    assert one["digest"] == two["digest"]


def test_the_file_of_an_imported_knowledge_base_stays_as_it_is(advisor_here: Advisor, tmp_path: Path) -> None:
    folder = tmp_path / "colleague"
    folder.mkdir()
    path = older_knowledge(folder / "k.sqlite")
    with sqlite3.connect(path) as connection:
        # As programs leave it.
        connection.execute("PRAGMA journal_mode=wal")
    connection.close()
    before = path.read_bytes()

    result = advisor_here("knowledge", "import", str(path))

    assert result.returncode == 0
    assert path.read_bytes() == before
    assert [file.name for file in folder.iterdir()] == ["k.sqlite"]


def test_a_missing_knowledge_base_is_not_created_by_an_import(advisor_here: Advisor, tmp_path: Path) -> None:
    result = advisor_here("knowledge", "import", f"sqlite:///{tmp_path / 'missing.sqlite'}")

    assert result.returncode == 4
    assert "cannot be imported: there is no such file" in result.stderr
    assert not (tmp_path / "missing.sqlite").exists()


def test_damage_is_reported_with_an_exit_code(advisor_here: Advisor, tmp_path: Path) -> None:
    write(tmp_path / "o.jsonl")
    advisor_here("knowledge", "import", "o.jsonl")
    with sqlite3.connect(tmp_path / "own.sqlite") as connection:
        connection.execute("UPDATE observation SET median_seconds = -1 WHERE round = 0 AND slot = 0")

    result = advisor_here("knowledge", "verify")

    assert result.returncode == 1
    assert "column `median_seconds` is `-1.0`" in result.stdout
