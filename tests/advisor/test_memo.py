"""Answers are remembered for equal questions to the same program."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.index.cache import DiskCache
from advisor.index.memo import Memo, files_digest
from knowledge.domain.identity import plain


@dataclass(frozen=True)
class _Question:
    names: frozenset[str]
    _derived: int = 0


@pytest.fixture
def memo(tmp_path: Path) -> Memo:
    """A memo without answers."""
    return Memo(DiskCache(tmp_path), "kind")


def fail() -> None:
    """Fail because the answer should be remembered."""
    pytest.fail("computed a second time")


@pytest.mark.parametrize("answer", [None, 0, "text", {"a": [1, 2]}])
def test_an_answer_is_computed_once(memo: Memo, answer: object) -> None:
    first = memo.answer(["question"], lambda: answer)

    assert first == answer
    assert memo.answer(["question"], fail) == answer
    assert memo.read(["question"]) == answer
    assert memo.knows(["question"])


def test_another_question_or_kind_has_another_answer(memo: Memo, tmp_path: Path) -> None:
    memo.write(["question"], "answer")

    assert memo.read(["other"]) is None
    assert not memo.knows(["other"])
    assert Memo(DiskCache(tmp_path), "other").read(["question"]) is None


def make_older(path: Path, days: float) -> None:
    """Make a file older."""
    seconds = time.time() - days * 86_400
    os.utime(path, (seconds, seconds))


def test_old_answers_are_removed_when_another_one_is_remembered(memo: Memo, tmp_path: Path) -> None:
    memo.write(["old"], "answer")
    memo.write(["recent"], "answer")
    old, recent = (DiskCache(tmp_path).path_of("kind", memo._key([name])) for name in ("old", "recent"))
    make_older(old, 31)
    make_older(recent, 29)
    make_older(DiskCache(tmp_path).path_of("pruned", "kind"), 2)
    DiskCache(tmp_path).write("pages", "download", b"content")
    make_older(DiskCache(tmp_path).path_of("pages", "download"), 100)

    memo.write(["new"], "answer")

    assert memo.read(["old"]) is None
    assert memo.read(["recent"]) == memo.read(["new"]) == "answer"
    assert DiskCache(tmp_path).read("pages", "download") == b"content"


def test_old_answers_are_searched_once_a_day(memo: Memo, tmp_path: Path) -> None:
    memo.write(["old"], "answer")
    make_older(DiskCache(tmp_path).path_of("kind", memo._key(["old"])), 31)

    memo.write(["new"], "answer")

    assert memo.read(["old"]) == "answer"


def test_another_program_does_not_find_the_answer(memo: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    memo.write(["question"], "answer")
    monkeypatch.setattr("advisor.index.memo.program_digest", lambda: "another program")

    assert memo.read(["question"]) is None


def test_a_computed_answer_is_equal_to_the_remembered_one(memo: Memo) -> None:
    assert memo.answer(["question"], lambda: {"pair": (1, 2)}) == memo.read(["question"]) == {"pair": [1, 2]}


def test_equal_values_are_the_same_question(memo: Memo) -> None:
    memo.write(_Question(frozenset({"a", "b"}), _derived=1), "answer")

    assert memo.read(_Question(frozenset({"b", "a"}), _derived=2)) == "answer"
    assert memo.read(_Question(frozenset({"a"}))) is None


def test_a_question_is_json(tmp_path: Path) -> None:
    question = plain([tmp_path, {1: ("a", 2.5)}, frozenset({"b", "a"}), fail])

    assert json.loads(json.dumps(question)) == [str(tmp_path), {"1": ["a", 2.5]}, ["a", "b"], None]


def program(folder: Path) -> Path:
    """Write the files of a small program, and return the one that contains data."""
    for package in ("advisor", "knowledge", "pi_runners"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    data = folder / "knowledge" / "rules.yaml"
    data.write_text("- a")
    return data


def test_an_edited_file_is_another_program(tmp_path: Path) -> None:
    data = program(tmp_path)
    before = files_digest(tmp_path)
    data.write_text("- ab")

    assert files_digest(tmp_path) != before


def test_a_compiled_file_is_not_another_program(tmp_path: Path) -> None:
    data = program(tmp_path)
    before = files_digest(tmp_path)
    (data.parent / "__pycache__").mkdir()
    (data.parent / "__pycache__" / "__init__.cpython-312.pyc").write_text("")

    assert files_digest(tmp_path) == before


def test_an_equal_installation_on_another_machine_is_the_same_program(tmp_path: Path) -> None:
    digests = []
    for machine, rules in (("one", "x"), ("other", "x"), ("third", "y")):
        program(tmp_path / machine)
        record = tmp_path / machine / "seshat_advisor-0.1.0.dist-info" / "RECORD"
        record.parent.mkdir()
        installer = f"../../bin/advisor,sha256={machine},1\nadvisor/__pycache__/a.pyc,,\n"
        record.write_text(f"knowledge/rules.yaml,sha256={rules},3\nadvisor/__init__.py,sha256=z,0\n{installer}")
        digests.append(files_digest(tmp_path / machine))

    assert digests[0] == digests[1] != digests[2]
