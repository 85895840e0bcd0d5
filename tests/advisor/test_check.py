"""What the gate finds: each code, at its line, and nothing where nothing is wrong."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from knowledge.store.engine import open_knowledge_base
from tests.conftest import Advisor
from tests.knowledge.samples import observation
from tests.package_index import PackageIndex

Run = Callable[..., dict[str, Any]]


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    own = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave the configuration of this machine's pip and uv aside."""
    monkeypatch.setattr("advisor.index.configuration._pip_files", lambda *_: iter(()))
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def project(alone: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor) -> Path:
    """A locked project; the working directory is its own."""
    index.add("a", "1.0", ["b"], code="")
    index.add("a", "2.0", ["b"], code="")
    index.add("b", "1.0", code="")
    index.add("b", "1.1", code="")
    folder = tmp_path
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = [\n  "a",\n]\n\n[tool.uv]\nindex-url = "{index.url}"\n\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    done = advisor_here("advise")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def check(advisor_here: Advisor) -> Run:
    """Run the gate and return its JSON report."""

    def run(*arguments: str) -> dict[str, Any]:
        done = advisor_here("check", "--format", "json", *arguments)
        assert "Traceback" not in done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode, done.stderr
        return document

    return run


def places(document: dict[str, Any]) -> set[tuple[str, str, int]]:
    """Return code, file and line of what was found, but for what is only told."""
    return {(f["code"], f["path"], f["line"]) for f in document["findings"] if f["level"] != "note"}


