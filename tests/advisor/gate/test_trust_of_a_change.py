"""Files and settings of a change that the gate does not trust: caches, knowledge bases, indexes, unchecked locks."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.gate.steps import Run, change, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with one commit."""
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")
    return project


def findings_of(document: dict[str, Any], code: str) -> list[dict[str, Any]]:
    return [f for f in document["findings"] if f["code"] == code]


def test_a_cache_in_the_change_is_refused(repository: Path, advisor_here: Advisor) -> None:
    (repository / ".cache").mkdir()
    (repository / ".cache" / "listed").write_text("forged")
    arguments = ("check", "--base", "HEAD", "--policy-from-base", "--cache-dir", ".cache")
    fine = advisor_here(*arguments)
    git(repository, "add", "-f", ".cache/listed")

    result = advisor_here(*arguments)

    assert fine.returncode == 0, fine.stderr
    assert result.returncode == 2
    assert "the cache `.cache` contains files of the repository, such as `.cache/listed`" in result.stderr


def test_a_cache_behind_a_link_in_the_change_is_refused(repository: Path, advisor_here: Advisor) -> None:
    (repository / "forged").mkdir()
    (repository / "forged" / "listed").write_text("forged")
    (repository / ".cache").symlink_to("forged")
    git(repository, "add", "-f", "forged")

    result = advisor_here("check", "--policy-from-base", "--cache-dir", ".cache")

    assert result.returncode == 2
    assert "contains files of the repository" in result.stderr


