"""Builds of the metadata of sdists, with real build backends in the sdist."""

from __future__ import annotations

import io
import re
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import typer
from packaging.utils import canonicalize_name

from advisor.api.options import ProjectOptions
from advisor.cli.advise import asks_for_builds
from advisor.index.metadata import build, confinement
from advisor.index.metadata.build import BuildError
from advisor.index.metadata.core import header_of, parse_metadata
from advisor.index.metadata.distributions import MetadataError
from advisor.resolve.candidates.problem import BuildsNeededError, CandidatePolicy
from tests.advisor.direct_packages import BACKEND, PYPROJECT
from tests.advisor.factories import build_client, build_problem, recommend_stack
from tests.conftest import Advisor
from tests.package_index import PackageIndex
from tests.processes import descendants_with, ends_within


def sdist(code: str = "pass", *, version: str = "1.0", requires: str = "") -> bytes:
    """Return an sdist whose backend runs some code and then writes metadata with the names in `requires`."""
    backend = BACKEND.format(code=code.replace("\n", "\n    ")).replace("a-1.0", f"a-{version}")
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: a\nVersion: {version}\n",
        "pyproject.toml": PYPROJECT.format(requires=requires),
        "backend.py": backend.replace("Version: 1.0", f"Version: {version}"),
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"a-{version}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def requirements_of(content: bytes) -> list[str]:
    metadata = parse_metadata(header_of(build.build_metadata(io.BytesIO(content), "a-1.0.tar.gz")))
    return [str(requirement) for requirement in metadata.requires]


def test_requirements_come_from_the_build_backend() -> None:
    assert requirements_of(sdist("requires.append('b>=2')")) == ["b>=2"]


def test_a_build_sees_no_credentials_and_an_empty_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NETRC"):
        monkeypatch.setenv(name, "secret")
    code = """values = [v for v in os.environ.values() if "secret" in v]
requires.append(f"seen-{len(values)}")
requires.append(f"files-{len(os.listdir(os.path.expanduser('~')))}")"""

    assert requirements_of(sdist(code)) == ["seen-0", "files-0"]


@pytest.mark.skipif(confinement.confinement() == "none", reason="neither bwrap nor unshare may be used on this machine")
def test_a_build_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "present").write_text("old")
    paths = [str(path) for path in (tmp_path / "new", tmp_path / "present", Path.home() / "new-file")]
    code = f"""for path in {paths}:
    try:
        open(path, "w")
        requires.append("written")
    except OSError:
        requires.append("refused")
os.system("mount -o remount,bind,rw / 2>/dev/null")
try:
    open({str(tmp_path / "new")!r}, "w")
    requires.append("written")
except OSError:
    requires.append("refused")
open("inside", "w")"""

    assert requirements_of(sdist(code)) == ["refused"] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["present"]


def test_warnings_for_the_authors_of_a_package_are_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    requirements_of(sdist("import warnings; warnings.warn('deprecated here')"))

    assert "deprecated here" not in capfd.readouterr().err


