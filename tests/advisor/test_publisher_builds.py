"""Builds from the indexes of frameworks' publishers: chosen for the target, locked, checked and installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

from knowledge.catalogue.builds import FrameworkIndex, shipped_builds
from tests.advisor.publisher_index import (
    CPU,
    NEW_GPU,
    OLD_GPU,
    base,
    digest,
    messages,
    packages,
    page,
    quoted,
    serve,
    wheel_of,
)
from tests.conftest import Advisor
from tests.package_index import PackageIndex

BUILDS = {"cpu": (), "cu126": ("nvidia-cuda-runtime-cu12==12.6.77",), "cu130": ("nvidia-cuda-runtime==13.0.48",)}


def publisher() -> str:
    """Return the address below which the publisher has its indexes."""
    cpu = next(e for e in shipped_builds() if isinstance(e, FrameworkIndex) and e.id == "pytorch-cpu")
    return cpu.url.rstrip("/").removesuffix("cpu")


@pytest.fixture
def here(advisor: Advisor, pytorch: PackageIndex) -> Advisor:
    """Return the program with the index as its only one, whatever this machine is configured to use."""

    def run(command: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return advisor(command, "--index-url", pytorch.url, *words, cwd=cwd)

    return run


@pytest.fixture
def pytorch(index: PackageIndex) -> PackageIndex:
    """A default index with CUDA builds, and an index for each build in the layout of pytorch.org.

    Each of those also has other packages, as the real ones do: a newer `numpy`, which nobody wants from there.
    """
    index.add("torch", "2.12.0", ["nvidia-cuda-runtime==13.0.48", "numpy"])
    index.add("torchvision", "0.27.0", ["torch==2.12.0"])
    index.add("numpy", "2.3.0")
    index.add("nvidia-cuda-runtime", "13.0.48")
    index.add("nvidia-cuda-runtime-cu12", "12.6.77")
    stranger = wheel_of(index, "numpy", "9.0")
    for build, requires in BUILDS.items():
        torch = wheel_of(index, "torch", f"2.12.0+{build}", (*requires, "numpy"))
        vision = wheel_of(index, "torchvision", f"0.27.0+{build}", ("torch==2.12.0",))
        for name, filename in (("torch", torch), ("torchvision", vision), ("numpy", stranger)):
            link = f'<a href="../../../files/{quoted(filename)}#sha256={digest(index, filename)}">{filename}</a><br/>'
            serve(index, f"/whl/{build}/{name}/", page([link]))
    return index


def write_project(folder: Path, index: PackageIndex, *requirements: str, settings: str = "") -> Path:
    """Write a project for which the publisher's indexes are mirrored on an index; return its folder."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f"""
