"""Packages that come from a repository, an archive or a directory: read, resolved, locked and read back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

import pytest

from advisor.domain.direct_reference import DirectReference, is_direct_reference, parse_direct_reference
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import make_target
from advisor.project.interface import SelectedParts
from advisor.project.metadata.source_tree import read_source_tree
from advisor.project.read import read_project
from knowledge.domain.errors import InputError
from tests.advisor.direct_packages import (
    BACKEND,
    advise,
    archive_of,
    git,
    packages_of,
    write_package,
    write_repository,
)
from tests.advisor.direct_packages import PYPROJECT as BUILT_PYPROJECT
from tests.advisor.factories import MACHINE
from tests.conftest import Advisor
from tests.package_index import PackageIndex

LINUX = make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=MACHINE)
WINDOWS = make_target(python="3.12", platform="win_amd64", hardware=MACHINE)


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project without requirements yet, whose index has `b`, which may require `c`."""
    index.add("b", "1.0", ["c"])
    index.add("c", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "uv.toml").write_text(f'index-url = "{index.url}"\n')
    return folder


def root_of(folder: Path, line: str) -> RootRequirement:
    (folder / "requirements.txt").write_text(f"six\n{line}\n")
    return read_project(folder).roots[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "git+https://h/o/name.git@v1#egg=name[x]&subdirectory=s/t",
            DirectReference(kind="vcs", vcs="git", url="https://h/o/name.git", revision="v1", subdirectory="s/t"),
        ),
        ("git+ssh://git@h/o/n.git", DirectReference(kind="vcs", vcs="git", url="ssh://git@h/o/n.git")),
        ("git+git@h:o/n.git@a/b", DirectReference(kind="vcs", vcs="git", url="ssh://git@h/o/n.git", revision="a/b")),
        (
            f"https://h/a-1.0.tar.gz#sha256={'A' * 64}",
            DirectReference(kind="archive", url="https://h/a-1.0.tar.gz", sha256="a" * 64),
        ),
        ("../x[a,b]", DirectReference(kind="directory", url="/folder/x")),
        ("./w/a-1.0-py3-none-any.whl", DirectReference(kind="archive", url="/folder/project/w/a-1.0-py3-none-any.whl")),
        ("file:///tmp/a%20b", DirectReference(kind="directory", url="/tmp/a b")),
        ("file://${PROJECT_ROOT}/lib", DirectReference(kind="directory", url="/folder/project/lib")),
    ],
)
def test_addresses_and_paths_are_parsed(text: str, expected: DirectReference) -> None:
    assert parse_direct_reference(text, Path("/folder/project")).reference == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cvs+https://h/x", "`cvs` is not a version control system"),
        ("ftp://h/x.zip", "`ftp` is not a scheme"),
        ("git+https://h/x#subdirectory=../../etc", "outside of its repository"),
        ("https://${NOT_SET_ANYWHERE}@h/x.zip", "variable `NOT_SET_ANYWHERE` is not set"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"requirements.txt:2: .*{reason}"):
        root_of(tmp_path, text)


def test_names_are_no_addresses() -> None:
    lines = ["numpy>=1", "torch==2.0+cu118 ; os_name == 'posix'", "a[b]<2"]

    assert not any(map(is_direct_reference, lines))


@pytest.mark.parametrize(
    ("line", "name", "guessed", "kind"),
    [
        ("-e .", None, True, "directory"),
        ("-e ./lib[x] ; python_version > '3'", "lib", True, "directory"),
        ("--editable=git+https://h/a.git@v1#egg=name  # why", "name", False, "vcs"),
        ("git+https://h/some-name.git", "some-name", True, "vcs"),
        ("./w/a_b-1.0-py3-none-any.whl --hash=sha256:" + "a" * 64, "a-b", False, "archive"),
        ("name[x] @ https://h/master.zip ; python_version > '3'", "name", False, "archive"),
        ("name@git+https://h/a.git", "name", False, "vcs"),
    ],
)
def test_lines_of_requirements_files_are_read(
    tmp_path: Path, line: str, name: str | None, guessed: bool, kind: str
) -> None:
    root = root_of(tmp_path, line)

    assert root.direct is not None
    assert (root.name, root.has_guessed_name, root.direct.kind) == (name or root.name, guessed, kind)
    assert root.direct.editable == line.startswith("-")
    assert root.requirement.extras == ({"x"} if "[x]" in line else set())
    assert bool(root.requirement.marker) == (";" in line)
    assert root.hashes == (frozenset({"a" * 64}) if "--hash" in line else frozenset())