def test_a_build_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILD_SECONDS", 2)

    with pytest.raises(BuildError, match="it took more than 2 seconds"):
        requirements_of(sdist("import time; time.sleep(600)"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit")
def test_a_build_has_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "BUILD_MEMORY_BYTES", 2**30)

    with pytest.raises(BuildError, match="MemoryError"):
        requirements_of(sdist("x = bytearray(2**31)"))


def test_the_error_of_a_build_is_the_last_line_of_its_output() -> None:
    with pytest.raises(BuildError, match=r"building the metadata of `a-1.0.tar.gz` failed: RuntimeError: no compiler"):
        requirements_of(sdist("raise RuntimeError('no compiler')"))


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("--index-url=https://example.org", "is malformed"),
        ("b @ https://example.org/b-1.tar.gz", "is an address"),
        ("b>=>2", "is malformed"),
    ],
)
def test_build_requirements_are_packages_of_an_index(requirement: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        requirements_of(sdist(requires=f'"{requirement}"'))


def test_a_failed_build_excludes_the_version_with_its_reason(index: PackageIndex, tmp_path: Path) -> None:
    index.add_file("a", "a-1.0.tar.gz", sdist("requires.append('b')"))
    index.add_file("a", "a-2.0.tar.gz", sdist("raise RuntimeError('no compiler')", version="2.0"))
    index.add("b", "1.0")

    advice, source = recommend_stack(index, tmp_path, build_problem("a", policy=CandidatePolicy(build_sdists=True)))

    assert [(c.name, str(c.version)) for c in advice.optimum.stack] == [("a", "1.0"), ("b", "1.0")]
    assert any("no compiler" in skipped.reason for skipped in source.skipped())


@pytest.fixture
def isolated(index: PackageIndex) -> PackageIndex:
    """An index with an old release that builds alone, and newer ones that import a package of the stack to be built."""
    for version in ("1.0", "1.1", "2.0", "2.1", "2.2"):
        code = "import engine" if version > "1.0" else "pass"
        index.add_file("a", f"a-{version}.tar.gz", sdist(code + "\nrequires.append('engine')", version=version))
    index.add("engine", "1.0")
    return index


@pytest.mark.parametrize("objective", ["latest", "size"])
def test_a_build_that_needs_a_package_of_the_stack_is_reported_once_and_no_older_release_is_chosen(
    advisor_here: Advisor, isolated: PackageIndex, tmp_path: Path, objective: str
) -> None:
    (tmp_path / "requirements.txt").write_text("a\nengine\n")
    arguments = ("advise", "--index-url", isolated.url, "--build-sdists", "--dry-run", "--objective", objective)

    result = advisor_here(*arguments)

    assert result.returncode == 3
    assert result.stderr.count("needs `engine`") == 1
    assert "the build of 2.2 needs `engine` of the stack, which is not among its declared build" in result.stderr
    assert "hint: state what `a` requires with `[[tool.advisor.metadata]]`" in result.stderr


@pytest.mark.parametrize("objective", ["latest", "size"])
@pytest.mark.parametrize("roots", ["engine\napp\n", "a\nengine\nzapp\n"])
def test_an_older_release_is_chosen_where_another_package_excludes_the_one_whose_build_failed(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, objective: str, roots: str
) -> None:
    index.add_file("a", "a-1.0.tar.gz", sdist())
    index.add_file("a", "a-2.0.tar.gz", sdist("import engine", version="2.0"))
    index.add("engine", "1.0")
    for name in ("app", "zapp"):
        index.add(name, "1.0", requires=("a<2",))
    (tmp_path / "requirements.txt").write_text(roots)
    arguments = ("advise", "--index-url", index.url, "--build-sdists", "--objective", objective)

    result = advisor_here(*arguments)

    assert result.returncode == 0, result.stderr
    locked = tomllib.loads((tmp_path / "pylock.toml").read_text())["packages"]
    assert {package["name"]: package["version"] for package in locked}["a"] == "1.0"


def test_a_newer_release_with_declared_build_requirements_is_chosen(index: PackageIndex, tmp_path: Path) -> None:
    index.add_file("a", "a-1.0.tar.gz", sdist("import engine", version="1.0"))
    index.add_file("a", "a-2.0.tar.gz", sdist(version="2.0"))
    index.add("engine", "1.0")

    advice, _ = recommend_stack(
        index, tmp_path, build_problem("a", "engine", policy=CandidatePolicy(build_sdists=True))
    )

    assert str(advice.optimum.stack[0].version) == "2.0"


def test_a_module_that_the_stack_does_not_contain_excludes_one_version(index: PackageIndex, tmp_path: Path) -> None:
    index.add_file("a", "a-1.0.tar.gz", sdist())
    index.add_file("a", "a-2.0.tar.gz", sdist("import removed_from_python", version="2.0"))

    advice, _ = recommend_stack(index, tmp_path, build_problem("a", policy=CandidatePolicy(build_sdists=True)))

    assert str(advice.optimum.stack[0].version) == "1.0"


STATED = """
[project]
name = "p"
version = "1"
dependencies = ["a"]
[[tool.{tool}]]
name = "A"
{version}
requires-dist = ["engine>=1; python_version > '3'", "other; extra == 'x'"]
provides-extra = ["x"]
"""


@pytest.mark.parametrize("tool", ["advisor.metadata", "uv.dependency-metadata"])
@pytest.mark.parametrize("version", ["", 'version = "2.2"'])
def test_a_project_states_the_metadata_of_a_package_which_is_not_built(
    advisor_here: Advisor, isolated: PackageIndex, tmp_path: Path, tool: str, version: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(STATED.format(tool=tool, version=version))
    here = ("--index-url", isolated.url)

    advice = advisor_here("advise", *here)

    assert advice.returncode == 0, advice.stderr
    lock = tomllib.loads((tmp_path / "pylock.toml").read_text())["packages"]
    assert {p["name"]: p["version"] for p in lock} == {"a": "2.2", "engine": "1.0"}
    assert advisor_here("check", *here).returncode == 0


def test_closing_the_client_ends_running_builds_with_their_processes(index: PackageIndex, tmp_path: Path) -> None:
    index.add_file("a", "a-1.0.tar.gz", sdist("import subprocess; subprocess.run(['sleep', '600.125'])"))
    client = build_client(index, tmp_path / "cache")
    [file] = client.files(canonicalize_name("a"))
    client.prefetch_builds([file])
    builds = descendants_with("600.125", seconds=60)

    client.close()

    assert builds
    assert all(ends_within(pid, seconds=20) for pid in builds)
    with pytest.raises(MetadataError, match="failed"):
        client.built_metadata(file)


def test_reports_and_conflicts_name_stated_metadata(
    advisor_here: Advisor, isolated: PackageIndex, tmp_path: Path
) -> None:
    isolated.add("engine", "0.5", code="")
    project = STATED.format(tool="advisor.metadata", version="")
    (tmp_path / "pyproject.toml").write_text(project)
    here = ("--index-url", isolated.url)

    report = advisor_here("advise", *here)
    page = advisor_here("advise", *here, "--format", "html")
    (tmp_path / "pyproject.toml").write_text(project.replace('["a"]', '["a", "engine<1"]'))
    conflict = advisor_here("advise", *here)

    newest = "the newest versions with the metadata that the project states for `a`, which pip does not read"
    assert newest in " ".join(report.stdout.split())
    assert newest in " ".join(re.sub("</?code>", "`", page.stdout).split())
    assert "like pip" not in report.stdout
    assert "requires `engine>=1` (by the metadata that the project states)" in conflict.stderr


def test_metadata_of_another_version_does_not_count(
    advisor_here: Advisor, isolated: PackageIndex, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(STATED.format(tool="advisor.metadata", version='version = "2.1"'))

    advisor_here("advise", "--index-url", isolated.url)

    lock = tomllib.loads((tmp_path / "pylock.toml").read_text())["packages"]
    assert {p["name"]: p["version"] for p in lock} == {"a": "2.1", "engine": "1.0"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('name = "a"\nrequires-dist = "b"', "`tool.advisor.metadata` of `a` has no valid `requires-dist`"),
        ('name = "a"\nrequires-dist = ["b>=>"]', "`tool.advisor.metadata` of `a` is malformed"),
        ('name = "a"\nversion = "x"', "`tool.advisor.metadata` of `a` is malformed: Invalid version"),
        ('version = "1"', "`tool.advisor.metadata` of `` has no valid `name`"),
        ('name = "a"\nrequires = ["b"]', "`tool.advisor.metadata` of `a` has no key `requires`"),
    ],
)
def test_malformed_stated_metadata_is_one_sentence(
    advisor_here: Advisor, tmp_path: Path, entry: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "p"\n[[tool.advisor.metadata]]\n{entry}\n')

    result = advisor_here("advise")

    assert result.returncode == 2
    assert message in result.stderr


def needs_builds() -> BuildsNeededError:
    return BuildsNeededError(["a 1.0"])


@pytest.mark.parametrize(("answer", "runs"), [(True, [False, True]), (False, [False])])
def test_a_terminal_asks_once_and_lists_the_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: bool, runs: list[bool]
) -> None:
    started: list[bool] = []

    def run(options: ProjectOptions) -> None:
        started.append(options.resolution.build_sdists)
        if not options.resolution.build_sdists:
            raise needs_builds()

    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: answer)

    if answer:
        asks_for_builds(run)(ProjectOptions())
    else:
        with pytest.raises(BuildsNeededError):
            asks_for_builds(run)(ProjectOptions())

    assert started == runs
    assert "  a 1.0\n" in capsys.readouterr().err


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: pytest.fail("a question without a terminal"))

    def run(_: ProjectOptions) -> None:
        raise needs_builds()

    with pytest.raises(BuildsNeededError):
        asks_for_builds(run)(ProjectOptions())


