"""Fixtures: a locked project, and functions that run the gate on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.gate.checks.locked_files import LockedFiles
from advisor.gate.policy import read_policy
from advisor.index.client import IndexClient
from advisor.locks.registry import read_lock
from knowledge.store.engine import open_knowledge_base
from tests.advisor.factories import build_client, build_problem, build_scope
from tests.advisor.gate.lock_texts import SDIST, WHEEL, WINDOWS, Compare, Document, Found
from tests.advisor.gate.steps import Run
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor) -> Path:
    """A locked project; its directory is the working directory."""
    index.add("a", "1.0", ["b"], code="")
    index.add("a", "2.0", ["b"], code="")
    index.add("b", "1.0", code="")
    index.add("b", "1.1", code="")
    folder = tmp_path
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = [\n  "a",\n]\n\n[tool.uv]\nindex-url = "{index.url}"\n\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    result = advisor_here("advise")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def slow_tensorflow(advisor_here: Advisor, tmp_path: Path) -> None:
    """Invented measurements in which TensorFlow 2.12 takes 10 times as long as 2.20, and 2.15 as long as that."""
    ratios = {"2.20.0": 1.0, "2.12.1": 0.1, "2.15.1": 1.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))


@pytest.fixture
def slow_without_onednn(advisor_here: Advisor, tmp_path: Path) -> None:
    """Invented measurements in which TensorFlow takes 50 times as long without oneDNN."""
    ratios = {"2.20.0": 1.0, "2.20.0 onednn=off": 0.02, "2.15.1": 1.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))


@pytest.fixture
def check(advisor_here: Advisor) -> Run:
    """Run the gate and return its JSON report."""

    def run(*arguments: str) -> dict[str, Any]:
        result = advisor_here("check", "--format", "json", *arguments)
        assert "Traceback" not in result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        assert document["exit_code"] == result.returncode, result.stderr
        return document

    return run


@pytest.fixture
def six(index: PackageIndex) -> Document:
    """The entry of `six 1.16.0` in a correct lock: a universal wheel, a wheel for Windows, and the sdist."""
    index.add("six", "1.15.0", code="")
    index.add("six", "1.16.0", code="")
    index.add("six", "1.16.0", tag="cp312-cp312-win_amd64", code="")
    index.add_sdist("six", "1.16.0")
    index.add("six2", "1.16.0", code="")
    files = {
        entry["filename"]: {
            "name": entry["filename"],
            "url": index.url.removesuffix("/simple/") + entry["url"],
            "size": entry["size"],
            "hashes": dict(entry["hashes"]),
        }
        for entry in index.entries["six"]
    }
    return {
        "name": "six",
        "version": "1.16.0",
        "index": index.url,
        "sdist": files[SDIST],
        "wheels": [files[WHEEL], files[WINDOWS]],
    }


@pytest.fixture
def compare(index: PackageIndex, tmp_path: Path) -> Iterator[Compare]:
    """Compare a lock with the index; return code and subject of each finding except notes."""
    clients: list[IndexClient] = []

    def run(name: str, text: str, *, client: IndexClient | None = None, policy: Document | None = None) -> Found:
        (tmp_path / name).write_text(text)
        problem = build_problem("six")
        clients.append(client or build_client(index, tmp_path / "cache"))
        scope = build_scope(
            read_lock(tmp_path / name, problem.target),
            problem,
            policy=read_policy(policy or {}),
            allowed_indexes=(policy or {}).get("indexes", (clients[-1].configuration.default,)),
            client=clients[-1],
        )
        findings = LockedFiles(scope).findings
        return {(finding.code, finding.subject) for finding in findings if finding.level != "note"}

    yield run
    for client in clients:
        client.close()