def test_paths_start_at_the_project_not_at_the_file_as_in_pip(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("-e .\n")

    [root] = read_project(tmp_path, requirements=[tmp_path / "requirements" / "dev.txt"]).roots

    assert root.direct is not None
    assert root.direct.url == str(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\nname = "m"\ndependencies = ["n @ git+https://h/n.git@v1"]\n'),
        ("setup.cfg", "[options]\ninstall_requires =\n    n @ git+https://h/n.git@v1\n"),
        ("Pipfile", '[packages]\nn = {git = "https://h/n.git", ref = "v1"}\n'),
        ("pixi.toml", '[pypi-dependencies]\nn = { git = "https://h/n.git", tag = "v1" }\n'),
        ("environment.yml", "dependencies:\n  - pip:\n    - git+https://h/n.git@v1#egg=n\n"),
        (
            "pyproject.toml",
            '[tool.poetry]\nname = "m"\n[tool.poetry.dependencies]\nn = { git = "https://h/n.git", tag = "v1" }\n',
        ),
        (
            "pyproject.toml",
            '[project]\nname = "m"\ndependencies = ["n>=1"]\n'
            '[tool.poetry.dependencies]\nn = { git = "https://h/n.git", branch = "v1" }\n',
        ),
        (
            "pyproject.toml",
            '[project]\nname = "m"\ndependencies = ["n"]\n'
            '[tool.uv.sources]\nn = { git = "https://h/n.git", rev = "v1" }\n',
        ),
    ],
)
def test_every_form_of_a_project_may_name_a_repository(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)

    [root] = read_project(tmp_path).on_target(LINUX).roots

    assert root.name == "n"
    assert root.direct == DirectReference(kind="vcs", vcs="git", url="https://h/n.git", revision="v1")


def test_a_source_of_uv_may_depend_on_the_target_and_on_extras(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "m"\ndependencies = ["n"]\n[project.optional-dependencies]\ngpu = ["o"]\n'
        '[[tool.uv.index]]\nname = "own"\nurl = "https://own/simple"\nexplicit = true\n'
        '[[tool.uv.index]]\nname = "gpu"\nurl = "https://gpu/simple"\nexplicit = true\n'
        "[tool.uv.sources]\n"
        'n = [{ git = "https://h/n.git", marker = "sys_platform == \'linux\'" }, { index = "own" }]\n'
        'o = [{ index = "gpu", extra = "gpu" }, { index = "own" }]\n'
    )

    linux = read_project(tmp_path).on_target(LINUX)
    windows = read_project(tmp_path, selection=SelectedParts(extras=("gpu",))).on_target(WINDOWS)

    assert linux.roots[0].direct is not None
    assert "n" not in linux.bindings
    assert windows.roots[0].direct is None
    assert windows.bindings == {"n": "https://own/simple", "o": "https://gpu/simple"}


