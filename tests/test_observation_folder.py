"""Folders of observation files, written in several sessions on a machine with few packages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.observation_folder import MeasuredRun, ObservationFolder
from knowledge.domain.errors import InputError, UnavailableError
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations
from tests.knowledge.samples import observation


def runs(count: int, *, block: str = "b") -> list[Observation]:
    return [replace(observation(), block=block, round=number) for number in range(count)]


def read(folder: Path) -> list[Observation]:
    observations: list[Observation] = []
    for file in sorted(folder.glob("*.jsonl")):
        # Each file is read alone: it must contain its own stacks and machines.
        observations += read_observations(file.read_text(encoding="utf-8").splitlines(), where=file.name)
    return observations


def test_added_observations_are_read_back_and_not_measured_again(tmp_path: Path) -> None:
    first, second = runs(2)
    ObservationFolder(tmp_path / "new", session="s").add([first])
    folder = ObservationFolder(tmp_path / "new", session="s")
    folder.add([second])

    assert read(tmp_path / "new") == [first, second]
    assert len(list((tmp_path / "new").iterdir())) == 1
    assert dict(ObservationFolder(tmp_path / "new", session="s").runs) == {
        MeasuredRun(block="b", round=number, arm=first.arm, label=first.indicator.label): "s" for number in (0, 1)
    }
    assert folder.runs == ObservationFolder(tmp_path / "new", session="s").runs


def test_no_file_exceeds_its_limit_and_each_can_be_read_alone(tmp_path: Path) -> None:
    observations = runs(40)
    limit = 12_000

    for o in observations:
        ObservationFolder(tmp_path, session="s", limit_bytes=limit).add([o])

    assert max(file.stat().st_size for file in tmp_path.iterdir()) <= limit
    assert len(list(tmp_path.iterdir())) > 1
    assert read(tmp_path) == observations


def test_a_line_that_was_cut_off_is_removed_and_measured_again(tmp_path: Path) -> None:
    first, second, third = runs(3)
    ObservationFolder(tmp_path, session="s").add([first, second])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-20])

    folder = ObservationFolder(tmp_path, session="s")
    assert [run.round for run in folder.runs] == [0]
    folder.add([third])

    assert read(tmp_path) == [first, third]


def test_another_session_on_a_machine_writes_other_files(tmp_path: Path) -> None:
    first, second = runs(2)
    ObservationFolder(tmp_path, session="one").add([first])

    ObservationFolder(tmp_path, session="two").add([second])

    assert sorted(ObservationFolder(tmp_path, session="three").runs.values()) == ["one", "two"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_line_in_the_middle_is_refused_with_its_place(tmp_path: Path) -> None:
    ObservationFolder(tmp_path, session="s").add(runs(2))
    (file,) = tmp_path.iterdir()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "{", *lines[1:]]) + "\n")

    with pytest.raises(InputError, match=f"`{file}`, line 2"):
        ObservationFolder(tmp_path, session="s")


def test_a_second_process_cannot_measure_into_the_same_folder(tmp_path: Path) -> None:
    first, second = ObservationFolder(tmp_path, session="a"), ObservationFolder(tmp_path, session="a")
    first.lock()

    with pytest.raises(UnavailableError, match="another process writes to the folder"):
        second.lock()


def test_files_beyond_a_thousand_are_read_in_order(tmp_path: Path) -> None:
    for number in (999, 1000, 1001):
        (tmp_path / f"observations-a-{number:03d}.jsonl").write_text("")

    folder = ObservationFolder(tmp_path, session="a")
    folder.add([observation()])

    assert (tmp_path / "observations-a-1001.jsonl").stat().st_size > 0


def test_an_observation_that_is_known_is_not_written_twice(tmp_path: Path) -> None:
    folder = ObservationFolder(tmp_path, session="s")
    folder.add(runs(1))

    folder.add(runs(2))

    assert [o.round for o in read(tmp_path)] == [0, 1]
    assert json.loads(next(tmp_path.iterdir()).read_text().splitlines()[0])["kind"] == "stack"
