"""`advisor advise --measure`: real locks, environments and processes of small packages that a local index serves."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import Advisor
from tests.package_index import PackageIndex

PROJECT = """
[project]
name = "demo"
version = "1"
dependencies = ["lib"]

[tool.advisor.benchmark]
command = "python bench.py"
metric = { pattern = "seconds: ([0-9.]+)", unit = "s", better = "lower" }
"""
PROGRAM = "import lib\nprint('seconds:', lib.seconds())\n"
NOISE = "import random\ndef seconds():\n    return {} * random.gauss(1, 0.004)\n"


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A project with five releases of a package: one is 15 % faster than the newest, and two fail."""
    for version, code in (
        ("1.0", NOISE.format(1.0)),
        ("1.1", NOISE.format(1.0 / 1.15)),
        ("1.2", "raise ImportError('lib 1.2 is broken')"),
        ("1.3", "def seconds():\n    raise SystemExit('lib 1.3 crashes')"),
        ("1.4", NOISE.format(1.0)),
    ):
        index.add("lib", version, code=code)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "bench.py").write_text(PROGRAM)
    return folder


def test_the_faster_release_is_found_locked_and_certified(advisor: Advisor, index: PackageIndex, project: Path) -> None:
    completed = advisor("advise", "--measure", "4m", "--max-load", "100", "--index-url", index.url, cwd=project)

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.1: 1\.\d\d times as fast \[1\.\d\d, 1\.\d\d\] as the newest versions", text)
    assert "within 2 % of the best of 5 arms with 95 % confidence" in text
    lock = tomllib.loads((project / "pylock.toml").read_text())
    assert [(p["name"], p["version"]) for p in lock["packages"]] == [("lib", "1.1")]
    certificate = lock["tool"]["advisor"]["certificate"]
    assert certificate["is-certain"] is True
    assert (certificate["arms"], certificate["measured-arms"]) == (5, 3)


def test_a_certificate_is_void_for_another_lock_or_another_program(
    advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    advisor("advise", "--measure", "4m", "--max-load", "100", "--index-url", index.url, cwd=project)
    lock = project / "pylock.toml"

    def void() -> list[str]:
        checked = advisor("check", "--format", "json", "--index-url", index.url, cwd=project)
        findings = json.loads(checked.stdout)["findings"]
        return [f["message"].partition(": ")[2] for f in findings if f["code"] == "ADV040"]

    assert void() == []
    measured = lock.read_text()
    lock.write_text(measured.replace('version = "1.1"', 'version = "1.0"').replace("lib-1.1-", "lib-1.0-"))
    assert void() == ["the lock has other versions or settings than those that were measured"]
    lock.write_text(measured)
    (project / "bench.py").write_text(PROGRAM + "print('done')\n")
    assert void() == ["the program that was measured has changed"]
