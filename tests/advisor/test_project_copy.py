"""The files of a project that its benchmark runs on: copies, and the patterns that select them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from advisor.project.benchmark import select_files
from advisor.project.metadata.copy import copy_files, list_files, pack_copy, unpack_copy
from knowledge.domain.errors import InputError, UnavailableError


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


def test_a_packed_copy_has_the_same_files_modes_and_links(tmp_path: Path) -> None:
    copy, unpacked = tmp_path / "copy", tmp_path / "unpacked"
    (copy / "data").mkdir(parents=True)
    (copy / "data" / "in.csv").write_bytes(b"1\r\n")
    (copy / "run.sh").touch(0o755)
    (copy / "link").symlink_to("data")
    (copy / "far.csv").symlink_to("/outside/ä.csv")

    pack_copy(copy, tmp_path / "new" / "project.zip")
    unpack_copy(tmp_path / "new" / "project.zip", unpacked)

    assert list_files(unpacked) == list_files(copy) == ("data/in.csv", "far.csv", "link", "run.sh")
    assert (unpacked / "link" / "in.csv").read_bytes() == b"1\r\n"
    assert os.access(unpacked / "run.sh", os.X_OK)
    assert os.readlink(unpacked / "far.csv") == "/outside/ä.csv"


def test_unpacking_writes_nothing_outside_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(tmp_path / "project.zip", "w") as archive:
        for name in ("../a", str(tmp_path / "b")):
            archive.writestr(name, "content")
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "..")
        archive.writestr("link/c", "content")

    # The link is not one yet when the file below it is written.
    with pytest.raises(UnavailableError, match="link"):
        unpack_copy(tmp_path / "project.zip", folder)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["project.zip", "unpacked"]
    assert (folder / "a").read_text() == (folder / str(tmp_path / "b").lstrip("/")).read_text() == "content"


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_damaged_or_absent_archive_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "project.zip").write_bytes(content)

    with pytest.raises(InputError, match=r"project.zip` is not the archive of a project"):
        unpack_copy(tmp_path / "project.zip", tmp_path / "unpacked")
    with pytest.raises(UnavailableError, match=r"absent.zip`: No such file"):
        unpack_copy(tmp_path / "absent.zip", tmp_path / "unpacked")


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
