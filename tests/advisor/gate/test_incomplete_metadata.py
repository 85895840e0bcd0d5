"""Packages that need more than their metadata states: `jax` a `jaxlib`, `torchaudio` a `torch` of its CUDA version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.advisor.gate.steps import Run, places
from tests.advisor.publisher_index import CPU, NEW_GPU, messages, packages
from tests.conftest import Advisor
from tests.package_index import PackageIndex


def write_project(folder: Path, index: PackageIndex, *requirements: str) -> None:
    """Write a project whose only index is the given one."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.12"\ndependencies = {json.dumps(requirements)}\n'
        f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )


@pytest.fixture
def jax(index: PackageIndex) -> PackageIndex:
    """Two versions of `jax`, of which the older one does not declare `jaxlib`."""
    index.add("jax", "0.4.20", code="")
    index.add("jax", "0.4.30", ["jaxlib<=0.4.30,>=0.4.27"], code="")
    for version in ("0.4.13", "0.4.19", "0.4.21", "0.4.30"):
        index.add("jaxlib", version, code="")
    return index


@pytest.mark.parametrize(("requirement", "jaxlib"), [("jax==0.4.20", "0.4.19"), ("jax", "0.4.30")])
def test_jax_is_locked_with_a_jaxlib_that_it_accepts(
    advisor_here: Advisor, jax: PackageIndex, tmp_path: Path, requirement: str, jaxlib: str
) -> None:
    write_project(tmp_path, jax, requirement)

    result = advisor_here("advise", "--format", "json")

    assert result.returncode == 0, result.stderr
    assert packages(tmp_path)["jaxlib"]["version"] == jaxlib
    reported = messages(result.stdout, "ADV102")
    assert reported == (
        "`jax 0.4.20` requires `jaxlib<=0.4.20,>=0.4.14`, which its metadata does not state"
        if requirement == "jax==0.4.20"
        else ""
    )


def test_an_override_replaces_a_requirement_that_metadata_does_not_state(
    advisor_here: Advisor, jax: PackageIndex, tmp_path: Path
) -> None:
    write_project(tmp_path, jax, "jax==0.4.20")
    with (tmp_path / "pyproject.toml").open("a") as file:
        file.write('overrides = ["jaxlib==0.4.13"]\n')

    assert advisor_here("advise").returncode == 0

    assert packages(tmp_path)["jaxlib"]["version"] == "0.4.13"


def test_a_lock_of_jax_without_jaxlib_does_not_pass_the_gate(check: Run, jax: PackageIndex, tmp_path: Path) -> None:
    write_project(tmp_path, jax, "jax==0.4.20")
    (tmp_path / "freeze.txt").write_text("jax==0.4.20\n")

    report = check("--current", "freeze.txt")

    assert {code for code, _, _ in places(report)} >= {"ADV001"}
    assert "`jaxlib` (for `jax`)" in messages(json.dumps(report), "ADV001")


@pytest.mark.parametrize(("audio", "torch"), [("2.11.0", "2.14.1"), ("2.11.1", "2.15.0")])
@pytest.mark.parametrize("hardware", [CPU, NEW_GPU])
def test_torchaudio_is_locked_with_a_torch_of_its_cuda_version(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, hardware: tuple[str, ...], audio: str, torch: str
) -> None:
    index.add("torch", "2.14.1", code="")
    index.add("torch", "2.15.0", code="")
    index.add("torchaudio", audio, code="")
    write_project(tmp_path, index, "torch", "torchaudio")

    result = advisor_here("advise", *hardware)

    assert result.returncode == 0, result.stderr
    assert packages(tmp_path)["torch"]["version"] == torch


def test_a_conflict_names_the_source_of_a_requirement_that_metadata_does_not_state(
    advisor_here: Advisor, jax: PackageIndex, tmp_path: Path
) -> None:
    write_project(tmp_path, jax, "jax==0.4.20", "jaxlib==0.4.30")

    result = advisor_here("advise")

    assert result.returncode == 3
    (line,) = [line for line in result.stderr.splitlines() if "requires `jaxlib" in line]
    assert "its metadata does not state it: https://docs.jax.dev/en/latest/changelog.html" in line
