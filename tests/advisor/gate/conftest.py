"""A locked project, and the gate run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.gate.steps import Run
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave the configuration of this machine's pip and uv aside."""
    monkeypatch.setattr("advisor.index.configuration._pip_files", lambda *_: iter(()))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def project(alone: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor) -> Path:
    """A locked project; the working directory is its own."""
    index.add("a", "1.0", ["b"], code="")
    index.add("a", "2.0", ["b"], code="")
    index.add("b", "1.0", code="")
    index.add("b", "1.1", code="")
    folder = tmp_path
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = [\n  "a",\n]\n\n[tool.uv]\nindex-url = "{index.url}"\n\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    done = advisor_here("advise")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def check(advisor_here: Advisor) -> Run:
    """Run the gate and return its JSON report."""

    def run(*arguments: str) -> dict[str, Any]:
        done = advisor_here("check", "--format", "json", *arguments)
        assert "Traceback" not in done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode, done.stderr
        return document

    return run