def test_members_of_a_workspace_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/old"]\n'
        "[tool.uv.sources]\nlib = { workspace = true }\n"
    )
    for folder in ("old", "lib-of-mine"):
        write_package(tmp_path / "packages" / folder, "lib")
    app = write_package(tmp_path / "packages" / "app", "app", "lib")

    [root] = read_project(app).on_target(LINUX).roots

    assert root.direct == DirectReference(
        kind="directory", url=str(tmp_path / "packages" / "lib-of-mine"), editable=True
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{ workspace = true }", "`lib` is not a member of the workspace"),
        ('{ index = "x" }', "comes from the index `x`, which is not defined"),
        ("{ rev = 1 }", "names no `index`, `git`, `url`, `path` or `workspace`"),
        ("3", "is not a table or a list of tables"),
        ('{ git = "https://h/n", marker = "os =" }', "has a malformed marker"),
    ],
)
def test_a_malformed_source_of_uv_is_refused_with_its_line(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["lib"]\n[tool.uv.sources]\nlib = {source}\n'
    )

    with pytest.raises(InputError, match=rf"^pyproject.toml:5: .*{message}"):
        read_project(tmp_path)


def stated(folder: Path) -> str | None:
    kind: Literal["archive", "directory"] = "archive" if (folder / "PKG-INFO").exists() else "directory"
    return read_source_tree(folder, LINUX, locate=lambda reference: reference, kind=kind)


def test_metadata_of_source_trees_is_read_without_a_build(tmp_path: Path) -> None:
    package = write_package(tmp_path, "a", "b>=1", more='[project.optional-dependencies]\nx = ["c", "d @ ./d"]\n')

    header = stated(package) or ""

    assert "Name: a\nVersion: 1.0\nRequires-Dist: b>=1\nProvides-Extra: x\n" in header
    assert 'Requires-Dist: c; extra == "x"\n' in header
    assert f'Requires-Dist: d @ {(tmp_path / "d").as_uri()} ; extra == "x"\n' in header