def test_an_sdist_requires_what_another_wheel_of_the_version_requires(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("a", "1.0", ["b"], tag="cp312-cp312-win_amd64")
    index.add_sdist("a", "1.0", metadata_version="2.1")
    index.add_sdist("a", "2.0", metadata_version="2.1")
    index.add("b", "1.0")
    (tmp_path / "requirements.txt").write_text("a==1.0\n")
    options = ("--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url)

    result = advisor("advise", *options, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert "`a 1.0` has no wheel for the target: installing it builds it" in result.stdout
    lock = (tmp_path / "pylock.toml").read_text()
    assert "a-1.0.tar.gz" in lock
    assert "b-1.0-py3-none-any.whl" in lock
    # No wheel says what the newer version requires.
    (tmp_path / "requirements.txt").write_text("a==2.0\n")
    refused = advisor("advise", *options, cwd=tmp_path)
    assert refused.returncode == 3
    assert "the requirements of `a 2.0` are only known after a build" in refused.stderr


def test_a_version_that_needs_no_build_is_explained_as_such(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add_sdist("a", "2.0", metadata_version="2.1")
    index.add("b", "1.0")
    index.add_sdist("b", "2.0", metadata_version="2.1")

    advice, _ = recommend_stack(index, tmp_path, build_problem("a", "b<2"))

    assert advice.reasons == {
        "a": "newest whose requirements are known without a build (`--build-sdists`)",
        "b": "newest that the requirements admit",
    }
