"""A record is one line, even if its texts contain Unicode line separators other than the line feed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.campaign.status import statuses
from benchmarks.observation_folder import ObservationFolder
from knowledge.domain.documents import lines_of
from knowledge.domain.observation import Observation
from knowledge.exchange.admission import Admission
from knowledge.exchange.files import observation_file, read_lines, read_observations
from knowledge.exchange.mlperf.logs import read_log
from knowledge.service.client import KnowledgeService, push
from knowledge.store.engine import open_knowledge_base
from knowledge.store.sql import SqlKnowledgeBase
from pi_runners.catalogue import Indicators
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest
from tests.knowledge.samples import observation
from tests.knowledge.service.conftest import serving

SEPARATORS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \r \n \xe9"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlKnowledgeBase]:
    with open_knowledge_base(str(tmp_path / "theirs.sqlite"), shipped=False) as opened:
        yield opened


def failed() -> Observation:
    """Return an observation whose failure contains every line separator of Unicode."""
    return replace(observation(status="crashed"), failure=f"it said {SEPARATORS}")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\u2028b\x85\x0c\n\u2029", ["a\u2028b\x85\x0c", "\u2029"]),
    ],
)
def test_a_line_ends_with_a_line_feed_only(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("damaged", [None, []])
def test_an_observation_file_with_other_line_ends_in_a_message_is_read_back(
    compressed: bool, damaged: list[object] | None
) -> None:
    content = observation_file([failed()], compressed=compressed)

    lines = read_lines(content, where="file", damaged=damaged)  # type: ignore[arg-type]

    assert list(read_observations(lines, where="file")) == [failed()]


def test_a_folder_of_observations_with_other_line_ends_in_a_message_is_continued(tmp_path: Path) -> None:
    ObservationFolder(tmp_path, session="s").add([failed()])

    folder = ObservationFolder(tmp_path, session="s")
    folder.add([failed()])

    assert len(folder.runs) == 1


def test_a_cell_with_other_line_ends_in_a_message_has_its_statuses(tmp_path: Path) -> None:
    cell = tmp_path / "cell.jsonl"
    cell.write_bytes(observation_file([failed()]))

    assert statuses(cell) == ("crashed",)


def test_observations_sent_over_http_keep_other_line_ends(store: SqlKnowledgeBase, tmp_path: Path) -> None:
    token, _ = store.create_token(role="runner", source="lab-a")
    with open_knowledge_base(str(tmp_path / "mine.sqlite"), shipped=False) as mine:
        mine.add([failed()])
        with serving(store) as address:
            service = KnowledgeService(address, token)
            sent = push(mine, service, progress=lambda _: None)
            received = list(service.observations(failed().block))

    assert (sent.added, list(store.observations())) == (1, [failed()])
    assert received == [failed()]


def test_quarantined_observations_keep_other_line_ends(store: SqlKnowledgeBase) -> None:
    bad = replace(failed(), started_at="2199-01-01T00:00:00Z")
    Admission(store, Indicators(), source="").add([bad])

    assert [q.observation for q in store.quarantined()] == [bad]


def test_the_results_of_a_process_are_lines(tmp_path: Path) -> None:
    line = json.dumps({"failure": SEPARATORS}, ensure_ascii=False)
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nopen(sys.argv[3], 'wb').write({line.encode()!r} + b'\\n{{half')")

    end = FreshProcesses().run(
        ProcessRequest(python=Path(sys.executable), program=program, content={}, timeout_seconds=60)
    )

    assert end.results == ({"failure": SEPARATORS},)


def test_a_log_line_of_mlperf_is_one_line() -> None:
    def event(key: str, at: int, value: object = None) -> str:
        record = {"key": key, "value": value, "time_ms": at, "event_type": "POINT_IN_TIME", "metadata": {}}
        return f":::MLLOG {json.dumps(record, ensure_ascii=False)}\n"

    text = event("submission_org", 0, "a\u2028b") + event("run_start", 1000) + event("run_stop", 2000)

    assert read_log(text).values["submission_org"] == "a\u2028b"
