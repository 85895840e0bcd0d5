"""The hint about a conflict that pre-releases would solve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Advisor
from tests.package_index import PackageIndex

ARGUMENTS = ("advise", "--hardware", "cpu-zen4", "--python", "3.12", "--dry-run")


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project whose requirements have no solution without pre-releases."""
    index.add("a", "1.0", ["b>=2"])
    for version in ("1.0", "2.1rc1"):
        index.add("b", version)
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\na\n")
    return tmp_path


def test_the_hint_names_the_option_and_the_pre_release(project: Path, advisor_here: Advisor) -> None:
    refused = advisor_here(*ARGUMENTS)
    solved = advisor_here(*ARGUMENTS, "--prereleases")

    assert refused.returncode == 3
    assert "hint: pre-releases solve it: `--prereleases` admits `b 2.1rc1`" in refused.stderr
    assert solved.returncode == 0


def test_the_hint_names_it_for_a_requirement_of_the_project(
    project: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    (project / "requirements.txt").write_text(f"--index-url {index.url}\nb>=2\n")

    refused = advisor_here(*ARGUMENTS)

    assert "hint: pre-releases solve it: `--prereleases` admits `b 2.1rc1`" in refused.stderr


def test_pre_releases_that_do_not_solve_a_conflict_are_no_hint(
    project: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    (project / "requirements.txt").write_text(f"--index-url {index.url}\na\nb<2\n")

    refused = advisor_here(*ARGUMENTS)

    assert refused.returncode == 3
    assert "--prereleases" not in refused.stderr
