"""Projects whose requirements are only known after a build, and projects without requirements."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from advisor.api.context import load_project
from advisor.api.options import ProjectFiles, ProjectOptions
from advisor.cli.advise import asks_for_builds
from advisor.index.cache import DiskCache
from advisor.index.metadata.build import BuildError
from advisor.project.interface import ProjectBuilder, ProjectRequirements, UnbuiltProjectError
from advisor.project.metadata.built_metadata import cached_builder
from advisor.resolve.candidates.problem import BuildsNeededError
from knowledge.domain.errors import InputError
from tests.conftest import Advisor
from tests.package_index import PackageIndex

BACKEND = """
import os
def prepare_metadata_for_build_wheel(directory, config_settings=None):
    print("a build")
    folder = os.path.join(directory, "project-1.0.dist-info")
    os.mkdir(folder)
    with open(os.path.join(folder, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: project\\nVersion: 1.0\\nRequires-Python: >=3.8\\n")
        file.write(open("names.txt").read())
    return "project-1.0.dist-info"
def build_wheel(*_, **__):
    raise SystemExit("not needed")
"""
PYPROJECT = """
[project]
name = "project"
version = "1.0"
dynamic = ["dependencies", "optional-dependencies"]

[dependency-groups]
test = ["checker"]

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
NAMES = """Requires-Dist: a>=1
Requires-Dist: b; sys_platform == "linux"
Provides-Extra: fast
Requires-Dist: c; extra == "fast"
Requires-Dist: d; (python_version < "3") and extra == 'fast'
Requires-Dist: e; "fast" == extra
Requires-Dist: f; extra != "fast"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a build backend of its own, whose requirements are in a file that only the backend knows."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "names.txt").write_text(NAMES)
    return folder


def built(folder: Path, *, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> ProjectRequirements:
    files = ProjectFiles(directory=folder, extras=extras, groups=groups)
    return load_project(files, build=builder(folder))


def builder(folder: Path) -> ProjectBuilder:
    return cached_builder(DiskCache(folder.parent / "cache"))


def names(project: ProjectRequirements) -> list[str]:
    """Return the packages whose markers hold here."""
    markers = [(root.name, root.requirement.marker) for root in project.roots]
    return [name for name, marker in markers if marker is None or marker.evaluate({"extra": ""})]


def test_without_consent_the_project_is_not_built_and_the_error_says_how(project: Path) -> None:
    with pytest.raises(UnbuiltProjectError, match="`project.dependencies` is dynamic") as raised:
        load_project(ProjectFiles(directory=project))

    assert "--build-project" in raised.value.hint
    assert "--requirements FILE" in raised.value.hint


def test_the_requirements_of_a_built_project_are_those_of_its_metadata(project: Path) -> None:
    plain, fast = built(project), built(project, extras=("fast",), groups=("test",))

    assert names(plain) == ["a", "b", "f"]
    assert names(fast) == ["a", "b", "c", "e", "checker"]
    assert plain.requires_python == ">=3.8"
    assert plain.roots[0].origin == "pyproject.toml (built)"
    with pytest.raises(InputError, match="has no extra `slow`"):
        built(project, extras=("slow",))


def test_a_project_is_built_again_only_after_a_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(project)
    (project / "names.txt").write_text("Requires-Dist: other\n")
    changed = built(project)
    (project / "pylock.toml").write_text("# a lock is not an input of the build")
    monkeypatch.setattr(
        "advisor.resolve.candidates.direct_metadata.build_tree_metadata", lambda *_: pytest.fail("a second build")
    )

    assert names(changed) == ["other"]
    assert names(built(project)) == ["other"]


def test_the_build_of_a_project_cannot_change_it(project: Path) -> None:
    (project / "backend.py").write_text("open('names.txt', 'w').close()\n" + BACKEND)

    assert names(built(project)) == []
    assert (project / "names.txt").read_text() == NAMES


def test_a_file_behind_a_link_is_part_of_the_state_of_a_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("Requires-Dist: one\n")
    (project / "names.txt").unlink()
    (project / "names.txt").symlink_to(tmp_path / "outside.txt")
    before = names(built(project))
    (tmp_path / "outside.txt").write_text("Requires-Dist: another\n")

    assert (before, names(built(project))) == (["one"], ["another"])


def test_links_that_lead_to_each_other_do_not_end_a_build(project: Path) -> None:
    (project / "loop").symlink_to("loop")

    assert names(built(project)) == ["a", "b", "f"]


def test_a_failed_build_of_a_project_says_what_failed_and_what_to_do(project: Path) -> None:
    (project / "backend.py").write_text("raise ImportError('no torch here')\n")

    with pytest.raises(BuildError, match="no torch here") as raised:
        built(project)

    assert "--requirements FILE" in raised.value.hint


def test_a_terminal_asks_before_a_project_is_built(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[list[str]] = []
    questions: list[str] = []

    def run(options: ProjectOptions) -> None:
        build = builder(project) if options.resolution.build_project else None
        read.append(names(load_project(options.files, build=build)))
        if not options.resolution.build_sdists:
            raise BuildsNeededError(["a 1.0"])

    def confirm(question: str, **_: object) -> bool:
        questions.append(question)
        return True

    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", confirm)

    asks_for_builds(run)(ProjectOptions(files=ProjectFiles(directory=project)))

    assert read == [["a", "b", "f"]] * 2
    assert [question.partition("?")[0] for question in questions] == [
        "Build the metadata of the project",
        "Build these and other packages that a stack needs",
    ]
    assert "  a 1.0\n" in capsys.readouterr().err


def test_advice_for_a_built_project(project: Path, advisor: Advisor, index: PackageIndex) -> None:
    for name in "abf":
        index.add(name, "1.0")
    options = ("--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url)

    refused = advisor("advise", *options, cwd=project)
    answered = advisor("advise", *options, "--build-project", cwd=project)

    assert refused.returncode == 2
    assert "hint: `--build-project` builds its metadata, which runs its code" in refused.stderr
    assert answered.returncode == 0, answered.stderr
    assert "lock      3 packages" in answered.stdout
    assert "the requirements are those that a build with Python 3." in answered.stderr


@pytest.mark.network
def test_a_setup_file_that_computes_its_requirements_is_built_with_setuptools(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "setup.py").write_text(
        "import os\nfrom setuptools import setup\n"
        "setup(name='p', version='1', install_requires=['numpy'] if os.sep else [], "
        "extras_require={name: [name] for name in ('pandas',)})\n"
    )

    assert names(built(tmp_path / "p")) == ["numpy"]
    assert names(built(tmp_path / "p", extras=("pandas",))) == ["numpy", "pandas"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", "from setuptools import setup\nsetup(name='p', install_requires=[])\n"),
        ("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = []\n"),
        ("requirements.txt", "# nothing yet\n"),
    ],
)
def test_a_project_without_requirements_has_an_empty_lock(
    tmp_path: Path, advisor: Advisor, index: PackageIndex, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)

    result = advisor("advise", "--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url, cwd=tmp_path)
    checked = advisor("check", "--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert "warning: the project requires no packages" in result.stderr
    assert "packages = []" in (tmp_path / "pylock.toml").read_text()
    assert checked.returncode == 0, checked.stderr


def test_a_file_that_only_configures_tools_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")

    with pytest.raises(InputError, match="has no file with requirements"):
        load_project(ProjectFiles(directory=tmp_path))


def test_old_tables_of_flit_are_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flit.metadata]\nmodule = "p"\nrequires = ["a>=1"]\nrequires-python = ">=3.9"\n'
        '[tool.flit.metadata.requires-extra]\ndoc = ["b"]\n'
    )

    project = load_project(ProjectFiles(directory=tmp_path, extras=("doc",)))

    assert names(project) == ["a", "b"]
    assert project.requires_python == ">=3.9"