@pytest.mark.parametrize(
    "files",
    [
        {
            "pyproject.toml": '[project]\nname = "a"\ndynamic = ["version"]\n[tool.setuptools.dynamic]\n'
            'version = { attr = "a.__version__" }\n',
            "src/a/__init__.py": '__version__ = "1.5"\n',
        },
        {
            "pyproject.toml": '[project]\nname = "a"\ndynamic = ["version"]\n[tool.hatch.version]\npath = "v.py"\n',
            "v.py": 'VERSION = "1.5"\n',
        },
        {
            "setup.cfg": "[metadata]\nname = a\nversion = file: VERSION\n[options]\ninstall_requires = \n",
            "VERSION": "1.5",
        },
        {"setup.py": 'from setuptools import setup\nsetup(name="a", version="1.5")\n'},
        {"PKG-INFO": "Metadata-Version: 2.2\nName: a\nVersion: 1.5\n"},
        {"pyproject.toml": '[tool.poetry]\nname = "a"\nversion = "1.5"\n[tool.poetry.dependencies]\npython = "^3.8"\n'},
    ],
)
def test_versions_of_source_trees_are_read_where_tools_keep_them(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert "Name: a\nVersion: 1.5\n" in (stated(tmp_path) or "")


def test_a_setup_file_without_a_version_has_that_of_setuptools(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text('from setuptools import setup\nsetup(name="a")\n')
    without = stated(tmp_path)
    (tmp_path / "setup.py").write_text('from setuptools import setup\nsetup(name="a", use_scm_version=True)\n')

    assert "Version: 0.0.0\n" in (without or "")
    assert stated(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        '[project]\nname = "a"\ndynamic = ["version"]\n[build-system]\nbuild-backend = "setuptools_scm"\n',
        '[project]\nname = "a"\nversion = "1"\ndynamic = ["dependencies"]\n'
        '[build-system]\nbuild-backend = "hatchling.build"\n',
        "no toml",
    ],
)
def test_what_only_a_build_generates_is_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    assert stated(tmp_path) is None


def test_a_repository_is_locked_at_its_commit_and_what_it_requires_comes_from_the_index(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    url = write_repository(tmp_path / "repository", "a", "b")
    (project / "requirements.txt").write_text(f"git+{url}@v1\n")

    result = advise(advisor_here, project, "-o", str(project / "pylock.toml"), "-o", str(project / "lock.txt"))

    assert result.returncode == 0, result.stderr
    commit = git(tmp_path / "repository", "rev-parse", "HEAD")
    packages = packages_of(project)
    assert sorted(packages) == ["a", "b", "c"]
    assert packages["a"] == {
        "name": "a",
        "vcs": {"type": "git", "url": url, "requested-revision": "v1", "commit-id": commit},
    }
    lines = (project / "lock.txt").read_text().splitlines()
    assert f"a @ git+{url}@{commit}" in lines
    assert not any("--hash" in line for line in lines)


def test_a_branch_is_looked_up_again_and_offline_its_last_commit_is_used(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    url = write_repository(repository, "a")
    (project / "requirements.txt").write_text(f"a @ git+{url}@main\n")
    advise(advisor_here, project)
    write_package(repository, "a", "b", version="2.0")
    git(repository, "commit", "--quiet", "-am", "second")

    newer = advise(advisor_here, project)
    commit = git(repository, "rev-parse", "HEAD")
    vcs = packages_of(project)["a"]["vcs"]
    repository.rename(tmp_path / "gone")
    offline = advise(advisor_here, project, "--offline")

    assert (newer.returncode, offline.returncode) == (0, 0), offline.stderr
    assert isinstance(vcs, dict)
    assert vcs["commit-id"] == commit
    assert sorted(packages_of(project)) == ["a", "b", "c"]


@pytest.mark.parametrize("revision", ["short", "full"])
def test_a_commit_may_be_named_by_its_hash(advisor_here: Advisor, project: Path, tmp_path: Path, revision: str) -> None:
    url = write_repository(tmp_path / "repository", "a")
    commit = git(tmp_path / "repository", "rev-parse", "HEAD")
    (project / "requirements.txt").write_text(f"a @ git+{url}@{commit if revision == 'full' else commit[:8]}\n")

    assert advise(advisor_here, project).returncode == 0
    vcs = packages_of(project)["a"]["vcs"]
    assert isinstance(vcs, dict)
    assert vcs["commit-id"] == commit


def test_directories_in_a_repository_are_parts_of_it(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_package(repository / "libs" / "d", "d", "b")
    url = write_repository(repository, "a", "d", more='[tool.uv.sources]\nd = { path = "libs/d", editable = true }\n')
    (project / "requirements.txt").write_text(f"a @ git+{url}\n")

    result = advise(advisor_here, project)

    assert result.returncode == 0, result.stderr
    vcs = packages_of(project)["d"]["vcs"]
    assert isinstance(vcs, dict)
    assert (vcs["url"], vcs["subdirectory"]) == (url, "libs/d")


def test_directories_are_locked_with_relative_paths(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    write_package(project, "m", "b", more="[tool.setuptools]\n")
    write_package(tmp_path / "lib", "lib", "m")
    (project / "requirements.in").write_text("-e .\n../lib\n")
    outputs = [project / "pylock.toml", project / "lock.txt", project / "Pipfile.lock", project / "x.cdx.json"]
    options = [word for path in outputs for word in ("-o", str(path))]

    result = advise(advisor_here, project, "--requirements", str(project / "requirements.in"), *options)

    assert result.returncode == 0, result.stderr
    packages = packages_of(project)
    assert packages["m"]["directory"] == {"path": ".", "editable": True}
    assert packages["lib"]["directory"] == {"path": "../lib"}
    lines = (project / "lock.txt").read_text().splitlines()
    assert {"-e ./.", "../lib"} <= set(lines)
    pipfile = json.loads((project / "Pipfile.lock").read_text())["default"]
    assert pipfile["lib"] == {"path": "../lib"}
    components = json.loads((project / "x.cdx.json").read_text())["components"]
    assert {component["name"] for component in components} == {"b", "c", "lib", "m"}
    assert str(tmp_path) not in (project / "x.cdx.json").read_text()


def test_archives_are_locked_with_their_hash(advisor_here: Advisor, project: Path, index: PackageIndex) -> None:
    archive = archive_of({"a-main/pyproject.toml": '[project]\nname = "a"\nversion = "3"\ndependencies = ["b"]\n'})
    index.files["main.zip"] = archive
    index.add("w", "2.0")
    address = index.url.replace("/simple/", "/files")
    (project / "requirements.txt").write_text(f"{address}/main.zip\n{address}/w-2.0-py3-none-any.whl\n")
    outputs = ["-o", str(project / "pylock.toml"), "-o", str(project / "lock.txt")]

    result = advise(advisor_here, project, *outputs)
    offline = advise(advisor_here, project, *outputs, "--offline")

    assert (result.returncode, offline.returncode) == (0, 0), result.stderr + offline.stderr
    packages = packages_of(project)
    digest = hashlib.sha256(archive).hexdigest()
    assert packages["a"]["archive"] == {
        "url": f"{address}/main.zip",
        "size": len(archive),
        "hashes": {"sha256": digest},
    }
    assert packages["w"]["version"] == "2.0"
    assert f"a @ {address}/main.zip \\\n    --hash=sha256:{digest}" in (project / "lock.txt").read_text()


def test_what_needs_a_build_is_named_and_built_with_consent(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    (package / "pyproject.toml").write_text(BUILT_PYPROJECT.format(requires=""))
    (package / "backend.py").write_text(BACKEND.format(code="requires.append('b')"))
    (project / "requirements.txt").write_text("../lib\n")

    refused = advise(advisor_here, project)
    built = advise(advisor_here, project, "--build-sdists")

    assert refused.returncode == 3
    assert f"`{package.as_uri()}`" in refused.stderr
    assert "--build-sdists" in refused.stderr
    assert built.returncode == 0, built.stderr
    assert sorted(packages_of(project)) == ["a", "b", "c"]
    assert sorted(path.name for path in package.iterdir()) == ["backend.py", "pyproject.toml"]


def test_a_package_of_an_index_cannot_bring_code_from_an_address(
    advisor_here: Advisor, project: Path, index: PackageIndex, tmp_path: Path
) -> None:
    url = write_repository(tmp_path / "repository", "a")
    index.add("d", "1.0", [f"a @ git+{url}"])
    (project / "requirements.txt").write_text("d\n")

    refused = advise(advisor_here, project)
    (project / "requirements.txt").write_text(f"d\na @ git+{url}\n")
    accepted = advise(advisor_here, project)

    assert refused.returncode == 3
    assert "requires `a` from an address" in refused.stderr
    assert accepted.returncode == 0, accepted.stderr


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("./missing", 2, "requirements.txt:1: there is no directory or file"),
        ("x @ file:///home/conda/feedstock_root/build_artifacts/x/work", 2, "`pip list --format=freeze` names"),
        ("../empty", 2, "is not a package: it has no `pyproject.toml`"),
        ("other @ ../lib", 2, "is the package `lib`, not `other`"),
        ("git+file:///nowhere/at/all", 4, "the repository `file:///nowhere/at/all` cannot be read"),
        ("lib @ git+{url}@missing", 4, "has no branch, tag or commit `missing`"),
        ("hg+https://h/x", 2, "repository of `hg`, which is not supported"),
        ("https://127.0.0.1:9/w-1-cp38-cp38-win_amd64.whl", 3, "is not for Python 3.12 on"),
        ("../lib\nlib @ git+{url}", 3, "the package `lib` comes from two places"),
        ("../old", 3, "`old` (requirements.txt:1) requires Python `<3.9`"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(
    advisor_here: Advisor, project: Path, tmp_path: Path, line: str, code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    write_package(tmp_path / "lib", "lib")
    write_package(tmp_path / "old", "old", more='requires-python = "<3.9"\n')
    url = write_repository(tmp_path / "repository", "lib")
    (project / "requirements.txt").write_text(line.format(url=url) + "\n")

    result = advise(advisor_here, project)

    assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert not (project / "pylock.toml").exists()


def test_no_password_is_printed_or_locked(advisor_here: Advisor, project: Path, index: PackageIndex) -> None:
    index.files["main.zip"] = archive_of({"a-1/pyproject.toml": '[project]\nname = "a"\nversion = "3"\n'})
    address = index.url.replace("http://", "http://me:hidden@").replace("/simple/", "/files")
    outputs = ["-o", str(project / "pylock.toml"), "-o", str(project / "lock.txt")]
    (project / "requirements.txt").write_text(f"a @ {address}/main.zip\n")

    locked = advise(advisor_here, project, *outputs, "--format", "json")
    (project / "requirements.txt").write_text(f"other @ {address}/main.zip\n")
    refused = advise(advisor_here, project)

    assert (locked.returncode, refused.returncode) == (0, 2), locked.stderr
    texts = [locked.stdout, locked.stderr, refused.stderr, *(path.read_text() for path in project.glob("*lock*"))]
    assert not [text for text in texts if "hidden" in text]


def test_an_override_replaces_a_repository(advisor_here: Advisor, project: Path, index: PackageIndex) -> None:
    index.add("a", "4.0")
    (project / "requirements.txt").write_text("a @ git+file:///nowhere/at/all\n")
    (project / "overrides.txt").write_text("a==4.0\n")

    result = advise(advisor_here, project, "--override", str(project / "overrides.txt"))

    assert result.returncode == 0, result.stderr
    assert packages_of(project)["a"]["version"] == "4.0"


def test_the_gate_accepts_what_the_project_requires(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    url = write_repository(tmp_path / "repository", "a", "b")
    (project / "requirements.txt").write_text(f"git+{url}@v1\n-e ../lib\n")
    write_package(tmp_path / "lib", "lib", "b")
    options = ["--python", "3.12", "--hardware", "cpu-zen4"]
    advise(advisor_here, project)

    passed = advisor_here("check", str(project), *options, "--format", "json")
    (project / "requirements.txt").write_text(f"git+{url}@v1\n")
    surplus = advisor_here("check", str(project), *options, "--format", "json")
    (project / "requirements.txt").write_text("a\n-e ../lib\n")
    foreign = advisor_here("check", str(project), *options, "--format", "json")

    assert passed.returncode == 0, passed.stdout + passed.stderr
    findings = json.loads(passed.stdout)["findings"]
    assert {(f["code"], f["package"]) for f in findings if f["package"] in ("a", "lib")} == {
        ("ADV022", "a"),
        ("ADV022", "lib"),
    }
    assert ("ADV026", "lib") in {(f["code"], f["package"]) for f in json.loads(surplus.stdout)["findings"]}
    assert ("ADV026", "a") in {(f["code"], f["package"]) for f in json.loads(foreign.stdout)["findings"]}


def test_the_gate_finds_a_lock_from_another_repository(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    first, second = (write_repository(tmp_path / name, "a") for name in ("first", "second"))
    (project / "requirements.txt").write_text(f"a @ git+{first}\n")
    advise(advisor_here, project)
    (project / "requirements.txt").write_text(f"a @ git+{second}\n")

    result = advisor_here("check", str(project), "--python", "3.12", "--hardware", "cpu-zen4", "--format", "json")

    assert result.returncode == 1
    messages = {f["code"]: f["message"] for f in json.loads(result.stdout)["findings"]}
    assert f"is required from `git+{second}" in messages["ADV001"]


def test_a_change_cannot_add_a_repository_unnoticed(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    url = write_repository(tmp_path / "repository", "a")
    (project / "requirements.txt").write_text("b\n")
    advise(advisor_here, project)
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")
    (project / "requirements.txt").write_text(f"b\na @ git+{url}\n")
    advise(advisor_here, project)

    options = ["--python", "3.12", "--hardware", "cpu-zen4", "--base", "HEAD", "--format", "json"]
    result = advisor_here("check", str(project), *options)

    assert result.returncode == 1, result.stdout
    assert [f["code"] for f in json.loads(result.stdout)["findings"] if f["package"] == "a"] == ["ADV026"]
