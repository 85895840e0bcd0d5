"""Builds for another vendor's accelerators are not recommended; the report names the target's accelerator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from knowledge.catalogue.rule_book import RuleBook
from knowledge.catalogue.rules import shipped_rules
from knowledge.hardware.profiles import find_profile
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project that requires PyTorch; the index has its default builds, which are for CUDA."""
    for version in ("2.9.0", "2.10.0"):
        index.add("torch", version, ["nvidia-cuda-runtime-cu12"], tag="cp312-cp312-manylinux_2_28_x86_64", code="")
    index.add("nvidia-cuda-runtime-cu12", "12.8.90", code="")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\n")
    return tmp_path


ARGUMENTS = ("advise", "--hardware", "mi300x", "--python", "3.12")


def test_a_cuda_build_is_refused_on_an_amd_target_with_rule_and_hint(project: Path, advisor_here: Advisor) -> None:
    result = advisor_here(*ARGUMENTS)

    assert result.returncode == 3
    assert not (project / "pylock.toml").exists()
    assert "(rule `torch-default-is-cuda`)" in result.stderr
    assert "AMD Instinct MI300X" in result.stderr
    assert "`--framework-indexes` also considers the builds for other accelerators" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("hint: choose another target, or builds that the rules allow")


def test_a_rocm_build_is_recommended_and_the_accelerator_is_reported(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    index.add("torch", "2.9.0+rocm6.4", tag="cp312-cp312-manylinux_2_28_x86_64", code="")

    text = advisor_here(*ARGUMENTS, "--dry-run")
    document = json.loads(advisor_here(*ARGUMENTS, "--format", "json").stdout)

    assert "mi300x: AMD Instinct MI300X; " in text.stdout
    assert document["target"]["accelerator"] == "AMD Instinct MI300X"
    assert [(p["name"], p["version"]) for p in document["stack"]["packages"]] == [("torch", "2.9.0+rocm6.4")]


def test_the_gate_reports_a_cuda_build_for_an_amd_target(project: Path, advisor_here: Advisor) -> None:
    (project / "requirements.txt").rename(project / "requirements.in")
    (project / "requirements.txt").write_text("torch==2.10.0\nnvidia-cuda-runtime-cu12==12.8.90\n")

    document = json.loads(advisor_here("check", "--hardware", "mi300x", "--python", "3.12", "--format", "json").stdout)

    findings = {(f["package"], f["subject"], f["line"]) for f in document["findings"] if f["code"] == "ADV004"}
    assert findings == {("torch", "torch-default-is-cuda", 1), ("nvidia-cuda-runtime-cu12", "cuda-libraries", 2)}
    assert document["targets"][0]["accelerator"] == "AMD Instinct MI300X"


def test_a_target_without_an_accelerator_is_reported_as_such(project: Path, advisor_here: Advisor) -> None:
    result = advisor_here("advise", "--hardware", "cpu-zen4", "--python", "3.12", "--dry-run")

    assert "cpu-zen4: AMD Zen 4 (AVX-512), no GPU; " in result.stdout


def test_a_jetson_module_gets_the_warning_that_a_generic_build_may_not_use_its_gpu(
    index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    index.add("torch", "2.14.0", tag="cp312-cp312-manylinux_2_28_aarch64", code="")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\n")
    arguments = ("advise", "--python", "3.12", "--dry-run", "--format", "json", "--hardware")

    jetson, server = (json.loads(advisor_here(*arguments, name).stdout) for name in ("jetson-agx-orin", "gh200"))

    def unknown(document: dict[str, list[dict[str, str]]]) -> list[str]:
        return [
            f["package"] for f in document["findings"] if "whether this build uses the GPU is not known" in f["message"]
        ]

    text = advisor_here(*arguments[:4], "--hardware", "jetson-agx-orin").stdout

    assert unknown(jetson) == ["torch"]
    assert unknown(server) == []
    assert "whether this build uses the GPU is not known" in " ".join(text.split())
    assert "[ADV120]" in text


@pytest.mark.parametrize(("version", "is_own"), [("2.14.0", False), ("2.5.0a0+872d972e41.nv24.08", True)])
def test_the_builds_of_nvidia_for_jetson_are_known_by_their_local_version(version: str, is_own: bool) -> None:
    hardware = find_profile("jetson-agx-orin")

    verdicts = RuleBook(shipped_rules(), hardware).judge("torch", Version(version))

    assert ("torch-jetson" not in {verdict.rule for verdict in verdicts}) == is_own


def test_no_other_interpreter_is_named_if_the_rules_exclude_every_stack_there(
    index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    for python in ("312", "313"):
        index.add("torch", "2.10.0", tag=f"cp{python}-cp{python}-manylinux_2_28_x86_64", code="")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\n")

    refused = advisor_here(*ARGUMENTS, "--dry-run")
    fits = advisor_here("advise", "--hardware", "h100", "--python", "3.14", "--dry-run")

    assert refused.returncode == 3
    assert "there is a stack for Python" not in refused.stderr
    assert "there is a stack for Python 3.13: `--python 3.13`" in fits.stderr
