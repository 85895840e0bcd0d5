"""The base of a change is read from git objects only, never from other files of the repository."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from advisor.gate.base.commit import export_commit, read_file_at
from advisor.gate.base.git_objects import tracked_files
from knowledge.domain.errors import InputError
from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with one commit."""
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    return project


def commit(project: Path) -> None:
    git(project, "add", "-A")
    git(project, "commit", "-qm", "more")


def export_last_commit(project: Path) -> tuple[dict[str, bytes], list[str]]:
    """Export the last commit; return its files by path, and the warnings."""
    skipped: list[str] = []
    with export_commit("HEAD", project, warn=skipped.append) as directory:
        assert not any(path.is_symlink() for path in directory.rglob("*"))
        files = {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}
    return files, skipped


@pytest.mark.parametrize("name", ["HEAD", "main", "requirements-main.txt"])
def test_a_file_of_the_change_is_not_used_as_a_commit(
    repository: Path, check: Run, index: PackageIndex, name: str
) -> None:
    git(repository, "branch", "requirements-main.txt")
    index.add("b", "1.2", code="", yanked=True)
    (repository / "pylock.toml").unlink()
    (repository / "requirements.txt").write_text("a==2.0\nb==1.2\n")
    (repository / name).write_text("a==2.0\nb==1.2\n")
    with (repository / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "trust me" }]\n')

    document = check("--base", name, "--policy-from-base")

    assert document["exit_code"] == 1
    assert {f["code"] for f in document["findings"]} >= {"ADV010", "ADV028"}


def test_a_file_named_head_is_not_used_as_the_policy(repository: Path, check: Run) -> None:
    (repository / "HEAD").write_text("")
    with (repository / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "trust me" }]\n')

    assert "ADV028" in {f["code"] for f in check("--policy-from-base")["findings"]}


