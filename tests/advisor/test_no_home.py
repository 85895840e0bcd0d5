"""Without a writable home directory, the program warns once, uses the shipped observations, and works."""

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


def home_is_a_file(folder: Path) -> dict[str, str]:
    (folder / "file").write_text("")
    return {"HOME": str(folder / "file" / "home")}


def home_is_a_device(_: Path) -> dict[str, str]:
    return {"HOME": "/dev/null"}


def home_is_read_only(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    home.chmod(0o555)
    return {"HOME": str(home)}


def no_home(_: Path) -> dict[str, str]:
    # The user with this id has no entry with a home directory.
    return {"HOME": ""}


@pytest.fixture
def run(index: PackageIndex, tmp_path: Path) -> Run:
    """Run the command line in a project with its own variables."""
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
            env={**variables, **own, "TMPDIR": str(scratch), "ADVISOR_ADVISORIES": "off"},
            timeout=300,
        )

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    return run


def test_advise_works_without_a_writable_home(run: Run, tmp_path: Path) -> None:
    result = run("advise", home=home_is_a_file(tmp_path))

    assert result.returncode == 0, result.stderr
    assert "only the observations that ship with the program are used" in result.stderr
    assert "nothing is cached for the next run" in result.stderr
    assert result.stderr.count("warning: ") == 2
    assert (tmp_path / "project" / "pylock.toml").is_file()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.slow
def test_the_gate_works_without_a_writable_home(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project" / "requirements.txt").write_text("a==2.0\n")

    result = run("check", home=home_is_a_device(tmp_path))

    assert result.returncode == 0, result.stdout + result.stderr
    assert "\npassed    0 errors" in result.stdout
    assert result.stderr.count("warning: ") == 2


def test_adding_observations_without_a_writable_home_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "observations.jsonl").write_text("")

    added = run("knowledge", "import", str(tmp_path / "observations.jsonl"), home=home_is_a_file(tmp_path))

    assert added.returncode == 4
    assert "cannot be created" in added.stderr


def test_a_read_only_cache_is_used(run: Run, tmp_path: Path, first_knowledge: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    own = shutil.copy(first_knowledge, tmp_path / "own.sqlite")
    assert run("advise", "--knowledge", f"sqlite:///{own}", home={"HOME": str(home)}).returncode == 0
    (home / ".local").write_text("")

    result = run("advise", "--offline", home={"HOME": str(home)})

    assert result.returncode == 0, result.stderr
    assert result.stderr.count("warning: ") == 1


UNPRIVILEGED = ("unshare", "--user", "--map-user=54321")
"""Command that runs another one as a user without an entry and without the right to ignore permissions."""


def can_drop_privileges() -> bool:
    try:
        return subprocess.run([*UNPRIVILEGED, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_drop_privileges(), reason="no user namespaces")
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (home_is_read_only, "permission denied"),
        pytest.param(no_home, "there is no home directory", marks=pytest.mark.slow),
    ],
)
def test_a_user_without_write_permission_can_run_the_program(
    run: Run, tmp_path: Path, prepare: Callable[[Path], dict[str, str]], reason: str
) -> None:
    home = prepare(tmp_path)

    result = run("advise", "--dry-run", home=home, prefix=UNPRIVILEGED)
    refused = run("knowledge", "import", "pyproject.toml", home=home, prefix=UNPRIVILEGED)

    assert result.returncode == 0, result.stderr
    assert result.stderr.count(reason) == 2
    assert refused.returncode == 4, refused.stderr
    assert "Traceback" not in result.stderr + refused.stderr
    assert not (tmp_path / "project" / "~").exists()