def change(path: Path, old: str, new: str) -> int:
    """Replace a part of a file that must be there; return the line of the first place."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


def test_a_lock_that_is_as_advised_passes(project: Path, check: Run) -> None:
    found = check()

    assert places(found) == set()
    assert found["targets"][0]["recommended"]["packages"] == {"a": "2.0", "b": "1.1"}


def test_a_requirement_that_the_lock_does_not_hold_points_at_itself(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("c", "1.0", code="")
    line = change(project / "pyproject.toml", '  "a",\n', '  "a",\n  "c>=1",\n') + 1

    assert places(check()) == {("ADV001", "pyproject.toml", line)}


def test_a_version_that_a_requirement_refuses_points_at_the_requirement(project: Path, check: Run) -> None:
    line = change(project / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert places(check()) == {("ADV001", "pyproject.toml", line)}


def test_a_version_that_a_locked_package_refuses_points_at_the_lock(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("a", "2.1", ["b>=1.1"], code="")
    index.add("d", "1.0", ["b<1.1"], code="")
    (project / "requirements.txt").write_text("a==2.1\n# second\nb==1.0\nd==1.0\n")

    found = check("--current", "requirements.txt", "-r", "requirements.txt")

    assert ("ADV001", "requirements.txt", 3) in places(found)


def test_what_nothing_requires_is_told_without_failing(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("c", "1.0", code="")
    (project / "freeze.txt").write_text("a==2.0\nb==1.1\nc==1.0\n")

    found = check("--current", "freeze.txt")

    assert [f["message"] for f in found["findings"] if f["code"] == "ADV019"] == ["nothing on the target requires `c`"]
    assert found["exit_code"] == 0


def test_a_yanked_version_is_found(project: Path, check: Run, index: PackageIndex) -> None:
    for entry in index.entries["b"]:
        entry["yanked"] = entry["filename"].startswith("b-1.1")
    line = change(project / "pylock.toml", 'version = "1.1"', 'version = "1.1"')

    assert places(check("--refresh")) == {("ADV010", "pylock.toml", line)}


def test_a_version_that_left_the_index_is_found(project: Path, check: Run, index: PackageIndex) -> None:
    index.entries["b"] = [e for e in index.entries["b"] if not e["filename"].startswith("b-1.1")]

    assert {code for code, _, _ in places(check("--refresh"))} == {"ADV011"}


def test_a_lock_for_another_interpreter_is_not_installable(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("b", "1.2", tag="cp311-cp311-manylinux_2_17_x86_64", code="")
    (project / "freeze.txt").write_text("a==2.0\nb==1.2\n")

    assert ("ADV012", "freeze.txt", 2) in places(check("--current", "freeze.txt"))


def test_a_file_that_was_exchanged_is_found(project: Path, check: Run, index: PackageIndex) -> None:
    for entry in index.entries["b"]:
        entry["hashes"] = {"sha256": "0" * 64}

    assert {code for code, _, _ in places(check("--refresh"))} == {"ADV014"}


def test_a_lock_without_hashes_is_found(project: Path, check: Run) -> None:
    (project / "freeze.txt").write_text("a==2.0\nb==1.1\n")

    assert places(check("--current", "freeze.txt")) == {("ADV013", "freeze.txt", 1)}


def test_a_hash_that_is_forgotten_is_found_at_its_line(project: Path, check: Run, advisor_here: Advisor) -> None:
    advisor_here("advise", "-o", "locked.txt")
    lines = (project / "locked.txt").read_text().splitlines()
    (project / "locked.txt").write_text("\n".join(lines[:4]) + "\nb==1.1\n")
    assert lines[-2].startswith("b==")

    found = check("--current", "locked.txt")

    assert {(code, path) for code, path, _ in places(found)} == {("ADV013", "locked.txt")}


def test_a_vulnerable_version_is_found_with_its_advisory(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}

    found = check()

    assert [(f["code"], f["package"], f["subject"]) for f in found["findings"]] == [("ADV009", "b", "PYSEC-2026-7")]


def test_an_index_without_records_is_told(project: Path, check: Run) -> None:
    assert [f["code"] for f in check()["findings"]] == ["ADV022"]


def test_a_package_from_an_index_that_was_not_meant_is_found(project: Path, check: Run) -> None:
    text = (project / "pylock.toml").read_text()
    head, _, tail = text.partition('name = "b"')
    first = tail.index("http://127")
    (project / "pylock.toml").write_text(
        head + 'name = "b"' + tail[:first] + "https://packages.example.org/simple" + tail[tail.index('"', first) :]
    )

    found = check()

    assert {(f["code"], f["package"]) for f in found["findings"] if f["level"] == "error"} == {("ADV015", "b")}


def test_the_policys_indexes_count_alone(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nindexes = ["https://packages.example.org/simple"]\n')

    assert {code for code, _, _ in places(check())} == {"ADV015"}


def test_a_setting_that_was_measured_to_be_slow_is_found_in_the_sources(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("tensorflow-cpu", "2.20.0", code="")
    (project / "freeze.txt").write_text("tensorflow-cpu==2.20.0\n")
    (project / "train.py").write_text('import os\n\nos.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"\n')

    found = check("--current", "freeze.txt", "-r", "freeze.txt", "--workload", "equal")

    assert ("ADV016", "train.py", 3) in places(found)


def test_a_setting_that_the_project_states_is_judged_too(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("tensorflow-cpu", "2.20.0", code="")
    (project / "freeze.txt").write_text("tensorflow-cpu==2.20.0\n")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.settings]\nonednn = "off"\n')

    found = check("--current", "freeze.txt", "-r", "freeze.txt", "--workload", "equal")

    assert [(f["code"], f["path"]) for f in found["findings"] if f["code"] == "ADV016"] == [
        ("ADV016", "pyproject.toml")
    ]


def test_a_framework_that_nobody_measured_is_told(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("torch", "2.10.0", code="")
    (project / "freeze.txt").write_text("torch==2.10.0\n")

    found = check("--current", "freeze.txt", "-r", "freeze.txt", "--hardware", "a100")

    assert [(f["package"], f["level"]) for f in found["findings"] if f["code"] == "ADV017"] == [("torch", "note")]


def test_a_capability_that_a_build_does_not_serve_is_found(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("torch", "2.0.1", code="")
    index.add("nvidia-cuda-runtime", "13.0.88", code="")
    (project / "freeze.txt").write_text("torch==2.0.1\nnvidia-cuda-runtime==13.0.88\n")

    found = check("--current", "freeze.txt", "-r", "freeze.txt", "--hardware", "v100")

    assert ("ADV004", "freeze.txt", 2) in places(found)


def test_a_version_that_was_seen_to_fail_is_found(
    project: Path, check: Run, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("numpy", "2.1.0", code="")
    (project / "freeze.txt").write_text("numpy==2.1.0\n")
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(observation("2.1.0", status="crashed", round=number) for number in range(3))

    found = check("--current", "freeze.txt", "-r", "freeze.txt")

    assert ("ADV005", "freeze.txt", 1) in places(found)


def test_an_ignored_finding_does_not_fail_and_is_told_with_its_reason(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}
    with (project / "pyproject.toml").open("a") as file:
        file.write(
            '[tool.advisor.gate]\nignore = [{ code = "vulnerable", package = "b", reason = "not reachable", '
            "expires = 2999-01-01 }]\n"
        )

    found = check()

    assert found["findings"] == []
    assert [(f["code"], f["reason"]) for f in found["ignored"]] == [("ADV009", "not reachable")]


def test_an_expired_exception_is_a_finding_at_its_line(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(
        f'{text}[tool.advisor.gate]\nignore = [{{ code = "ADV009", reason = "later", expires = {yesterday} }}]\n'
    )

    found = check()

    line = text.count("\n") + 2
    assert ("ADV020", "pyproject.toml", line) in places(found)
    assert "ADV009" in {code for code, _, _ in places(found)}


def test_an_exception_that_covers_nothing_is_told(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "old" }]\n')

    assert "ADV021" in {f["code"] for f in check()["findings"]}


def test_every_target_is_judged_and_one_can_be_named(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("nvidia-cuda-runtime", "13.0.88", code="")
    change(project / "pyproject.toml", '  "a",\n', '  "nvidia-cuda-runtime",\n')
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.targets.old]\nhardware = "v100"\n[tool.advisor.targets.new]\nhardware = "h100"\n')
    (project / "pylock.toml").unlink()
    (project / "requirements.txt").write_text("nvidia-cuda-runtime==13.0.88\n")

    both, one = check(), check("--target", "new")

    assert [t["name"] for t in both["targets"]] == ["old", "new"]
    assert [f["targets"] for f in both["findings"] if f["code"] == "ADV004"] == [["old"]]
    assert both["exit_code"] == 1
    assert one["exit_code"] == 0


def test_against_a_base_only_the_change_is_judged(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"], ("a", "1.0"): ["PYSEC-2026-8"]}
    git(project, "init", "-q")
    git(project, "add", "pyproject.toml", "pylock.toml")
    git(project, "commit", "-qm", "base")

    unchanged = check("--base", "HEAD")
    (project / "freeze.txt").write_text("a==1.0\nb==1.1\n")
    changed = check("--base", "HEAD", "--current", "freeze.txt")

    assert unchanged["findings"] == []
    assert {f["subject"] for f in changed["findings"] if f["code"] == "ADV009"} == {"PYSEC-2026-8"}
    assert changed["targets"][0]["base"]["changes"] == [
        {"package": "a", "kind": "downgraded", "before": "2.0", "after": "1.0"}
    ]


def test_a_base_can_be_a_lock(project: Path, check: Run) -> None:
    (project / "before.txt").write_text("a==1.0\nb==1.1\n")

    found = check("--base", "before.txt")

    assert [c["package"] for c in found["targets"][0]["base"]["changes"]] == ["a"]


def test_a_base_in_a_directory_below_the_repositorys_own_is_found(
    project: Path, check: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "service"
    folder.mkdir()
    for name in ("pyproject.toml", "pylock.toml"):
        (project / name).rename(folder / name)
    git(project, "init", "-q")
    git(project, "add", "service")
    git(project, "commit", "-qm", "base")
    line = change(folder / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert places(check("service", "--base", "HEAD")) == {("ADV001", "service/pyproject.toml", line)}
    monkeypatch.chdir(folder)
    assert places(check("--base", "HEAD")) == {("ADV001", "pyproject.toml", line)}


def test_a_base_has_the_requirements_files_that_are_named(project: Path, check: Run) -> None:
    (project / "wanted.txt").write_text("a==2.0\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "base")
    (project / "wanted.txt").write_text("a==1.0\n")

    assert places(check("--base", "HEAD", "-r", "wanted.txt")) == {("ADV001", "wanted.txt", 1)}


def test_what_comes_from_no_index_is_told_and_not_judged(project: Path, check: Run) -> None:
    (project / "pylock.toml").unlink()
    (project / "uv.lock").write_text(
        'version = 1\n[[package]]\nname = "m"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "a" }]\n[[package]]\nname = "a"\nversion = "2.0"\n'
        'source = { git = "https://me:secret@git.example.org/a" }\n'
    )

    found = check()

    assert [f["message"] for f in found["findings"] if f["package"] == "a"] == [
        "`a` comes from `https://git.example.org/a`, no index: its files are not judged"
    ]


def test_offline_it_answers_from_the_cache_alone_and_the_same(
    project: Path, check: Run, index: PackageIndex, advisor_here: Advisor
) -> None:
    first = check()
    index.status = 500

    assert check("--offline") == first
    assert advisor_here("check", "--offline", "--cache-dir", "elsewhere").returncode == 4


def test_an_index_that_fails_never_passes_for_success(
    project: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    index.status = 500

    done = advisor_here("check", "--refresh", "--exit-zero", "-o", "sarif=report.sarif")

    assert done.returncode == 4
    assert "not complete" in done.stdout
    assert done.stderr.startswith("error: ")
    document = json.loads((project / "report.sarif").read_text())
    assert document["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_knowledge_base_that_cannot_be_read_never_passes_for_success(project: Path, advisor_here: Advisor) -> None:
    (project / "own.sqlite").write_bytes(b"no database" * 1000)

    done = advisor_here("check", "--exit-zero")

    assert done.returncode == 4
    assert "not complete" in done.stdout
    assert done.stderr.startswith("error: the knowledge base")


def test_exit_zero_is_for_findings_alone(project: Path, advisor_here: Advisor) -> None:
    change(project / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert advisor_here("check").returncode == 1
    assert advisor_here("check", "--exit-zero").returncode == 0


def test_constraints_that_no_stack_satisfies_are_told_where_nothing_else_fails(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    # The lock stays as it is; what is left of the index has no stack any more.
    for entry in index.entries["b"]:
        entry["requires-python"] = ">=3.99"
    change(project / "pyproject.toml", '  "a",\n', '  "a",\n  "b>9",\n')

    done = advisor_here("check", "--refresh", "--exit-zero")

    assert done.returncode in (0, 3)
    assert "ADV001" in done.stdout


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "told"),
    [
        (lambda p: (p / "pylock.toml").unlink(), (), 2, "no lock to check"),
        (lambda p: (p / "pylock.toml").write_text('lock-version = "1.0"\ncreated-by = "x'), (), 2, "cannot be read"),
        (
            lambda p: (p / "pylock.toml").write_text("a = 1\n<<<<<<< HEAD\nb = 2\n=======\nb = 3\n>>>>>>> x\n"),
            (),
            2,
            "line 2, holds conflict markers",
        ),
        (lambda p: None, ("--target", "gpu"), 2, "no target `gpu`"),
        (lambda p: git(p, "init", "-q"), ("--base", "nowhere"), 2, "neither a file nor a commit"),
        (lambda p: git(p, "init", "-q"), ("--base", "--output=x"), 2, "neither a file nor a commit"),
        (lambda p: None, ("--base", "main"), 2, "git does not read it"),
        (lambda p: None, ("--format", "yaml"), 2, "no format `yaml`"),
        (lambda p: None, ("-o", "report"), 2, "does not tell a format"),
        (lambda p: None, ("-o", "nowhere/report.json"), 2, "not a directory"),
        (lambda p: None, ("--current", "nothing.lock"), 2, "nothing.lock"),
    ],
)
def test_bad_input_is_one_sentence_and_the_documented_code(
    project: Path,
    advisor_here: Advisor,
    prepare: Callable[[Path], object],
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    prepare(project)

    done = advisor_here("check", *arguments)

    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("max-gpa = 0.1", "did you mean `max-gap`?"),
        ("max-gap = -0.1", "could never pass"),
        ("max-regression = 3", "lets everything pass"),
        ('max-gap = "much"', "not a fraction"),
        ("indexes = []", "no package could ever pass"),
        ('fail = ["ADV9"]', "no code of a finding"),
        ('fail = "ADV001"', "not a list"),
        ('ignore = [{ code = "ADV009" }]', "has no `reason`"),
        ('ignore = [{ code = "ADV09", reason = "x" }]', "did you mean"),
        ('ignore = [{ code = "ADV009", reason = "x", until = 2027-01-01 }]', "has no key `until`"),
        ('ignore = [{ code = "ADV009", reason = "x", expires = "soon" }]', "is not a date"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(project: Path, advisor_here: Advisor, gate: str, told: str) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write(f"[tool.advisor.gate]\n{gate}\n")

    done = advisor_here("check")

    assert done.returncode == 2
    assert told in done.stderr
    assert "pyproject.toml" in done.stderr


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('[tool.advisor.settings]\nonedn = "off"\n', "did you mean `onednn`?"),
        ("[tool.advisor.settings]\nonednn = true\n", "must be one of on, off"),
        ('[tool.advisor.targets.gpu]\nhardwear = "t4"\n', "did you mean `hardware`?"),
        ("[tool.advisor.targets.gpu]\npython = 3.12\n", "wrong kind"),
        ('[tool.advisor.targets.gpu]\nhardware = "t5"\n', "no hardware profile `t5`"),
        ('[tool.advisor.targets.gpu]\nlock = "pylock.gpu.toml"\n', "which does not exist"),
        ('[tool.advisor]\ntarget = "gpu"\n', "has no key `target`"),
    ],
)
def test_settings_and_targets_that_cannot_be_meant_are_refused(
    project: Path, advisor_here: Advisor, table: str, told: str
) -> None:
    text = (project / "pyproject.toml").read_text()
    own = table.removeprefix("[tool.advisor]\n")
    (project / "pyproject.toml").write_text(text + (own if own != table else table))

    done = advisor_here("check")

    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.slow
def test_two_thousand_packages_are_judged(
    alone: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor, check: Run
) -> None:
    names = [f"p{number}" for number in range(2000)]
    for name in names:
        index.add(name, "1.0", code="")
    (tmp_path / "requirements.txt").write_text(
        f"--index-url {index.url}\n" + "".join(f"{name}==1.0\n" for name in names)
    )

    found = check("--hardware", "cpu-zen4", "--index-url", index.url)

    assert len(found["targets"][0]["packages"]) == 2000
    assert found["exit_code"] == 0


def test_config_show_tells_where_each_value_comes_from(
    project: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nmax-gap = "7 %"\n')
    monkeypatch.setenv("ADVISOR_WORKLOAD", "cnn-training")

    rows = {row["key"]: row for row in json.loads(advisor_here("config", "show", "--format", "json").stdout)}
    told = advisor_here("config", "show").stdout

    assert (rows["hardware"]["value"], rows["hardware"]["from"]) == ("cpu-zen4", "pyproject.toml:11")
    assert rows["workload"]["from"] == "variable ADVISOR_WORKLOAD"
    assert (rows["gate.max-gap"]["value"], rows["gate.max-gap"]["from"]) == (0.07, "pyproject.toml:14")
    assert rows["gate.max-regression"]["from"] == "default"
    assert "objective" in told
    assert advisor_here("config", "show", "nowhere").returncode == 2


def test_rule_explains_a_finding(advisor_here: Advisor) -> None:
    assert "NumPy 1" in advisor_here("rule", "ADV006").stdout
    assert advisor_here("rule", "abi-break").stdout == advisor_here("rule", "adv006").stdout
    assert "ADV101" in advisor_here("rule").stdout
    done = advisor_here("rule", "ADV999")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no finding `ADV999`")
