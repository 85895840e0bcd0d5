"""SIGKILL at random moments of a lock update, an import, a campaign and a migration.

Most of it is slow, and `python -m benchmarks.kills` prints it. Quick tests of the same kind are in
`tests/knowledge/test_store_dangers.py` (writers of a knowledge base) and in `tests/pi_runners/test_measuring.py`
(campaigns); campaigns on Slurm are killed in `tests/advisor/campaign/test_kills.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kill_operations import NEW, NEXT_REVISION, OLD, OPERATIONS, Operation, ViolationError
from benchmarks.kills import kill_often
from tests.package_index import PackageIndex

OPEN = f"""
import os
{NEXT_REVISION}
from knowledge.store.engine import open_knowledge_base
open_knowledge_base(os.environ["ADVISOR_KNOWLEDGE"], shipped=False).close()
"""


@pytest.mark.parametrize("name", [pytest.param("lock", marks=pytest.mark.slow), "migration"])
def test_files_are_complete_after_a_kill(name: str, index: PackageIndex, tmp_path: Path, first_knowledge: Path) -> None:
    operation = OPERATIONS[name](tmp_path, index, first_knowledge)
    if name == "migration":
        # Adding the shipped observations would take longer than everything else.
        operation.program = (sys.executable, "-c", OPEN)

    tally = kill_often(operation, tmp_path, kills=2, seed=1)

    assert tally.violations == ()
    assert tally.states.total() == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_files_are_complete_after_many_kills(
    name: str, index: PackageIndex, tmp_path: Path, first_knowledge: Path
) -> None:
    tally = kill_often(OPERATIONS[name](tmp_path, index, first_knowledge), tmp_path, kills=50, seed=2)

    print(tally.row)
    assert tally.violations == ()


class NonAtomicProgram(Operation):
    """A program that does not write files atomically."""

    name = "torn"
    variants = 1

    def prepare(self, folder: Path, variant: int) -> None:
        folder.mkdir()
        (folder / "file").write_text("old")

    def command(self, folder: Path, variant: int) -> list[str]:
        raise NotImplementedError

    def start(self, folder: Path, variant: int, output: Path) -> subprocess.Popen[bytes]:
        output.touch()
        program = "import os\nfor text in ('ne', 'new'): os.system(f'printf {text} > file')"
        return subprocess.Popen([sys.executable, "-c", program], cwd=folder)

    def watched(self, folder: Path) -> Path:
        return folder

    def outcome(self, folder: Path, variant: int) -> object:
        return (folder / "file").read_text()

    def kill(self, folder: Path, number: int, process: subprocess.Popen[bytes]) -> bool:
        process.wait()
        # The states after a kill between the two writes, and after one that destroys the input of the next run.
        (folder / "file").write_text("ne" if number == 0 else "old")
        (folder / "file").chmod(0o444 if number == 1 else 0o644)
        return True

    def state(self, folder: Path, variant: int, output: str) -> str:
        text = (folder / "file").read_text()
        if text not in ("old", "new"):
            raise ViolationError(f"the file is `{text}`")
        return {"old": OLD, "new": NEW}[text]

    def repeat(self, folder: Path, variant: int, process: subprocess.Popen[bytes], output: Path) -> None:
        if (folder / "file").stat().st_mode & 0o200:
            super().repeat(folder, variant, process, output)


def test_an_incomplete_file_and_another_outcome_are_violations(tmp_path: Path) -> None:
    tally = kill_often(NonAtomicProgram(), tmp_path, kills=3, seed=1)

    assert [text.rpartition(": ")[2] for text in tally.violations] == [
        "the file is `ne`",
        "repeating it does not produce the outcome of the reference run",
    ]
    assert tally.states == {"old": 2}
