"""What reports and locks say of packages that others replace, and whether pip and uv install such locks."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pi_runners.execution.environment import find_uv
from tests.advisor.replacement_projects import CPU, add_frameworks, findings, locked, write_project
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def frameworks(index: PackageIndex) -> PackageIndex:
    """An index with packages that exist for several kinds of hardware."""
    return add_frameworks(index)


@pytest.mark.parametrize("settings_text", ["", 'replace-packages = { tensorflow = "tensorflow-cpu" }'])
def test_the_explanation_of_a_replaced_package_is_that_of_its_replacement(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path, settings_text: str
) -> None:
    folder = write_project(tmp_path / "p", "user-of-tensorflow", "tensorflow>=2.19", settings=settings_text)
    here = ("--index-url", frameworks.url, *CPU, *(() if settings_text else ("--allow", "replace-packages")))

    text = advisor("explain", "TensorFlow", *here, cwd=folder).stdout
    document = json.loads(advisor("explain", "tensorflow-cpu", *here, "--format", "json", cwd=folder).stdout)

    assert text.startswith("package   tensorflow-cpu 2.20.0\nreplaces  tensorflow (https://")
    assert "why       newest for the target; instead of `tensorflow`" in text
    assert re.search(r"by user-of-tensorflow 1\.0 +tensorflow-cpu>=2\n", text)
    (replaced,) = document["replaces"]
    assert (replaced["name"], replaced["by_project"]) == ("tensorflow", True)
    assert replaced["required_by"] == ["user-of-tensorflow"]
    assert document["why"] == "newest for the target; instead of `tensorflow`"


def test_a_package_that_nothing_replaces_is_still_not_in_the_stack(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow")

    result = advisor("explain", "jax", "--index-url", frameworks.url, *CPU, "--allow", "replace-packages", cwd=folder)

    assert result.returncode == 2
    assert "the recommended stack does not contain `jax`" in result.stderr


def test_the_tree_says_what_a_package_is_there_instead_of(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "user-of-tensorflow")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")

    whole = advisor("tree", *here, cwd=folder).stdout
    part = advisor("tree", *here, "--package", "tensorflow", cwd=folder).stdout
    document = json.loads(advisor("tree", *here, "--format", "json", cwd=folder).stdout)

    assert "tensorflow-cpu 2.20.0 (instead of tensorflow)" in whole
    assert part == "tensorflow-cpu 2.20.0 (instead of tensorflow)\n"
    assert {p["name"]: p["instead_of"] for p in document["packages"]} == {
        "tensorflow-cpu": ["tensorflow"],
        "user-of-tensorflow": [],
    }


def test_a_package_that_only_a_rejected_version_requires_is_not_called_replaced(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    frameworks.add("lib", "1.0")
    frameworks.add("app", "2.0", ["tensorflow", "lib<1"])
    frameworks.add("app", "1.0", ["tensorflow-cpu"])
    folder = write_project(tmp_path / "p", "app")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages", "--format", "json")

    result = advisor("advise", *here, cwd=folder)

    assert locked(folder) == {"app": "1.0", "tensorflow-cpu": "2.20.0"}
    assert not any("is locked where" in message for _, message in findings(result))
    assert "instead of" not in result.stdout


def test_a_lock_whose_packages_require_a_replaced_one_says_how_to_install_it(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "user-of-tensorflow")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")

    report = advisor("advise", *here, "-o", "lock.txt", "-o", "pylock.toml", cwd=folder).stdout

    reason = "user-of-tensorflow requires tensorflow, which tensorflow-cpu replaces"
    header = (folder / "lock.txt").read_text().partition("--index-url")[0].splitlines()
    assert header[1:] == ["# install it with `pip install --no-deps -r FILE` or `uv pip sync FILE`:", f"#   {reason}"]
    written = " ".join(report.partition("\nwrote ")[2].partition("\nmore ")[0].split())
    how = f"install it with `pip install --no-deps -r lock.txt` or `uv pip sync lock.txt`: {reason}"
    assert written == f"`lock.txt` {how} `pylock.toml`"
    assert advisor("check", *here, "--current", "lock.txt", cwd=folder).returncode == 0


@pytest.mark.parametrize("requirements", [("tensorflow",), ("jax",)])
def test_a_lock_that_pip_installs_as_usual_says_nothing(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path, requirements: tuple[str, ...]
) -> None:
    folder = write_project(tmp_path / "p", *requirements)
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")

    report = advisor("advise", *here, "-o", "lock.txt", cwd=folder).stdout

    assert "\nwrote     `lock.txt`\nmore " in report
    assert "--no-deps" not in (folder / "lock.txt").read_text()


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed")
@pytest.mark.parametrize("package", ["tensorflow", "user-of-tensorflow"])
def test_pip_and_uv_install_a_lock_as_it_says(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path, package: str
) -> None:
    folder = write_project(tmp_path / "p", package)
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")
    advisor("advise", *here, "-o", "lock.txt", cwd=folder)
    needs_no_deps = "--no-deps" in (folder / "lock.txt").read_text()
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-cache-dir", "--target", "x", "-r", "lock.txt"]
    uv = [find_uv(), "pip", "sync", "--dry-run", "--no-config", "--python", sys.executable, "--target", "x", "lock.txt"]

    plain, without_dependencies, synchronised = (
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        for command in (pip, [*pip, "--no-deps"], uv)
    )

    assert needs_no_deps == (package == "user-of-tensorflow")
    assert (plain.returncode != 0) == needs_no_deps
    assert without_dependencies.returncode == 0, without_dependencies.stderr
    assert synchronised.returncode == 0, synchronised.stderr
