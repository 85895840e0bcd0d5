"""One lock for several targets: environments, markers, shared versions, and installers that read it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.markers import Environment
from packaging.pylock import Pylock
from packaging.tags import Tag

from advisor.domain.target import make_target
from advisor.domain.time_limit import TimeLimit
from advisor.resolve.optimum.request import ResolutionRequest
from advisor.resolve.recommendation.agreement import share_versions
from advisor.resolve.recommendation.problem_variants import Selection
from advisor.resolve.recommendation.recommend import recommend
from tests.advisor.factories import MACHINE, FixedScores, build_problem, build_request, versions_of
from tests.conftest import Advisor
from tests.package_index import PackageIndex

PLATFORMS = {"linux": "manylinux_2_28_x86_64", "mac": "macosx_14_0_arm64", "windows": "win_amd64"}
MACHINES = {"linux": "cpu-zen4", "mac": "cpu-neoverse-v1", "windows": "cpu-zen4"}
UV_PLATFORMS = {
    "linux": "x86_64-manylinux_2_28",
    "mac": "aarch64-apple-darwin",
    "windows": "x86_64-pc-windows-msvc",
}
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def table(name: str, *, python: str = HERE, lock: str = "pylock.toml") -> str:
    """Return the table of a target."""
    lines = [f'hardware = "{MACHINES[name]}"', f'platform = "{PLATFORMS[name]}"', f'python = "{python}"']
    return "\n".join([f"[tool.advisor.targets.{name}-{python.replace('.', '')}]", *lines, f'lock = "{lock}"', ""])


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project whose dependency has a wheel for each platform, and no newest one for Windows."""
    for version, platforms in (("1.0", PLATFORMS), ("2.0", ("linux", "mac"))):
        for name in platforms:
            index.add("a", version, ["b", "c; sys_platform == 'win32'"], tag=f"py3-none-{PLATFORMS[name]}")
    index.add("b", "1.0")
    index.add("c", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    write(folder, index, *map(table, PLATFORMS))
    return folder


def write(folder: Path, index: PackageIndex, *tables: str) -> None:
    """Write a project with targets."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n{"".join(tables)}'
    )


def selected(lock: Path, name: str, *, python: str = HERE) -> dict[str, str]:
    """Return what `packaging` would install from a lock on a platform: file or version by package."""
    target = make_target(python=python, platform=PLATFORMS[name], hardware=MACHINE if name != "mac" else ARM)
    pylock = Pylock.from_dict(tomllib.loads(lock.read_text()))
    environment: Environment = {**target.markers}  # type: ignore[typeddict-item]
    tags = [Tag("py3", "none", PLATFORMS[name]), Tag("py3", "none", "any")]
    return {
        package.name: getattr(file, "name", "") for package, file in pylock.select(environment=environment, tags=tags)
    }


ARM = replace(MACHINE, cpu=replace(MACHINE.cpu, architecture="aarch64"))


def test_one_lock_has_the_files_of_each_platform(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", cwd=project)

    assert result.returncode == 0, result.stderr
    assert "targets   3: wrote 1 lock;" in result.stdout
    lock = project / "pylock.toml"
    common = {"b": "b-1.0-py3-none-any.whl"}
    assert selected(lock, "linux") == {"a": "a-1.0-py3-none-manylinux_2_28_x86_64.whl", **common}
    assert selected(lock, "mac") == {"a": "a-1.0-py3-none-macosx_14_0_arm64.whl", **common}
    assert selected(lock, "windows") == {
        "a": "a-1.0-py3-none-win_amd64.whl",
        "c": "c-1.0-py3-none-any.whl",
        **common,
    }
    document = tomllib.loads(lock.read_text())
    assert [(p["name"], p.get("marker")) for p in document["packages"]] == [
        ("a", None),
        ("b", None),
        ("c", 'sys_platform == "win32"'),
    ]
    assert len(document["environments"]) == 3


def test_the_gate_checks_the_lock_for_each_target(advisor: Advisor, project: Path) -> None:
    assert advisor("advise", cwd=project).returncode == 0

    result = advisor("check", cwd=project)

    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("no version differs from the recommended stack") == 1
    for name, packages in (("linux", 2), ("mac", 2), ("windows", 3)):
        expected = rf"^target +{name}[^,]*, .*\n(?: .*\n)*lock +pylock.toml, {packages} packages$"
        assert re.search(expected, result.stdout, re.MULTILINE)


def test_other_interpreters_keep_their_own_versions(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    index.add("a", "3.0", requires_python=">=3.13")
    write(project, index, table("linux", python="3.12"), table("windows", python="3.12"), table("linux", python="3.13"))

    result = advisor("advise", cwd=project)

    assert result.returncode == 0, result.stderr
    lock = project / "pylock.toml"
    assert selected(lock, "linux", python="3.12")["a"].startswith("a-1.0-")
    assert selected(lock, "windows", python="3.12")["a"].startswith("a-1.0-")
    assert selected(lock, "linux", python="3.13")["a"].startswith("a-3.0-")
    assert tomllib.loads(lock.read_text())["requires-python"] == ">=3.12"


def test_a_version_that_is_slower_is_not_shared(index: PackageIndex, tmp_path: Path) -> None:
    for version, platforms in (("1.0", PLATFORMS), ("2.0", ("linux",))):
        for name in platforms:
            index.add("a", version, tag=f"py3-none-{PLATFORMS[name]}")

    def solved(name: str, speed: float) -> ResolutionRequest:
        problem = build_problem("a")
        target = make_target(python="3.12", platform=PLATFORMS[name], hardware=MACHINE)
        scores = FixedScores({("a", "1.0"): 0.0, ("a", "2.0"): speed})
        return build_request(index, tmp_path, replace(problem, target=target), estimator=scores)

    for speed, versions in ((0.0, ["1.0", "1.0"]), (0.5, ["2.0", "1.0"])):
        requests = {name: solved(name, speed) for name in ("linux", "windows")}
        pairs = {name: Selection(request=request).solve() for name, request in requests.items()}
        shared = share_versions(pairs, limit=TimeLimit())
        stacks = [versions_of(recommend(Selection(request=shared[name])).optimum.stack)["a"] for name in requests]
        assert stacks == versions
        assert share_versions(pairs, limit=TimeLimit(0.0)) == requests


def test_targets_that_no_marker_distinguishes_are_refused(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    other = table("linux").replace("linux-", "old-").replace("2_28", "2_17")
    write(project, index, table("linux"), other)

    result = advisor("advise", cwd=project)

    assert result.returncode == 2
    assert "have the same lock" in result.stderr
    assert "no environment marker distinguishes them" in result.stderr
    assert not (project / "pylock.toml").exists()


def test_a_requirements_file_is_no_lock_of_several_targets(
    advisor: Advisor, project: Path, index: PackageIndex
) -> None:
    write(project, index, table("linux", lock="r.txt"), table("windows", lock="r.txt"))

    result = advisor("advise", cwd=project)

    assert result.returncode == 2
    assert "which is no `pylock.toml`" in result.stderr


def test_one_target_does_not_replace_the_lock_of_several(advisor: Advisor, project: Path) -> None:
    assert advisor("advise", cwd=project).returncode == 0
    before = (project / "pylock.toml").read_bytes()
    name = f"linux-{HERE.replace('.', '')}"

    result = advisor("advise", "--target", name, cwd=project)

    assert result.returncode == 2
    assert "too, and would lose it" in result.stderr
    assert (project / "pylock.toml").read_bytes() == before
    assert advisor("advise", "--target", name, "--output", "pylock.one.toml", cwd=project).returncode == 0


@pytest.mark.parametrize("name", PLATFORMS)
def test_uv_installs_the_lock_on_each_platform(advisor: Advisor, project: Path, name: str) -> None:
    uv = pytest.importorskip("uv", reason="uv is not installed").find_uv_bin()
    assert advisor("advise", cwd=project).returncode == 0
    command = [uv, "pip", "install", "--dry-run", "--no-config", "--python", sys.executable, "--target", "x"]
    platform = ["--python-platform", UV_PLATFORMS[name], "--preview-features", "pylock"]

    result = subprocess.run(
        [*command, *platform, "-r", "pylock.toml"],
        cwd=project,
        capture_output=True,
        text=True,
        env={"MACOSX_DEPLOYMENT_TARGET": "14.0", "UV_CACHE_DIR": str(project / "cache"), "PATH": ""},
    )

    assert result.returncode == 0, result.stderr
    installed = {line.strip() for line in result.stderr.splitlines() if line.startswith(" + ")}
    expected = {"+ a==1.0", "+ b==1.0"} | ({"+ c==1.0"} if name == "windows" else set())
    assert installed == expected
