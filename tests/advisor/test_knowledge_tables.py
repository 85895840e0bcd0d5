"""`advisor knowledge import-published` in a terminal: counts, reasons, and nothing half stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Advisor
from tests.knowledge.published_tables import ROW, SMALL, written


def test_counts_reasons_and_the_total_are_printed(advisor_here: Advisor, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(written(ROW, ROW, {**ROW, "value": "-1"}, {**ROW, "gpu": "B9000"}))

    first = advisor_here("knowledge", "import-published", "t.csv")
    second = advisor_here("knowledge", "import-published", "t.csv")

    assert first.returncode == 0
    assert "t.csv: 4 rows, 2 observations, 1 duplicate counted once, 1 skipped\n2 observations added" in first.stdout
    assert "t.csv: line 4: skipped: `value` is -1; a rate or a latency is more than 0" in first.stderr
    assert "the GPU `B9000` is unknown and keeps its name\nhint: the nearest known ones are" in first.stderr
    assert "0 observations added, 2 already stored" in second.stdout
    assert "every one is as it was stored" in advisor_here("knowledge", "verify").stdout


def test_every_kind_of_reason_is_printed(advisor_here: Advisor, tmp_path: Path) -> None:
    negative = [{**ROW, "value": f"-{number}"} for number in range(1, 41)]
    others = [{"unit": f"bananas{number}/s"} for number in range(20)]
    kinds = [{"phase": "testing"}, {"date": "2030-01-01"}, {"runs": "2.5"}, {"task": ""}, {"gpu": ""}]
    rows = [*negative, *({**ROW, **changes} for changes in (*others, *kinds)), ROW]
    (tmp_path / "t.csv").write_bytes(written(*rows))

    lines = advisor_here("knowledge", "import-published", "t.csv").stderr.splitlines()

    assert "warning: t.csv: line 2: skipped: `value` is -1; a rate or a latency is more than 0" in lines
    assert sum("a rate or a latency is more than 0" in line for line in lines) == 3
    rest = ", ".join(str(number) for number in range(5, 25))
    assert f"warning: t.csv: lines {rest} and 17 more: skipped for the same reason, with other values" in lines
    for reason in (
        "the unit `bananas0/s`",
        "`phase` is `testing`",
        "`date` is 2030",
        "`runs` is `2.5`",
        "`task` is empty",
    ):
        assert any(reason in line for line in lines), reason
    assert any("line 66: skipped: `gpu` is empty" in line for line in lines)


def test_json_lists_every_skipped_row(advisor_here: Advisor) -> None:
    record = json.loads(advisor_here("knowledge", "import-published", "--format", "json", str(SMALL)).stdout)

    (file,) = record["files"]
    assert (record["schema_version"], record["added"], record["quarantined"]) == (1, file["observations"], 0)
    assert file["rows"] == file["observations"] + file["repetitions"] + len(file["duplicates"]) + len(file["skipped"])
    assert {"line", "reason"} == set(file["skipped"][0])
    assert any(w["message"].startswith("the GPU `RadeonProVII`") for w in file["warnings"])


def test_the_written_observation_file_can_be_imported(advisor_here: Advisor, tmp_path: Path) -> None:
    written_file = advisor_here("knowledge", "import-published", "-o", "o.jsonl.gz", str(SMALL))

    imported = advisor_here("knowledge", "import", "o.jsonl.gz")

    assert "observations to `o.jsonl.gz`" in written_file.stdout
    assert "quarantined" not in imported.stdout + imported.stderr
    assert f"o.jsonl.gz: {written_file.stdout.split()[1]} added, 0 already stored" in imported.stdout


def test_one_unreadable_file_stores_nothing_of_the_others(advisor_here: Advisor, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_bytes(written(ROW))
    (tmp_path / "bad.csv").write_bytes(b"task,value\nresnet50,1\n")

    failed = advisor_here("knowledge", "import-published", "good.csv", "bad.csv")
    content = json.loads(advisor_here("knowledge", "status", "--format", "json").stdout)

    assert failed.returncode == 2
    assert "error: `bad.csv` has no column `repository`, `date`" in failed.stderr
    assert "published" not in dict(content["indicators"])


@pytest.mark.parametrize("name", ["nowhere.csv", "."])
def test_a_file_that_cannot_be_read_is_one_message(advisor_here: Advisor, name: str) -> None:
    result = advisor_here("knowledge", "import-published", name)

    assert result.returncode == 2
    assert f"error: `{name}` cannot be read" in result.stderr