def test_the_knowledge_base_of_the_base_is_used(
    repository: Path, check: Run, empty_knowledge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADVISOR_KNOWLEDGE")
    shutil.copy(empty_knowledge, repository / "known.sqlite")
    change(repository / "pyproject.toml", 'python = "3.12"', 'python = "3.12"\nknowledge = "sqlite:///known.sqlite"')
    git(repository, "add", "known.sqlite", "pyproject.toml")
    git(repository, "commit", "-qm", "known")
    (repository / "known.sqlite").write_bytes(b"no database" * 1000)

    document = check("--base", "HEAD", "--policy-from-base")

    assert document["exit_code"] == 0
    assert [f["subject"] for f in findings_of(document, "ADV028")] == ["known.sqlite"]


def test_a_knowledge_base_that_the_change_adds_is_refused(
    repository: Path, advisor_here: Advisor, empty_knowledge: Path
) -> None:
    shutil.copy(empty_knowledge, repository / "known.sqlite")
    git(repository, "add", "known.sqlite")

    result = advisor_here("check", "--base", "HEAD", "--policy-from-base", "--knowledge", "known.sqlite")

    assert result.returncode == 2
    assert "the knowledge base `known.sqlite` is part of the change, but not of `HEAD`" in result.stderr


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_write_ahead_log_that_the_change_adds_is_refused(
    repository: Path, advisor_here: Advisor, empty_knowledge: Path, suffix: str
) -> None:
    # SQLite would write its content into the knowledge base.
    arguments = ("check", "--policy-from-base", "--knowledge", "known.sqlite")
    shutil.copy(empty_knowledge, repository / "known.sqlite")
    fine = advisor_here(*arguments)
    (repository / f"known.sqlite{suffix}").write_bytes(b"")
    git(repository, "add", f"known.sqlite{suffix}")

    result = advisor_here(*arguments)

    assert (fine.returncode, result.returncode) == (0, 2)
    assert f"`known.sqlite{suffix}` is part of the change" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--base", "HEAD"), ("--policy-from-base",)])
def test_a_changed_pip_configuration_is_refused(
    repository: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
    (repository / "pip.conf").write_text("[global]\ntimeout = 60\n")
    untracked = advisor_here("check", *arguments)
    git(repository, "add", "pip.conf")
    git(repository, "commit", "-qm", "configured")
    same = advisor_here("check", *arguments)
    (repository / "pip.conf").write_text("[global]\nextra-index-url = https://packages.example.org/simple\n")

    result = advisor_here("check", *arguments, "--offline")

    assert (untracked.returncode, same.returncode) == (0, 0)
    assert ("the change has another `pip.conf` than `HEAD`" in result.stderr) == bool(arguments)
    assert (result.returncode == 2) == bool(arguments)


@pytest.fixture
def submodule(repository: Path) -> Path:
    """A submodule of the project with a directory."""
    folder = repository / "sub"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "listed").write_text("forged")
    git(folder, "init", "-q")
    git(folder, "add", "files")
    git(folder, "commit", "-qm", "files")
    (repository / "linked").symlink_to("sub/files")
    return folder


@pytest.mark.parametrize("name", ["sub", "sub/files", "sub/absent/cache", "linked"])
def test_a_cache_in_a_submodule_is_refused(
    repository: Path, submodule: Path, advisor_here: Advisor, tmp_path: Path, name: str
) -> None:
    arguments = ("check", "--base", "HEAD", "--policy-from-base", "--cache-dir", name)
    # A repository that the change does not have as a submodule is not part of the change.
    separate = advisor_here(*arguments)
    git(repository, "add", "sub")

    result = advisor_here(*arguments)

    assert (separate.returncode, result.returncode) == (0, 2)
    assert f"the cache `{name}` " in result.stderr
    assert "is in the submodule `sub` of the repository" in result.stderr


def test_a_submodule_below_the_cache_is_refused(repository: Path, submodule: Path, advisor_here: Advisor) -> None:
    git(repository, "add", "sub")

    result = advisor_here("check", "--base", "HEAD", "--policy-from-base", "--cache-dir", ".")

    assert result.returncode == 2
    assert "the cache `.` contains files of the repository" in result.stderr


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_a_knowledge_base_in_a_submodule_is_refused(
    repository: Path, submodule: Path, advisor_here: Advisor, empty_knowledge: Path, prefix: str
) -> None:
    shutil.copy(empty_knowledge, submodule / "known.sqlite")
    git(repository, "add", "sub")
    git(repository, "commit", "-qm", "submodule")

    result = advisor_here("check", "--base", "HEAD", "--policy-from-base", "--knowledge", f"{prefix}sub/known.sqlite")

    assert result.returncode == 2
    assert "the knowledge base `sub/known.sqlite` is in the submodule `sub`" in result.stderr


def test_a_pip_configuration_in_a_submodule_is_refused(
    repository: Path, submodule: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (submodule / "pip.conf").write_text("[global]\ntimeout = 60\n")
    git(repository, "add", "sub")
    monkeypatch.setenv("PIP_CONFIG_FILE", "sub/pip.conf")

    result = advisor_here("check", "--base", "HEAD")

    assert result.returncode == 2
    assert "the configuration of pip `sub/pip.conf` is in the submodule `sub`" in result.stderr


PDM = '[[package]]\nname = "{name}"\nversion = "{version}"\ngroups = ["default"]\nfiles = [{files}]\n'


def pdm_lock(index: PackageIndex, *, unhashed: tuple[str, ...] = (), version: str = "1.1") -> str:
    """Return a lock of PDM with `a` and `b`."""
    text = ""
    for name, locked in (("a", "2.0"), ("b", version)):
        [entry] = [e for e in index.entries[name] if f"-{locked}-" in e["filename"]]
        file = f'{{file = "{entry["filename"]}", hash = "sha256:{entry["hashes"]["sha256"]}"}}'
        text += PDM.format(name=name, version=locked, files="" if name in unhashed else file)
    return text


@pytest.fixture
def with_pdm(project: Path, index: PackageIndex) -> Path:
    """The project with a lock of PDM in a commit."""
    (project / "pylock.toml").unlink()
    (project / "pdm.lock").write_text(pdm_lock(index))
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pdm.lock")
    git(project, "commit", "-qm", "base")
    return project


def test_a_change_that_removes_the_hashes_of_a_package_fails(with_pdm: Path, check: Run, index: PackageIndex) -> None:
    (with_pdm / "pdm.lock").write_text(pdm_lock(index, unhashed=("b",)))
    one = check("--base", "HEAD")
    (with_pdm / "pdm.lock").write_text(pdm_lock(index, unhashed=("b",), version="1.0"))
    of_another_version = check("--base", "HEAD")
    git(with_pdm, "commit", "-qam", "unhashed")
    unchanged = check("--base", "HEAD")

    for document in (one, of_another_version):
        assert [(f["package"], f["line"], f["level"]) for f in findings_of(document, "ADV029")] == [("b", 8, "error")]
    assert findings_of(unchanged, "ADV029") == []


def test_a_change_that_removes_the_hash_of_one_file_fails(with_pdm: Path, check: Run, index: PackageIndex) -> None:
    rest = pdm_lock(index, unhashed=("b",)).replace(PDM.format(name="b", version="1.1", files=""), "")
    index.add("b", "1.1", tag="cp312-cp312-win_amd64", code="")
    entries = [entry for entry in index.entries["b"] if "-1.1-" in entry["filename"]]
    hashed = [f'{{file = "{e["filename"]}", hash = "sha256:{e["hashes"]["sha256"]}"}}' for e in entries]

    def write(*files: str) -> None:
        (with_pdm / "pdm.lock").write_text(rest + PDM.format(name="b", version="1.1", files=", ".join(files)))

    write(*hashed)
    git(with_pdm, "commit", "-qam", "two files")
    unchanged = check("--base", "HEAD")
    write(hashed[0], f'{{file = "{entries[1]["filename"]}"}}')

    assert findings_of(unchanged, "ADV029") == []
    assert [f["package"] for f in findings_of(check("--base", "HEAD"), "ADV029")] == ["b"]


def test_a_new_package_without_hashes_fails_if_all_others_have_hashes(
    with_pdm: Path, check: Run, index: PackageIndex
) -> None:
    index.add("c", "1.0", code="")
    new = PDM.format(name="c", version="1.0", files="")
    (with_pdm / "pdm.lock").write_text(pdm_lock(index) + new)
    among_hashed = check("--base", "HEAD")
    (with_pdm / "pdm.lock").write_text(pdm_lock(index, unhashed=("a",)))
    git(with_pdm, "commit", "-qam", "one without")
    (with_pdm / "pdm.lock").write_text(pdm_lock(index, unhashed=("a",)) + new)

    assert [f["package"] for f in findings_of(among_hashed, "ADV029")] == ["c"]
    assert findings_of(check("--base", "HEAD"), "ADV029") == []


@pytest.mark.parametrize(
    "table",
    [
        '[[tool.pdm.source]]\nname = "x"\nurl = "https://packages.example.org/simple"\ninclude_packages = ["b"]\n',
        '[[tool.uv.index]]\nname = "x"\nurl = "https://packages.example.org/simple"\n',
    ],
)
def test_changed_indexes_are_reported(with_pdm: Path, check: Run, table: str) -> None:
    assert findings_of(check("--base", "HEAD", "--policy-from-base"), "ADV028") == []
    with (with_pdm / "pyproject.toml").open("a") as file:
        file.write(table)

    [finding] = findings_of(check("--base", "HEAD", "--policy-from-base"), "ADV028")

    assert (finding["subject"], finding["path"]) == ("indexes", "pyproject.toml")
    assert "the change has other package indexes than `HEAD`" in finding["message"]


def test_a_trusted_host_is_reported(repository: Path, check: Run) -> None:
    (repository / "locked.txt").write_text("--trusted-host pypi.org\na==2.0\nb==1.1\n")

    [finding] = findings_of(check("--current", "locked.txt"), "ADV030")

    assert (finding["subject"], finding["line"], finding["level"]) == ("pypi.org", 1, "error")


@pytest.mark.parametrize(
    ("url", "verified", "subjects"),
    [
        ("https://me:secret@index.example/simple", False, ["index.example"]),
        ("HTTPS://index.example:8443/simple", 0, ["index.example:8443"]),
        ("$INDEX", False, ["$INDEX"]),
        ("https://index.example/simple", True, []),
        ("https://index.example/simple", None, []),
        ("http://index.example/simple", False, []),
    ],
)
def test_a_pipfile_source_without_certificate_verification_is_reported(
    repository: Path, check: Run, index: PackageIndex, url: str, verified: object, subjects: list[str]
) -> None:
    other = {"name": "x", "url": url} | ({} if verified is None else {"verify_ssl": verified})
    sources = [{"name": "own", "url": index.url, "verify_ssl": False}, other]
    document = {"_meta": {"sources": sources}, "default": {"a": {"version": "==2.0"}, "b": {"version": "==1.1"}}}
    (repository / "Pipfile.lock").write_text(json.dumps(document, indent=1))

    findings = findings_of(check("--current", "Pipfile.lock"), "ADV030")

    assert [finding["subject"] for finding in findings] == subjects
    assert "secret" not in json.dumps(findings)
    assert all((finding["line"], finding["path"]) == (11, "Pipfile.lock") for finding in findings)


def test_requirements_unpinned_on_other_platforms_are_not_a_lock(repository: Path, check: Run) -> None:
    (repository / "locked.txt").write_text('a==2.0\nb==1.1\nevil ; sys_platform == "win32"\n')

    [finding] = check("--current", "locked.txt")["findings"]

    assert (finding["code"], finding["line"], finding["package"]) == ("ADV027", 3, "evil")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_requirements_in_every_encoding_of_pip_are_checked(repository: Path, check: Run, encoding: str) -> None:
    (repository / "locked.txt").write_bytes("a==2.0\nb==1.1\n".encode(encoding))

    assert {f["code"] for f in check("--current", "locked.txt")["findings"]} == {"ADV013", "ADV022"}


def test_another_yanked_version_is_a_change(repository: Path, check: Run, index: PackageIndex) -> None:
    index.add("b", "1.2", code="", yanked=True)
    index.add("b", "1.3", code="", yanked=True)
    (repository / "pylock.toml").unlink()
    (repository / "requirements.txt").write_text("a==2.0\nb==1.2\n")
    git(repository, "add", "-u")
    git(repository, "add", "requirements.txt")
    git(repository, "commit", "-qm", "yanked")
    before = check("--base", "HEAD")
    (repository / "requirements.txt").write_text("a==2.0\nb==1.3\n")

    assert findings_of(before, "ADV010") == []
    assert [f["package"] for f in findings_of(check("--base", "HEAD"), "ADV010")] == ["b"]


def test_another_missing_dependency_is_a_change(repository: Path, check: Run, index: PackageIndex) -> None:
    index.add("a", "3.0", ["c", "b", "d"], code="")
    for name in ("c", "d"):
        index.add(name, "1.0", code="")
    (repository / "locked.txt").write_text("a==3.0\nb==1.1\n")
    git(repository, "add", "locked.txt")
    git(repository, "commit", "-qm", "incomplete")
    before = check("--base", "HEAD", "--current", "locked.txt")
    (repository / "locked.txt").write_text("a==3.0\n")

    assert findings_of(before, "ADV001") == []
    assert [f["subject"] for f in findings_of(check("--base", "HEAD", "--current", "locked.txt"), "ADV001")] == [
        "missing"
    ]


def test_locks_that_no_target_checks_are_listed(repository: Path, check: Run) -> None:
    (repository / "uv.lock").write_text("version = 1\npackage = []\n")
    (repository / "requirements.txt").write_text("a==2.0\nb==1.1\n")

    finding = {f["subject"]: f["message"] for f in check()["findings"] if "not checked" in f["message"]}

    assert set(finding) == {"uv.lock", "requirements.txt"}
    assert "`lock` of a target" in finding["uv.lock"]


def test_unchecked_locks_of_the_base_are_reported_only_if_the_change_edits_them(repository: Path, check: Run) -> None:
    for name in ("uv.lock", "pdm.lock"):
        (repository / name).write_text("version = 1\npackage = []\n")
        git(repository, "add", name)
    git(repository, "commit", "-qm", "locks")
    unchanged = check("--base", "HEAD")
    (repository / "pdm.lock").write_text("package = []\n")
    (repository / "poetry.lock").write_text("package = []\n")

    changed = check("--base", "HEAD")

    assert [f["subject"] for f in findings_of(unchanged, "ADV022") if "not checked" in f["message"]] == []
    assert {f["subject"] for f in findings_of(changed, "ADV022") if "not checked" in f["message"]} == {
        "pdm.lock",
        "poetry.lock",
    }


def test_a_lock_above_the_size_limit_is_refused(repository: Path, check: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.project.text_file.MAX_BYTES", 1000)
    (repository / "locked.txt").write_text("a==2.0\nb==1.1\n" + "#" * 1000)
    (repository / "uv.lock").write_text("#" * 1001)

    for name in ("locked.txt", "uv.lock"):
        [finding] = check("--current", name)["findings"]
        assert (finding["code"], "larger than 1000 bytes" in finding["message"]) == ("ADV027", True)


@pytest.fixture
def built(project: Path, advisor_here: Advisor) -> Path:
    """A repository whose project has a build backend of its own, which states its requirements."""
    text = (project / "pyproject.toml").read_text()
    text = text.replace('dependencies = [\n  "a",\n]\n', 'version = "1"\ndynamic = ["dependencies"]\n')
    build_system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(f"{text}{build_system}")
    (project / "backend.py").write_text(
        "import os\n"
        "def prepare_metadata_for_build_wheel(directory, config_settings=None):\n"
        "    os.mkdir(os.path.join(directory, 'm-1.dist-info'))\n"
        "    with open(os.path.join(directory, 'm-1.dist-info', 'METADATA'), 'w') as file:\n"
        "        file.write('Metadata-Version: 2.1\\nName: m\\nVersion: 1\\nRequires-Dist: a\\n')\n"
        "    return 'm-1.dist-info'\n"
        "def build_wheel(*_, **__): raise SystemExit('not needed')\n"
    )
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml", "backend.py")
    git(project, "commit", "-qm", "base")
    return project


def test_the_indexes_of_a_base_that_is_not_built_stay_in_force(built: Path, check: Run) -> None:
    options = ("--base", "HEAD", "--build-project")
    same = check(*options)
    lock = built / "pylock.toml"
    address = tomllib.loads(lock.read_text())["packages"][0]["index"]
    lock.write_text(lock.read_text().replace(f'index = "{address}"', 'index = "https://other.example.org/simple/"'))
    with (built / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nindexes = ["https://other.example.org/simple/"]\n')

    changed = check(*options)

    assert same["exit_code"] == 0
    assert findings_of(changed, "ADV015")
    assert changed["exit_code"] == 1


def test_a_base_that_is_not_built_has_the_same_indexes(built: Path, check: Run) -> None:
    document = check("--base", "HEAD", "--policy-from-base", "--build-project")

    assert document["exit_code"] == 0
    assert not findings_of(document, "ADV028")
