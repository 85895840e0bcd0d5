"""What packages from repositories, archives and directories may not do: read secrets, run code, change unnoticed."""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import re
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from advisor.domain.direct_reference import parse_direct_reference, without_variables
from advisor.domain.target import make_target
from advisor.index.access import IndexAccess
from advisor.index.cache import DiskCache
from advisor.index.git import GitError, GitRepositories
from advisor.index.http.transport import Transport
from advisor.index.metadata.build import unpack
from advisor.project.formats.setup_files import read_setup_files
from advisor.project.interface import SelectedParts
from advisor.project.metadata.copy import copied_project, list_files
from advisor.project.metadata.source_tree import read_source_tree
from advisor.project.read import read_project
from knowledge.domain.errors import InputError, UnavailableError, without_secrets
from tests.advisor.direct_packages import advise, archive_of, git, packages_of, write_package, write_repository
from tests.advisor.factories import MACHINE
from tests.conftest import Advisor
from tests.package_index import PackageIndex

LINUX = make_target(python="3.12", platform="manylinux_2_28_x86_64", hardware=MACHINE)
OPTIONS = ["--python", "3.12", "--hardware", "cpu-zen4"]


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project without requirements yet, whose index has `b`."""
    index.add("b", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "uv.toml").write_text(f'index-url = "{index.url}"\n')
    return folder


def commit(project: Path) -> None:
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "first")


def codes_of(result: subprocess.CompletedProcess[str], package: str) -> set[str]:
    return {f["code"] for f in json.loads(result.stdout)["findings"] if f["package"] == package}


@pytest.mark.parametrize("name", ["pylock.toml", "lock.txt", "Pipfile.lock"])
@pytest.mark.parametrize("revision", ["", "@v1"])
def test_a_change_to_another_commit_is_reported(
    advisor_here: Advisor, project: Path, tmp_path: Path, name: str, revision: str
) -> None:
    url = write_repository(tmp_path / "repository", "a")
    (project / "requirements.in").write_text(f"a @ git+{url}{revision}\nb\n")
    lock = project / name
    files = ["--requirements", str(project / "requirements.in")]
    assert advise(advisor_here, project, *files, "-o", str(lock)).returncode == 0
    commit(project)
    first = git(tmp_path / "repository", "rev-parse", "HEAD")
    check = ["check", str(project), *files, "--current", str(lock), *OPTIONS, "--base", "HEAD", "--format", "json"]

    unchanged = advisor_here(*check)
    lock.write_text(lock.read_text().replace(first, "0" * 40))
    changed = advisor_here(*check)

    assert "ADV026" not in codes_of(unchanged, "a"), unchanged.stdout
    assert "ADV026" in codes_of(changed, "a"), changed.stdout + changed.stderr


def test_the_newest_commit_of_a_branch_may_replace_the_former_one(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    url = write_repository(repository, "a")
    (project / "requirements.txt").write_text(f"a @ git+{url}\nb\n")
    advise(advisor_here, project)
    commit(project)
    write_package(repository, "a", version="2.0")
    git(repository, "commit", "--quiet", "-am", "second")
    alone = advisor_here("check", str(project), *OPTIONS, "--format", "json")
    advise(advisor_here, project)

    result = advisor_here("check", str(project), *OPTIONS, "--base", "HEAD", "--format", "json")

    assert "ADV026" not in codes_of(alone, "a"), alone.stdout
    assert "ADV026" not in codes_of(result, "a"), result.stdout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/main.zip", "/main.zip?other"),
        ("size = ", 'subdirectory = "x"\nsize = '),
        ("{digest}", "0" * 64),
    ],
)
def test_a_changed_archive_is_reported(
    advisor_here: Advisor, project: Path, index: PackageIndex, before: str, after: str
) -> None:
    archive = archive_of({"a-main/pyproject.toml": '[project]\nname = "a"\nversion = "3"\n'})
    index.files["main.zip"] = archive
    (project / "requirements.txt").write_text(f"a @ {index.url.replace('/simple/', '/files')}/main.zip\nb\n")
    advise(advisor_here, project)
    commit(project)
    lock = project / "pylock.toml"
    text = lock.read_text()
    changed = text.replace(before.format(digest=hashlib.sha256(archive).hexdigest()), after)
    assert changed != text
    lock.write_text(changed)

    result = advisor_here("check", str(project), *OPTIONS, "--base", "HEAD", "--format", "json")

    assert "ADV026" in codes_of(result, "a"), result.stdout + result.stderr


def test_the_hash_of_an_archive_is_checked(advisor_here: Advisor, project: Path, index: PackageIndex) -> None:
    archive = archive_of({"a-main/pyproject.toml": '[project]\nname = "a"\nversion = "3"\n'})
    index.files["main.zip"] = archive
    address = f"{index.url.replace('/simple/', '/files')}/main.zip"
    results = []
    for digest in (hashlib.sha256(archive).hexdigest(), "0" * 64):
        for line in (f"a @ {address} --hash=sha256:{digest}", f"a @ {address}#sha256={digest}"):
            (project / "requirements.txt").write_text(f"{line}\nb\n")
            results.append(advise(advisor_here, project))

    assert [result.returncode for result in results] == [0, 0, 4, 4], [result.stderr for result in results]
    assert "the hash of" in results[2].stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a @ https://h/a.zip#md5=00", "hash `md5` cannot be checked"),
        ("a @ https://h/a.zip --hash=sha512:00", "the hash of an address is one SHA-256"),
        (f"a @ https://h/a.zip#sha256={'1' * 64} --hash=sha256:{'2' * 64}", "the hash of an address is one SHA-256"),
        ("a @ git+https://h/a --hash=sha256:00", "only an archive has a hash"),
    ],
)
def test_a_hash_that_would_not_be_checked_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")

    with pytest.raises(InputError, match=f"requirements.txt:1: .*{message}"):
        read_project(tmp_path)


def test_only_the_users_own_files_read_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALUE_OF_THE_USER", "hidden")
    address = "https://h/${VALUE_OF_THE_USER}/a.zip"
    package = write_package(tmp_path, "m", f"a @ {address}")
    headers = {
        kind: read_source_tree(package, LINUX, locate=lambda r: r, kind=kind) or ""
        for kind in ("directory", "vcs", "archive")
    }
    with without_variables():
        reference = parse_direct_reference(address, tmp_path).reference

    assert "hidden" in headers["directory"]
    assert "hidden" not in headers["vcs"] + headers["archive"]
    assert reference.url == address


@pytest.mark.parametrize(
    "text",
    [
        "a0 = ['x']\n" + "".join(f"a{n + 1} = [{', '.join([f'*a{n}'] * 50)}]\n" for n in range(40)) + "reqs = a40\n",
        "a0 = 'x'\n" + "".join(f"a{n + 1} = f'{{a{n}}}{{a{n}}}'\n" for n in range(45)) + "reqs = [a45]\n",
        "a0 = ['x']\n" + "".join(f"a{n + 1} = [a{n}, a{n}]\n" for n in range(45)) + "reqs = [f'{a45}']\n",
        "a0 = ['x']\n" + "".join(f"a{n + 1} = a{n} + a{n}\n" for n in range(45)) + "reqs = a45\n",
    ],
)
def test_values_that_grow_exponentially_are_not_evaluated(tmp_path: Path, text: str) -> None:
    (tmp_path / "setup.py").write_text(f"from setuptools import setup\n{text}setup(install_requires=reqs)\n")

    with pytest.raises(InputError, match="only known after a build"):
        read_setup_files(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "reqs = ['x']\ndef add(items):\n    items.append('y')\nadd(reqs)\n",
        "reqs = ['x']\nfrom deps import reqs\n",
        "reqs = ['x']\ntry:\n    import deps as reqs\nexcept ImportError:\n    pass\n",
    ],
)
def test_values_that_other_code_may_change_are_not_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "setup.py").write_text(f"from setuptools import setup\n{text}setup(install_requires=reqs)\n")

    with pytest.raises(InputError, match="only known after a build"):
        read_setup_files(tmp_path)


def test_extras_of_a_setup_file_may_have_markers(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "extras = {':python_version < \"3\"': ['b'], 'x:os_name == \"nt\"': ['c'], 'x': ['d; os_name == \"posix\"']}\n"
        "setup(name='m', version='1', install_requires=['a'], extras_require=extras)\n"
    )

    project = read_setup_files(tmp_path, SelectedParts(extras=("x",)))
    header = read_source_tree(tmp_path, LINUX, locate=lambda r: r) or ""

    assert [str(root.requirement) for root in project.roots] == [
        "a",
        'b; python_version < "3"',
        'c; os_name == "nt"',
        'd; os_name == "posix"',
    ]
    assert header.count("Provides-Extra: x\n") == 1
    assert 'Requires-Dist: b; python_version < "3"\n' in header
    assert 'Requires-Dist: d; os_name == "posix" and extra == "x"\n' in header


def test_something_else_than_a_requirement_in_a_setup_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=[None])\n")

    with pytest.raises(InputError, match="`None`, which is not a requirement"):
        read_setup_files(tmp_path)


def test_files_outside_of_a_project_are_not_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "private.txt").write_text("hidden\n")
    (project / "setup.cfg").write_text("[options]\ninstall_requires = file: ../private.txt\n")

    with pytest.raises(InputError, match="outside of the directory") as error:
        read_setup_files(project)

    assert "hidden" not in error.value.message


def test_a_stale_metadata_file_in_a_directory_is_not_read(tmp_path: Path) -> None:
    write_package(tmp_path, "a", version="2.0")
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: a\nVersion: 1.0\n")

    versions = [
        re.findall(r"^Version: (.*)", read_source_tree(tmp_path, LINUX, locate=lambda r: r, kind=kind) or "", re.M)
        for kind in ("directory", "vcs", "archive")
    ]

    assert versions == [["2.0"], ["2.0"], ["1.0"]]


def test_the_copy_for_a_build_has_the_history_but_no_configuration(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_repository(source, "a")
    git(source, "remote", "add", "origin", "https://me:hidden@h/a.git")
    (source / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")

    with copied_project(source) as copy:
        described = git(copy, "describe", "--tags")
        texts = [p.read_bytes() for p in (copy / ".git").rglob("*") if p.is_file() and "objects" not in p.parts]

    assert described == "v1"
    assert not [text for text in texts if b"hidden" in text or text.startswith(b"#!")]


def test_listing_files_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    write_repository(tmp_path, "a")
    program = tmp_path / "monitor"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(program))

    assert list_files(tmp_path) == ("monitor", "pyproject.toml")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`https://me:hidden@h/a` is", "`https://h/a` is"),
        ("git+https://hidden@h/a@v1", "git+https://h/a@v1"),
        ("hg+ssh://me:hidden@h/a", "hg+ssh://me@h/a"),
        ("https://h/a?x=1&private_token=hidden&y=2#z", "https://h/a?x=1&private_token=***&y=2#z"),
        (r"https://a\@b/x", r"https://a\@b/x"),
        ("name@example.org and https://h/a@b", "name@example.org and https://h/a@b"),
        pytest.param("a" * 10**6, "a" * 10**6, id="a megabyte"),
    ],
)
def test_secrets_are_removed_from_messages(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


@pytest.mark.parametrize(
    "line",
    [
        "a @ https://me:hidden@h/a.zip#subdirectory=../y",
        "a @ https://me:hidden@h/${NOT_SET_ANYWHERE}/a.zip",
        "a @ https://me:hidden@h/a.zip ; not_a_marker == 'x'",
        "a @ ftp://me:hidden@h/a.zip",
        "a @ hg+ssh://me:hidden@h/a",
        "a @ https://127.0.0.1:9/a.zip?token=hidden",
    ],
)
def test_no_message_contains_a_password(advisor_here: Advisor, project: Path, line: str) -> None:
    (project / "requirements.txt").write_text(f"{line}\n")

    result = advise(advisor_here, project)

    assert result.returncode in (2, 3, 4)
    assert "hidden" not in result.stdout + result.stderr
    assert "requirements.txt:1" in result.stderr


@pytest.mark.parametrize("address", ["git+https://me:hidden@h/a", "https://h/a.zip?token=hidden"])
def test_no_finding_contains_a_password(advisor_here: Advisor, project: Path, address: str) -> None:
    (project / "requirements.txt").write_text("b\n")
    advise(advisor_here, project)
    exact = f"{address}@{'1' * 40}" if address.startswith("git") else address
    (project / "lock.txt").write_text(f"a @ {exact}\nb==1.0\n")

    result = advisor_here("check", str(project), "--current", str(project / "lock.txt"), *OPTIONS, "--format", "json")

    assert "ADV026" in codes_of(result, "a"), result.stdout + result.stderr
    assert "hidden" not in result.stdout + result.stderr


def test_a_package_may_be_required_twice_from_one_directory(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    write_package(tmp_path / "lib", "lib", "b")
    url = write_repository(tmp_path / "repository", "r")
    write_package(tmp_path / "other", "other", "lib @ ../lib", f"r @ git+{url}")
    (project / "requirements.txt").write_text(f"-e ../lib\n../other\nr @ git+{url}@v1\n")

    result = advise(advisor_here, project)

    assert result.returncode == 0, result.stderr
    assert packages_of(project)["lib"]["directory"] == {"path": "../lib", "editable": True}


def test_an_address_in_constraints_is_read_only_if_it_is_needed(
    advisor_here: Advisor, project: Path, index: PackageIndex
) -> None:
    index.add("d", "1.0", ["a"])
    index.add("a", "1.0")
    (project / "constraints.txt").write_text("a @ file:///nowhere/at/all\n")
    (project / "requirements.txt").write_text("b\n-c constraints.txt\n")
    unused = advise(advisor_here, project)
    (project / "requirements.txt").write_text("d\n-c constraints.txt\n")
    needed = advise(advisor_here, project)

    assert unused.returncode == 0, unused.stderr
    assert (needed.returncode, "there is no directory or file" in needed.stderr) == (2, True), needed.stderr


def test_the_gate_checks_what_can_be_read_of_several_addresses(
    advisor_here: Advisor, project: Path, tmp_path: Path
) -> None:
    url = write_repository(tmp_path / "repository", "a")
    write_package(tmp_path / "lib", "lib", "b<1")
    lines = f"a @ git+{url}\n../lib\nb\n"
    (project / "requirements.txt").write_text(lines.replace("../lib\n", ""))
    advise(advisor_here, project)
    (project / "requirements.txt").write_text(lines + "c @ git+file:///nowhere/at/all\n")

    result = advisor_here("check", str(project), *OPTIONS, "--format", "json")

    assert "nowhere" in result.stderr
    messages = [f["message"] for f in json.loads(result.stdout)["findings"]]
    assert [message for message in messages if "lib" in message and "b" in message], messages


def test_an_update_leaves_packages_from_addresses_as_they_are(
    advisor_here: Advisor, project: Path, tmp_path: Path, index: PackageIndex
) -> None:
    url = write_repository(tmp_path / "repository", "a", "b")
    (project / "requirements.txt").write_text(f"a @ git+{url}\n../lib\n")
    write_package(tmp_path / "lib", "lib", "b")
    index.add("b", "0.5")
    advise(advisor_here, project)
    (project / "requirements.txt").write_text(f"a @ git+{url}\n../lib\nb<1\n")

    result = advise(advisor_here, project, "--update")

    assert result.returncode == 0, result.stderr
    packages = packages_of(project)
    assert (packages["b"]["version"], sorted(packages)) == ("0.5", ["a", "b", "lib"])


def test_the_advice_just_written_has_no_differences(advisor_here: Advisor, project: Path, tmp_path: Path) -> None:
    url = write_repository(tmp_path / "repository", "a", "b")
    (project / "requirements.txt").write_text(f"a @ git+{url}\n../lib\n")
    write_package(tmp_path / "lib", "lib", "b")
    advise(advisor_here, project)

    result = advisor_here("check", str(project), *OPTIONS)

    assert result.returncode == 0, result.stdout
    assert "no version differs from the recommended stack" in result.stdout
    assert result.stdout.count("differ") == 1


def compressed(compress: Callable[[bytes], bytes], *names: str) -> bytes:
    """Return a tar archive with a `pyproject.toml` and an empty file at some paths."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in names:
            text = b'[project]\nname = "a"\nversion = "3"\n' if name.endswith("pyproject.toml") else b""
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return compress(content.getvalue())


