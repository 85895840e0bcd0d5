"""Advice, lock and installation with the configured package index, by pip and by uv."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import read_configuration
from advisor.index.pages.page import DistributionFile
from knowledge.catalogue.rules import CapabilityRule, shipped_rules
from pi_runners.execution.environment import find_uv
from tests.conftest import Advisor

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("network")]


def run(*command: object) -> str:
    completed = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def list_packages(python: Path) -> dict[str, str]:
    listed = json.loads(run(find_uv(), "pip", "list", "--python", python, "--format", "json"))
    return {entry["name"].lower(): entry["version"] for entry in listed}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small real project."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["pandas", "threadpoolctl"]\n')
    return tmp_path


def test_a_lock_is_installed_by_pip_and_by_uv(advisor: Advisor, project: Path) -> None:
    for name in ("pylock.toml", "requirements.txt"):
        completed = advisor("advise", ".", "-o", name, "--format", "json")
        assert completed.returncode == 0, completed.stderr
    stack = {p["name"]: p["version"] for p in json.loads(completed.stdout)["stack"]["packages"]}
    for name in ("with-uv", "with-uv-lock", "with-pip"):
        run(find_uv(), "venv", "--python", sys.executable, project / name)
    python = {name: project / name / "bin" / "python" for name in ("with-uv", "with-uv-lock", "with-pip")}
    run(find_uv(), "pip", "install", "pip>=26.1", "--python", python["with-pip"])
    before = list_packages(python["with-pip"])

    run(
        find_uv(),
        "pip",
        "install",
        "--require-hashes",
        "--python",
        python["with-uv"],
        "-r",
        project / "requirements.txt",
    )
    run(find_uv(), "pip", "install", "--python", python["with-uv-lock"], "-r", project / "pylock.toml")
    run(
        python["with-pip"],
        "-m",
        "pip",
        "install",
        "--no-compile",
        "--require-hashes",
        "-r",
        project / "requirements.txt",
    )
    run(python["with-pip"], "-m", "pip", "install", "--dry-run", "-r", project / "pylock.toml")

    lock = (project / "requirements.txt").read_text()
    assert re.search(r"^pandas==.*\n.*\n    # via mine \(pyproject.toml\)$", lock, re.MULTILINE)
    assert re.search(r"^numpy==.*\n.*\n    # via pandas$", lock, re.MULTILINE)
    assert stack.keys() >= {"numpy", "pandas", "threadpoolctl"}
    assert list_packages(python["with-uv"]) == stack
    assert list_packages(python["with-uv-lock"]) == stack
    assert {k: v for k, v in list_packages(python["with-pip"]).items() if k not in before} == stack


def test_the_advice_is_identical_offline(advisor: Advisor, project: Path) -> None:
    advisor("advise", ".", "--hardware", "h200", "--python", "3.12")
    # The next advice is compared with the written lock.
    online = advisor("advise", ".", "--hardware", "h200", "--python", "3.12", "--format", "json")
    lock = (project / "pylock.toml").read_bytes()
    offline = advisor("advise", ".", "--hardware", "h200", "--python", "3.12", "--format", "json", "--offline")

    assert (online.returncode, offline.returncode) == (0, 0), online.stderr + offline.stderr
    assert offline.stdout == online.stdout
    assert (project / "pylock.toml").read_bytes() == lock


def test_default_pytorch_builds_have_the_cuda_version_of_the_rules(tmp_path: Path) -> None:
    client = IndexClient(read_configuration(tmp_path), cache=DiskCache(tmp_path))
    rules = [r for r in shipped_rules() if isinstance(r, CapabilityRule) and r.package == "torch" and r.default]
    wheels: dict[Version, DistributionFile] = {}
    for file in client.files(canonicalize_name("torch")):
        if "-cp311-cp311-manylinux" in file.filename and file.filename.endswith("x86_64.whl"):
            wheels[parse_wheel_filename(file.filename)[1]] = file
    client.prefetch(files=wheels.values())

    checked = 0
    for version, file in sorted(wheels.items()):
        for rule in rules:
            if version.local is None and version in SpecifierSet(rule.versions):
                runtimes = [
                    r for r in client.metadata(file).requires if re.match("nvidia-cuda-runtime|cuda-tool", r.name)
                ]
                assert [str(r.specifier).startswith(f"=={rule.cuda}.") for r in runtimes] == [True], (version, runtimes)
                checked += 1
    assert checked >= len(rules)


@pytest.mark.slow
def test_a_v100_gets_the_newest_pytorch_that_supports_it(advisor: Advisor, project: Path) -> None:
    (project / "requirements.txt").write_text("torch\n")

    result = advisor("advise", "-r", "requirements.txt", "--hardware", "v100", "--python", "3.12", "--format", "json")

    stack = {p["name"]: p["version"] for p in json.loads(result.stdout)["stack"]["packages"]}
    baseline = {p["name"]: p["version"] for p in json.loads(result.stdout)["baseline"]["packages"]}
    assert stack["torch"].startswith("2.10.")
    assert stack["torch"] != baseline["torch"]
    assert any(f["code"] == "ADV101" for f in json.loads(result.stdout)["findings"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "stack"), [("tensorflow-cpu", "tensorflow-cpu==2.21.0"), ("torch", "torch==2.13.0")]
)
def test_a_framework_runs_every_indicator(advisor: Advisor, tmp_path: Path, framework: str, stack: str) -> None:
    completed = advisor(
        "pi", "run", "matmul", "conv2d", "training_step", "--stack", stack, "--rounds", "1", "--samples", "2",
        "--min-time", "0.001", "--no-aa", "-o", "block.jsonl",
    )  # fmt: skip

    assert completed.returncode == 0, completed.stderr
    records = [json.loads(line) for line in (tmp_path / "block.jsonl").read_text().splitlines()]
    observations = [r["record"] for r in records if r["kind"] == "observation"]
    assert {(o["indicator"]["name"], o["status"], o["framework"]) for o in observations} == {
        (name, "ok", framework) for name in ("matmul", "conv2d", "training_step")
    }
