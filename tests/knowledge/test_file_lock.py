"""A lock is held by one open file, which child processes can inherit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from knowledge.domain.shared_files import lock_file


def test_only_one_open_file_holds_a_lock_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("content")

    first = lock_file(path)
    assert first is not None
    second = lock_file(path)
    first.close()
    third = lock_file(path)

    assert second is None
    assert third is not None
    assert path.read_text() == "content"
    third.close()


def test_a_child_process_that_inherits_the_file_holds_the_lock(tmp_path: Path) -> None:
    file = lock_file(tmp_path / "lock")
    assert file is not None
    program = "import sys; sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, pass_fds=(file.fileno(),))

    file.close()
    while_it_runs = lock_file(tmp_path / "lock")
    child.communicate()
    afterwards = lock_file(tmp_path / "lock")

    assert while_it_runs is None
    assert afterwards is not None
    afterwards.close()


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_file(tmp_path / "missing" / "lock")
