"""The files of a project that its benchmark runs on: copies, and the patterns that select them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from advisor.project.benchmark import select_files
from advisor.project.metadata.copy import copy_files, list_files


def test_the_copy_has_what_git_tracks_or_does_not_ignore(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside.csv"
    (project / "data").mkdir(parents=True)
    outside.write_text("1")
    for name in ("bench.py", "data/in.csv", "new.py", "deleted.py", "out.log"):
        (project / name).write_text(name)
    (project / ".gitignore").write_text("*.log\n")
    (project / "link.csv").symlink_to("data/in.csv")
    (project / "far.csv").symlink_to("../outside.csv")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "bench.py", "deleted.py", "data"], cwd=project, check=True)
    (project / "deleted.py").unlink()

    names = list_files(project)
    copied = copy_files(project, names, tmp_path / "copy")

    assert names == (".gitignore", "bench.py", "data/in.csv", "far.csv", "link.csv", "new.py")
    assert (tmp_path / "copy" / "far.csv").read_text() == "1"
    assert os.readlink(tmp_path / "copy" / "link.csv") == "data/in.csv"
    assert copied == sum(len(name) for name in ("bench.py", "data/in.csv", "new.py", "*.log\n"))


def test_without_git_the_copy_has_everything_except_environments_and_caches(tmp_path: Path) -> None:
    for name in ("bench.py", "env/pyvenv.cfg", "env/lib/x.py", "a/__pycache__/x.pyc", "a/b.py", ".mypy_cache/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert list_files(tmp_path) == ("a/b.py", "bench.py")


@pytest.mark.parametrize(
    ("pattern", "selected"),
    [
        ("*.py", ("a.py",)),
        ("**/*.py", ("a.py", "d/b.py", "d/e/c.py")),
        ("d/*.py", ("d/b.py",)),
        ("d", ("d/b.py", "d/e/c.py", "d/x.csv")),
        ("d/**", ("d/b.py", "d/e/c.py", "d/x.csv")),
        ("d/**/c.py", ("d/e/c.py",)),
        ("[ab].py", ("a.py",)),
    ],
)
def test_patterns_select_files(pattern: str, selected: tuple[str, ...]) -> None:
    assert select_files((pattern,), ("a.py", "d/b.py", "d/e/c.py", "d/x.csv")) == selected