[project]
name = "p"
version = "1"
requires-python = ">=3.12"
dependencies = {json.dumps(requirements)}
[tool.advisor]
{settings}
[tool.advisor.index-mirrors]
"{publisher()}" = "{base(index, "/whl/")}"
"""
    )
    return folder


@pytest.mark.parametrize(("hardware", "build"), [(CPU, "cpu"), (OLD_GPU, "cu126")])
def test_the_build_for_the_target_is_locked_and_passes_the_gate(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path, hardware: tuple[str, ...], build: str
) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch", "torchvision", settings="framework-indexes = true")

    result = here("advise", *hardware, "--format", "json", cwd=folder)

    assert result.returncode == 0, result.stderr
    locked = packages(folder)
    assert locked["torch"]["version"] == f"2.12.0+{build}"
    assert locked["torchvision"]["version"] == f"0.27.0+{build}"
    assert locked["torch"]["index"].rstrip("/") == base(pytorch, f"/whl/{build}")
    assert (locked["numpy"]["version"], locked["numpy"]["index"]) == ("2.3.0", pytorch.url)
    assert f"`torch 2.12.0+{build}` is a build for" in messages(result.stdout, "ADV109")
    assert [name for name in locked if name.startswith("nvidia")] == (
        [] if build == "cpu" else ["nvidia-cuda-runtime-cu12"]
    )
    check = here("check", *hardware, cwd=folder)
    assert check.returncode == 0, check.stdout


def test_of_equal_cuda_versions_the_default_index_is_preferred(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch", "torchvision")

    assert here("advise", *NEW_GPU, "--framework-indexes", cwd=folder).returncode == 0

    assert packages(folder)["torch"]["version"] == "2.12.0"
    assert packages(folder)["torchvision"]["version"] == "0.27.0"


def test_a_build_for_processors_on_a_machine_with_a_gpu_is_reported(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    """The default index has CPU builds for Windows, so that a newer one would leave the GPU idle."""
    profile = tmp_path / "machine.yaml"
    profile.write_text(
        "source: https://example.org\ncpu: {architecture: AMD64, microarchitecture: zen4}\nos: windows\n"
        "accelerators: [{vendor: nvidia, model: GPU, compute_capability: '9.0'}]\n"
    )
    pytorch.add("torch", "2.13.0", ["numpy"], tag="cp312-cp312-win_amd64")
    name = wheel_of(pytorch, "torch", "2.12.0+cu130", ("numpy",))
    windows = name.replace("manylinux_2_28_x86_64", "win_amd64")
    pytorch.files[windows] = pytorch.files[name]
    link = f'<a href="../../../files/{quoted(windows)}#sha256={digest(pytorch, windows)}">{windows}</a>'
    serve(pytorch, "/whl/cu130/torch/", page([link]))
    folder = write_project(tmp_path / "p", pytorch, "torch")
    machine = ("--hardware", str(profile), "--python", "3.12")

    plain = here("advise", *machine, "--format", "json", cwd=folder)
    assert packages(folder)["torch"]["version"] == "2.13.0"
    assert "which leaves GPU idle" in messages(plain.stdout, "ADV110")
    assert "`--framework-indexes`" in messages(plain.stdout, "ADV110")

    here("advise", *machine, "--framework-indexes", cwd=folder)
    assert packages(folder)["torch"]["version"] == "2.12.0+cu130"


def test_without_the_option_a_finding_names_it(here: Advisor, pytorch: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch")

    result = here("advise", *CPU, "--format", "json", cwd=folder)

    assert packages(folder)["torch"]["version"] == "2.12.0"
    message = messages(result.stdout, "ADV110")
    assert "`torch 2.12.0` is a build for CUDA 13.0, although the target has no accelerator" in message
    assert "requires 1 package for CUDA" in message
    assert "`--framework-indexes`" in message


def test_builds_for_the_same_hardware_are_reported_together(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    pytorch.add("torchvision", "0.27.0", ["torch==2.12.0"])
    folder = write_project(tmp_path / "p", pytorch, "torch", "torchvision")

    result = here("advise", *CPU, "--format", "json", cwd=folder)

    idle = [f["message"] for f in json.loads(result.stdout)["findings"] if f["code"] == "ADV110"]
    assert len(idle) == 1
    assert idle[0].startswith(
        "`torch 2.12.0`, `torchvision 0.27.0` are builds for CUDA 13.0, although the target has no"
    )
    assert "; they require 1 package for CUDA" in idle[0]


def test_a_lock_with_builds_that_the_project_did_not_enable_fails_the_gate(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch")
    assert here("advise", *CPU, "--framework-indexes", cwd=folder).returncode == 0

    check = here("check", *CPU, cwd=folder)

    assert check.returncode == 1
    assert "ADV015" in check.stdout
    assert here("check", *CPU, "--framework-indexes", cwd=folder).returncode == 0


def test_other_packages_of_the_publisher_are_refused_by_the_gate(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch", settings="framework-indexes = true")
    assert here("advise", *CPU, cwd=folder).returncode == 0
    lock = folder / "pylock.toml"
    lock.write_text(lock.read_text().replace(f'index = "{pytorch.url}"', f'index = "{base(pytorch, "/whl/cpu/")}"'))

    check = here("check", *CPU, cwd=folder)

    assert check.returncode == 1
    assert "`numpy` is locked from" in check.stdout


def test_a_publisher_that_is_down_is_named_and_the_rest_works(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch", "torchvision")
    text = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(text.replace(base(pytorch, "/whl/"), "http://127.0.0.1:1/"))

    result = here("advise", *CPU, "--framework-indexes", "--format", "json", cwd=folder)

    assert result.returncode == 0, result.stderr
    assert packages(folder)["torch"]["version"] == "2.12.0"
    assert "no build on `http://127.0.0.1:1/cpu" in messages(result.stdout, "ADV111")


def test_a_gpu_that_no_cuda_build_supports_gets_a_build_for_processors(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    profile = tmp_path / "machine.yaml"
    profile.write_text(
        "source: https://example.org\ncpu: {architecture: x86_64, microarchitecture: haswell}\nos: linux\n"
        "accelerators: [{vendor: nvidia, model: Tesla K80, compute_capability: '3.7'}]\n"
    )
    folder = write_project(tmp_path / "p", pytorch, "torch")
    machine = ("--hardware", str(profile), "--python", "3.12", "--platform", "manylinux_2_28_x86_64")

    result = here("advise", *machine, "--framework-indexes", cwd=folder)

    assert result.returncode == 0, result.stderr
    assert packages(folder)["torch"]["version"] == "2.12.0+cpu"
    assert "which leaves Tesla K80 idle" in " ".join(result.stdout.split())


def test_a_build_of_another_interpreter_is_no_candidate(here: Advisor, pytorch: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p", pytorch, "torch==2.12.0+cpu")

    result = here("advise", *CPU[:3], "3.13", "--framework-indexes", cwd=folder)

    assert result.returncode == 3
    assert "torch==2.12.0+cpu" in result.stderr
    assert "no wheel for the target" in result.stderr


@pytest.mark.parametrize("name", ["lock.txt", "pylock.toml"])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_lock_with_builds_is_installed(
    here: Advisor, pytorch: PackageIndex, tmp_path: Path, installer: str, name: str
) -> None:
    if (installer, name) == ("pip", "pylock.toml") and Version(metadata.version("pip")) < Version("26.1"):
        pytest.skip("pip reads `pylock.toml` from version 26.1 on")
    folder = write_project(tmp_path / "p", pytorch, "torch", "torchvision")
    python = f"3.{sys.version_info[1]}"
    tag = f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}"
    if tag != "cp312-cp312":
        for filename in list(pytorch.files):
            pytorch.files[filename.replace("cp312-cp312", tag)] = pytorch.files[filename]
        for path, (body, headers) in list(pytorch.raw.items()):
            pytorch.raw[path] = (body.replace(b"cp312-cp312", tag.encode()), headers)
    options = ("--hardware", "cpu-zen4", "--python", python, "--framework-indexes")
    text = (folder / "pyproject.toml").read_text()
    uv = "[tool.uv]\nmanaged = true\n" if installer == "uv" else ""
    (folder / "pyproject.toml").write_text(text.replace('requires-python = ">=3.12"', "") + uv)
    result = here("advise", *options, "-o", name, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert ("[[tool.uv.index]]" in result.stdout) == (installer == "uv")
    if name == "lock.txt":
        check = here("check", *options, "--current", name, cwd=folder)
        assert check.returncode == 0, check.stdout
        assert "--extra-index-url" not in (folder / name).read_text()
    place = tmp_path / "installed"
    commands = {
        "pip": [sys.executable, "-m", "pip", "install", "-q", "--target", str(place), "-r", name],
        "uv": [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(place), "-r", name],
    }

    install = subprocess.run(commands[installer], cwd=folder, capture_output=True, text=True, check=False)

    assert install.returncode == 0, install.stderr
    assert (place / "torch-2.12.0+cpu.dist-info").is_dir()
    assert (place / "torchvision-0.27.0+cpu.dist-info").is_dir()