@pytest.mark.parametrize(
    ("filename", "compress"), [("a.tar.bz2", bz2.compress), ("a.tar.xz", lzma.compress)], ids=["bz2", "xz"]
)
@pytest.mark.parametrize("names", [("a-3/pyproject.toml",), ("pyproject.toml", "a/x"), ("pyproject.toml",)])
def test_archives_of_every_usual_form_are_read(
    tmp_path: Path, filename: str, compress: Callable[[bytes], bytes], names: tuple[str, ...]
) -> None:
    tree = unpack(io.BytesIO(compressed(compress, *names)), filename, tmp_path / "source")

    assert tomllib.loads((tree / "pyproject.toml").read_text())["project"]["name"] == "a"


def test_a_zip_archive_without_a_top_level_directory_is_read(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("pyproject.toml", "a/__init__.py", "b/__init__.py"):
            archive.writestr(name, "")

    assert unpack(content, "a.zip", tmp_path / "source") == tmp_path / "source"


@pytest.mark.parametrize("damage", [lambda c: c[: len(c) // 2], lambda c: b"no archive" + c])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    content = damage(compressed(lzma.compress, "a-3/pyproject.toml"))

    with pytest.raises(UnavailableError, match="`a.tar.xz` is not a readable sdist"):
        unpack(io.BytesIO(content), "a.tar.xz", tmp_path / "source")


def test_a_compressed_archive_that_needs_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 512 * 2**20}]
    content = compressed(lambda c: lzma.compress(c, filters=filters), "a-3/pyproject.toml")

    with pytest.raises(UnavailableError, match="is not a readable sdist: Memory usage limit"):
        unpack(io.BytesIO(content), "a.tar.xz", tmp_path / "source")


def test_submodules_are_fetched_for_a_build_only(tmp_path: Path) -> None:
    write_repository(tmp_path / "part", "part")
    url = write_repository(tmp_path / "whole", "whole")
    git(tmp_path / "whole", "submodule", "--quiet", "add", (tmp_path / "part").as_uri(), "part")
    git(tmp_path / "whole", "commit", "--quiet", "-m", "second")
    repositories = GitRepositories(IndexAccess(transport=cast(Transport, None), cache=DiskCache(tmp_path / "cache")))
    revision = repositories.commit_of(url, "")

    repositories.check_out(url, revision, tmp_path / "plain")
    # Git itself refuses submodules on this machine's disk, so that a repository cannot read its files.
    with pytest.raises(GitError, match="cannot be read"):
        repositories.check_out(url, revision, tmp_path / "full", history=True)

    assert not list((tmp_path / "plain" / "part").iterdir())


def test_pixi_platforms_and_indexes_are_read(tmp_path: Path) -> None:
    (tmp_path / "pixi.toml").write_text(
        '[workspace]\nname = "m"\n[pypi-dependencies]\na = ">=1"\nb = { version = "==2", index = "https://h/simple" }\n'
        '[target.linux-64.pypi-dependencies]\na = "==1.5"\nc = "*"\n[target.win.pypi-dependencies]\nd = "*"\n'
    )
    project = read_project(tmp_path)

    linux = [r for r in project.roots if not r.requirement.marker or r.requirement.marker.evaluate(dict(LINUX.markers))]

    assert sorted(f"{r.name}{r.requirement.specifier}" for r in linux) == ["a==1.5", "b==2", "c"]
    assert project.bindings == {"b": "https://h/simple"}


@pytest.mark.parametrize("value", ["1", '"1"', "{ version = 1 }"])
def test_a_pixi_version_without_an_operator_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "pixi.toml").write_text(f'[workspace]\nname = "m"\n[pypi-dependencies]\nleaf = {value}\n')

    with pytest.raises(InputError, match=r"pixi.toml:4: `1` is not a version of `leaf`"):
        read_project(tmp_path)


def test_sources_of_uv_apply_to_overrides(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\noverride-dependencies = ["lib"]\n'
        '[tool.uv.sources]\nlib = { path = "lib" }\n'
    )

    overrides = read_project(tmp_path).on_target(LINUX).overrides

    assert [override.direct and override.direct.url for override in overrides] == [str(tmp_path / "lib")]


def test_an_absolute_member_of_a_workspace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "m"\ndependencies = ["lib"]\n[tool.uv.workspace]\nmembers = ["/abs/*"]\n'
        "[tool.uv.sources]\nlib = { workspace = true }\n"
    )

    with pytest.raises(InputError, match="`/abs/\\*` of the workspace is an absolute path"):
        read_project(tmp_path)
