"""Requirements that would take minutes to read are refused with an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.project.formats.requirements import read_requirements
from advisor.project.read import read_project
from advisor.project.text_file import UnreadableFileError
from knowledge.domain.errors import InputError


@pytest.mark.parametrize("line", ["numpy<3\n", "--pre\n", "no requirement\n"])
def test_a_file_with_too_many_lines_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# six thousand lines\n" + line * 6000)

    with pytest.raises(UnreadableFileError, match=r"requirements.txt` cannot be read: it has more than 5000 lines"):
        read_requirements(path)


def test_files_with_too_many_includes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-r a.txt\n" * 100)
    (tmp_path / "a.txt").write_text("-r b.txt\n" * 100)
    (tmp_path / "b.txt").write_text("numpy<3\n" * 100)

    with pytest.raises(UnreadableFileError, match="more than 5000 lines, including other files"):
        read_requirements(tmp_path / "requirements.txt")


def test_comments_and_hashes_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    hashes = "".join(f" \\\n    --hash=sha256:{n:064x}" for n in range(100))
    path.write_text("# a comment\n\n" * 5000 + f"numpy==2.0.1{hashes}\n" * 60)

    assert len(read_requirements(path).roots) == 60


@pytest.mark.parametrize(
    "include", ["-r a.txt", "-ca.txt", "--pre --requirement='a.txt'", "-r \\\n  a.txt", "--req a.txt"]
)
def test_an_included_file_is_checked_before_it_is_parsed(tmp_path: Path, include: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"scipy\n{include}\n")
    (tmp_path / "a.txt").write_text(f"numpy{' ' * 1000}x\n-r a.txt\n")

    with pytest.raises(UnreadableFileError, match=r"a.txt` cannot be read: a line has 1000 spaces"):
        read_requirements(tmp_path / "requirements.txt")


def test_an_included_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("scipy\n-r endless\n")
    os.mkfifo(tmp_path / "endless")

    with pytest.raises(UnreadableFileError, match="endless` cannot be read: it is not a regular file"):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize("name", ["numpy", "python"])
def test_a_long_constraint_of_poetry_is_refused(tmp_path: Path, name: str) -> None:
    text = f'[tool.poetry.dependencies]\nscipy = "*"\n{name} = "^{" " * 3000}1"\n'
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(InputError, match="longer than 2000 characters"):
        read_project(tmp_path)
