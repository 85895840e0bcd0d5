"""What a change brings beside its lock: a cache, a knowledge base, indexes, lost hashes, locks that nobody judges."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor


@pytest.fixture
def repository(project: Path) -> Path:
    """The project, committed."""
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    return project


def found(document: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["code"] == code]


def test_a_cache_that_the_change_brings_is_refused(repository: Path, advisor_here: Advisor) -> None:
    (repository / ".cache").mkdir()
    (repository / ".cache" / "listed").write_text("forged")
    arguments = ("check", "--base", "HEAD", "--policy-from-base", "--cache-dir", ".cache")
    fine = advisor_here(*arguments)
    git(repository, "add", "-f", ".cache/listed")

    done = advisor_here(*arguments)

    assert fine.returncode == 0, fine.stderr
    assert done.returncode == 2
    assert "the cache `.cache` holds files of the repository, such as `.cache/listed`" in done.stderr


def test_a_cache_behind_a_link_of_the_change_is_refused(repository: Path, advisor_here: Advisor) -> None:
    (repository / "forged").mkdir()
    (repository / "forged" / "listed").write_text("forged")
    (repository / ".cache").symlink_to("forged")
    git(repository, "add", "-f", "forged")

    done = advisor_here("check", "--policy-from-base", "--cache-dir", ".cache")

    assert done.returncode == 2
    assert "holds files of the repository" in done.stderr


def test_the_knowledge_base_of_the_base_is_used(
    repository: Path, check: Run, first_knowledge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADVISOR_KNOWLEDGE")
    shutil.copy(first_knowledge, repository / "known.sqlite")
    change(repository / "pyproject.toml", 'python = "3.12"', 'python = "3.12"\nknowledge = "sqlite:///known.sqlite"')
    git(repository, "add", "known.sqlite", "pyproject.toml")
    git(repository, "commit", "-qm", "known")
    (repository / "known.sqlite").write_bytes(b"no database" * 1000)

    document = check("--base", "HEAD", "--policy-from-base")

    assert document["exit_code"] == 0
    assert [f["subject"] for f in found(document, "ADV028")] == ["known.sqlite"]


def test_a_knowledge_base_that_only_the_change_has_is_refused(
    repository: Path, advisor_here: Advisor, first_knowledge: Path
) -> None:
    shutil.copy(first_knowledge, repository / "known.sqlite")
    git(repository, "add", "known.sqlite")

    done = advisor_here("check", "--base", "HEAD", "--policy-from-base", "--knowledge", "known.sqlite")

    assert done.returncode == 2
    assert "the knowledge base `known.sqlite` is part of the change, and `HEAD` does not have it" in done.stderr
