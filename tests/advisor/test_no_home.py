"""Where nothing can be kept, the program says so once, reads what ships, and works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package_index import PackageIndex

Run = Callable[..., subprocess.CompletedProcess[str]]


def a_file_in_the_way(folder: Path) -> dict[str, str]:
    (folder / "file").write_text("")
    return {"HOME": str(folder / "file" / "home")}


def a_device(_: Path) -> dict[str, str]:
    return {"HOME": "/dev/null"}


def a_directory_without_write_permission(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    home.chmod(0o555)
    return {"HOME": str(home)}


def no_home(_: Path) -> dict[str, str]:
    # The user of this number has no entry that would name one.
    return {"HOME": ""}


@pytest.fixture
def run(index: PackageIndex, tmp_path: Path) -> Run:
    """Run the command line in a project, with variables of its own."""
    index.add("a", "1.0", code="")
    index.add("a", "2.0", code="")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    left_out = ("ADVISOR_", "XDG_", "HOME")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}

    def run(*arguments: str, home: dict[str, str], prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        own = {k: v for k, v in home.items() if v}
        return subprocess.run(
            [*prefix, sys.executable, "-c", "from advisor.cli.app import main; main()", *arguments],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**variables, **own, "TMPDIR": str(scratch)},
            timeout=300,
        )

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    return run


def test_advice_is_given_where_nothing_can_be_kept(run: Run, tmp_path: Path) -> None:
    result = run("advise", home=a_file_in_the_way(tmp_path))

    assert result.returncode == 0, result.stderr
    assert "only the observations that ship with the program are used" in result.stderr
    assert "nothing is cached for the next run" in result.stderr
    assert result.stderr.count("warning: ") == 2
    assert (tmp_path / "project" / "pylock.toml").is_file()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_gate_judges_where_nothing_can_be_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project" / "requirements.txt").write_text("a==2.0\n")

    result = run("check", home=a_device(tmp_path))

    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed: " in result.stdout
    assert result.stderr.count("warning: ") == 2


def test_what_would_be_added_is_never_lost_silently(run: Run, tmp_path: Path) -> None:
    (tmp_path / "observations.jsonl").write_text("")

    added = run("knowledge", "import", str(tmp_path / "observations.jsonl"), home=a_file_in_the_way(tmp_path))

    assert added.returncode == 4
    assert "cannot be created" in added.stderr


def test_a_cache_that_can_be_read_is_used(run: Run, tmp_path: Path, first_knowledge: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    own = shutil.copy(first_knowledge, tmp_path / "own.sqlite")
    assert run("advise", "--knowledge", f"sqlite:///{own}", home={"HOME": str(home)}).returncode == 0
    (home / ".local").write_text("")

    result = run("advise", "--offline", home={"HOME": str(home)})

    assert result.returncode == 0, result.stderr
    assert result.stderr.count("warning: ") == 1


SOMEBODY = ("unshare", "--user", "--map-user=54321")
"""Makes the superuser a user who has no entry among the users and no right to ignore permissions."""


def may_become_somebody() -> bool:
    try:
        return subprocess.run([*SOMEBODY, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not may_become_somebody(), reason="no user namespaces")
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [(a_directory_without_write_permission, "permission denied"), (no_home, "there is no home directory")],
)
def test_a_user_who_may_not_write_is_served(
    run: Run, tmp_path: Path, prepare: Callable[[Path], dict[str, str]], reason: str
) -> None:
    home = prepare(tmp_path)

    result = run("advise", "--dry-run", home=home, prefix=SOMEBODY)
    refused = run("knowledge", "import", "pyproject.toml", home=home, prefix=SOMEBODY)

    assert result.returncode == 0, result.stderr
    assert result.stderr.count(reason) == 2
    assert refused.returncode == 4, refused.stderr
    assert "Traceback" not in result.stderr + refused.stderr
    assert not (tmp_path / "project" / "~").exists()