def test_a_base_that_is_a_lock_needs_no_git(
    project: Path, check: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (project / "before.txt").write_text("a==1.0\nb==1.1\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert [c["package"] for c in check("--base", "before.txt")["targets"][0]["base"]["changes"]] == ["a"]


def test_a_base_without_git_is_an_error_with_a_hint(
    project: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    result = advisor_here("check", "--base", "main")

    assert (result.returncode, "`git` is not installed" in result.stderr) == (2, True)


def test_symbolic_links_are_followed_only_inside_the_repository(repository: Path) -> None:
    (repository / "deps").mkdir()
    (repository / "deps" / "list").write_text("a\n")
    (repository / "inside.txt").symlink_to("deps/list")
    (repository / "again.txt").symlink_to("./deps/../inside.txt")
    (repository / "absolute.txt").symlink_to("/etc/hostname")
    # Below the top of the repository, this would be a file of the commit.
    (repository / "rooted.txt").symlink_to("/deps/list")
    (repository / "outside.txt").symlink_to("../own.sqlite")
    (repository / "nothing.txt").symlink_to("deps/nothing")
    (repository / "loop.txt").symlink_to("loop.txt")
    commit(repository)

    files, skipped = export_last_commit(repository)

    assert files["inside.txt"] == files["again.txt"] == b"a\n"
    assert not {"absolute.txt", "rooted.txt", "outside.txt", "nothing.txt", "loop.txt"} & set(files)
    assert skipped == [
        "the base `HEAD` has 5 symbolic links that lead to no file of the repository, such as `absolute.txt`: they are "
        "skipped"
    ]


def test_an_absolute_path_is_not_a_file_of_a_commit(repository: Path) -> None:
    assert read_file_at("HEAD", repository, Path("pyproject.toml")) is not None
    assert read_file_at("HEAD", repository, Path("/pyproject.toml")) is None


def test_a_link_that_leaves_the_repository_through_another_link_is_skipped(repository: Path) -> None:
    deep = repository / "k" / "l"
    deep.mkdir(parents=True)
    (deep / "root").symlink_to("../..")
    (deep / "out.txt").symlink_to("root/../own.sqlite")
    (deep / "in.txt").symlink_to("root/pyproject.toml")
    commit(repository)

    files, skipped = export_last_commit(repository)

    assert files["k/l/in.txt"] == files["pyproject.toml"]
    assert "k/l/out.txt" not in files
    assert "`k/l/out.txt`" in skipped[0]


def test_included_files_of_any_name_are_exported(repository: Path) -> None:
    texts = {
        "requirements.txt": "-r reqs/base\n-c ./reqs/../limits\n-r linked/more\n-r /etc/hostname\n",
        "reqs/base": "a\n-rcommon\n--requirement=../../outside\n-r ../requirements.txt\n",
        "reqs/common": "b\n-r base\n",
        "reqs/unused": "-r other\n",
        "limits": "b<2\n",
        "deps/more": "--constraint 'wide'\n",
        "deps/wide": "b<3\n",
        "other": "c\n",
        "wide.in": "-c wide-limits\n",
    }
    for name, text in texts.items():
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_bytes(text.encode("utf-16" if name == "wide.in" else "utf-8"))
    (repository / "wide-limits").write_text("b<4\n")
    (repository / "linked").symlink_to("deps")
    (repository / "bad.txt").write_bytes(b"\xff\xfe\x00")
    commit(repository)

    files, skipped = export_last_commit(repository)

    included = {"requirements.txt", "reqs/base", "reqs/common", "limits", "linked/more", "linked/wide", "wide.in"}
    assert set(files) == {"pyproject.toml", "pylock.toml", "bad.txt", "wide-limits", *included}
    assert (files["reqs/base"], files["linked/more"]) == (texts["reqs/base"].encode(), texts["deps/more"].encode())
    assert skipped == []


@pytest.mark.parametrize("arguments", [(), ("-r", "reqs/base"), ("-c", "reqs/limits")])
def test_a_base_whose_requirements_have_no_suffix_is_read(
    repository: Path, advisor_here: Advisor, arguments: tuple[str, ...]
) -> None:
    (repository / "reqs").mkdir()
    (repository / "reqs" / "base").write_text("a\n")
    (repository / "reqs" / "limits").write_text("b<2\n")
    (repository / "requirements.txt").write_text("-r reqs/base\n")
    if not arguments:
        change(repository / "pyproject.toml", "[project]", "[unrelated]")
    commit(repository)

    result = advisor_here("check", "--base", "HEAD", *arguments)

    assert (result.returncode, "cannot be read" in result.stderr) == (0, False), result.stderr


@pytest.mark.parametrize("own_lock", ["pylock.toml", "requirements.txt"])
def test_a_line_without_an_exact_version_in_the_pinned_requirements_of_the_base_is_named(
    repository: Path, advisor_here: Advisor, own_lock: str
) -> None:
    pinned, lock = repository / "requirements.txt", (repository / "pylock.toml").read_text()
    pinned.write_text("a==2.0\nb>=1\n")
    git(repository, "rm", "-q", "pylock.toml")
    commit(repository)
    pinned.write_text("a==2.0\nb==1.1\n")
    if own_lock == "pylock.toml":
        pinned.unlink()
        (repository / own_lock).write_text(lock)

    result = advisor_here("check", "--base", "HEAD")

    assert result.returncode == 0, result.stderr
    assert "the lock of the base `HEAD` cannot be read, and everything counts as changed: " in result.stderr
    assert "requirements.txt:2: `b>=1` is not an exact version, so this file is not a lock" in result.stderr
    assert "has no lock" not in result.stderr


def test_names_and_attributes_of_other_files_have_no_effect(repository: Path) -> None:
    (repository / ".gitattributes").write_text("*.toml export-ignore\n*.txt text eol=crlf\n")
    with open(os.fsencode(repository) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"a\r\n\xff")
    commit(repository)

    files, skipped = export_last_commit(repository)

    assert (files[os.fsdecode(b"caf\xe9.txt")], skipped) == (b"a\n\xff", [])
    assert {"pyproject.toml", "pylock.toml"} <= set(files)


def test_a_base_with_many_files_is_read(repository: Path) -> None:
    # Together, their names are longer than a command line may be (2 MiB); git stores them as one tree.
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=repository, input=b"label", check=True, capture_output=True
    ).stdout.decode()
    lines = "".join(f"100644 blob {blob.strip()}\t{'label' * 40}{n}.txt\n" for n in range(11_000))
    tree = subprocess.run(
        ["git", "mktree"], cwd=repository, input=lines, check=True, capture_output=True, text=True
    ).stdout.strip()
    with export_commit(tree_commit(repository, tree), repository, warn=print) as directory:
        assert len(list(directory.iterdir())) == 11_000


def tree_commit(project: Path, tree: str) -> str:
    own = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    result = subprocess.run(
        ["git", *own, "commit-tree", "-m", "x", tree], cwd=project, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


def test_a_file_of_a_commit_is_read_unchanged(repository: Path) -> None:
    (repository / "node.yaml").symlink_to("nodes/one.yaml")
    (repository / "nodes").mkdir()
    (repository / "nodes" / "one.yaml").write_bytes(b"cpu: 1\n")
    commit(repository)

    assert read_file_at("HEAD", repository, Path("node.yaml")) == b"cpu: 1\n"
    assert read_file_at("HEAD", repository / "nodes", Path("one.yaml")) == b"cpu: 1\n"
    assert read_file_at("HEAD", repository, Path("../x")) is None


@pytest.mark.parametrize("name", ["bom.json", "own.cdx.json"])
def test_a_bill_of_materials_is_compared_with_the_one_of_the_base(repository: Path, check: Run, name: str) -> None:
    components = [{"name": n, "version": v, "purl": f"pkg:pypi/{n}@{v}"} for n, v in (("a", "2.0"), ("b", "1.1"))]
    (repository / name).write_text(json.dumps({"bomFormat": "CycloneDX", "components": components}))
    git(repository, "add", name)
    git(repository, "commit", "-qm", "bill")

    assert check("--base", "HEAD", "--current", name)["findings"] == []


def test_a_reference_that_looks_like_an_option_is_refused(repository: Path) -> None:
    with pytest.raises(InputError, match="neither a file nor a commit"), export_commit("--all", repository, warn=print):
        pass


def test_a_repository_nested_in_the_change_is_not_read_and_runs_no_program(
    repository: Path, advisor_here: Advisor
) -> None:
    # A commit may contain files that git reads as a bare repository, with settings that name programs to run.
    folder = repository / "packages" / "m"
    git(repository, "init", "-q", "--bare", "packages/m")
    (folder / "pyproject.toml").write_text((repository / "pyproject.toml").read_text())
    (folder / "pylock.toml").write_text((repository / "pylock.toml").read_text())
    for name, value in {"bare": "false", "worktree": ".", "fsmonitor": f"touch {repository}/ran; false"}.items():
        git(repository, "config", "--file", str(folder / "config"), f"core.{name}", value)

    result = advisor_here("check", str(folder), "--policy-from-base")
    files = tracked_files(folder, folder)

    assert (result.returncode, "git cannot read it: fatal: cannot use bare repository" in result.stderr) == (2, True)
    assert (files, (repository / "ran").exists()) == ((), False)


def test_a_change_in_a_repository_with_links_to_outside_is_checked(repository: Path, check: Run) -> None:
    (repository / "labels.txt").symlink_to("/data/labels.txt")
    commit(repository)
    change(repository / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert {f["code"] for f in check("--base", "HEAD")["findings"]} == {"ADV001"}
