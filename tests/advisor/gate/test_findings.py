"""Findings of the gate: each code at its line, and none for a correct lock."""

from __future__ import annotations

import json
import re
import venv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from advisor.gate.checks.compatibility import check_compatibility
from advisor.index.cache import DiskCache
from advisor.locks.registry import read_lock
from advisor.resolve.score.predictor import Predictor
from knowledge.store.engine import open_knowledge_base
from tests.advisor.factories import MACHINE, build_problem, build_scope
from tests.advisor.gate.lock_texts import Document, named_lock, pipfile_lock, pylock, uv_lock
from tests.advisor.gate.steps import Run, change, places
from tests.conftest import Advisor
from tests.knowledge.samples import observation
from tests.package_index import PackageIndex


def test_a_recommended_lock_passes(project: Path, check: Run) -> None:
    report = check()

    assert places(report) == set()
    assert report["targets"][0]["recommended"]["packages"] == {"a": "2.0", "b": "1.1"}


def test_a_requirement_missing_from_the_lock_is_reported_at_its_line(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("c", "1.0", code="")
    line = change(project / "pyproject.toml", '  "a",\n', '  "a",\n  "c>=1",\n') + 1

    assert places(check()) == {("ADV001", "pyproject.toml", line)}


def test_a_version_outside_a_requirement_is_reported_at_the_requirement(project: Path, check: Run) -> None:
    line = change(project / "pyproject.toml", '  "a",\n', '  "a<2",\n')

    assert places(check()) == {("ADV001", "pyproject.toml", line)}


def test_a_version_outside_a_requirement_of_a_locked_package_is_reported_at_the_lock(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("a", "2.1", ["b>=1.1"], code="")
    index.add("d", "1.0", ["b<1.1"], code="")
    (project / "requirements.txt").write_text("a==2.1\n# second\nb==1.0\nd==1.0\n")

    report = check("--current", "requirements.txt", "-r", "requirements.txt")

    assert ("ADV001", "requirements.txt", 3) in places(report)


def test_a_package_that_nothing_requires_is_a_note(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("c", "1.0", code="")
    (project / "freeze.txt").write_text("a==2.0\nb==1.1\nc==1.0\n")

    report = check("--current", "freeze.txt")

    assert [f["message"] for f in report["findings"] if f["code"] == "ADV019"] == ["nothing on the target requires `c`"]
    assert report["exit_code"] == 0


def test_a_yanked_version_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    for entry in index.entries["b"]:
        entry["yanked"] = entry["filename"].startswith("b-1.1")
    line = change(project / "pylock.toml", 'version = "1.1"', 'version = "1.1"')

    assert places(check("--refresh")) == {("ADV010", "pylock.toml", line)}


def test_a_version_that_is_no_longer_on_the_index_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    index.entries["b"] = [e for e in index.entries["b"] if not e["filename"].startswith("b-1.1")]

    assert {code for code, _, _ in places(check("--refresh"))} == {"ADV011"}


def test_a_lock_for_another_interpreter_is_not_installable(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("b", "1.2", tag="cp311-cp311-manylinux_2_17_x86_64", code="")
    (project / "freeze.txt").write_text("a==2.0\nb==1.2\n")

    assert ("ADV012", "freeze.txt", 2) in places(check("--current", "freeze.txt"))


def test_a_replaced_file_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    for entry in index.entries["b"]:
        entry["hashes"] = {"sha256": "0" * 64}

    assert {code for code, _, _ in places(check("--refresh"))} == {"ADV014"}


def test_a_lock_without_hashes_is_reported(project: Path, check: Run) -> None:
    (project / "freeze.txt").write_text("a==2.0\nb==1.1\n")

    assert places(check("--current", "freeze.txt")) == {("ADV013", "freeze.txt", 1)}


def test_a_missing_hash_is_reported_at_its_line(project: Path, check: Run, advisor_here: Advisor) -> None:
    advisor_here("advise", "-o", "locked.txt")
    lines = (project / "locked.txt").read_text().splitlines()
    [line] = [number for number, text in enumerate(lines) if text.startswith("b==")]
    (project / "locked.txt").write_text("\n".join([*lines[:line], "b==1.1"]) + "\n")

    report = check("--current", "locked.txt")

    assert {(code, path) for code, path, _ in places(report)} == {("ADV013", "locked.txt")}


def test_a_vulnerable_version_is_reported_with_its_advisory(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}

    report = check()

    assert [(f["code"], f["package"], f["subject"]) for f in report["findings"]] == [("ADV009", "b", "PYSEC-2026-7")]


def test_an_index_without_vulnerability_records_is_reported(project: Path, check: Run) -> None:
    assert [f["code"] for f in check()["findings"]] == ["ADV022"]


def test_a_package_from_another_index_is_reported(project: Path, check: Run) -> None:
    text = (project / "pylock.toml").read_text()
    head, _, tail = text.partition('name = "b"')
    first = tail.index("http://127")
    (project / "pylock.toml").write_text(
        head + 'name = "b"' + tail[:first] + "https://packages.example.org/simple" + tail[tail.index('"', first) :]
    )

    report = check()

    assert {(f["code"], f["package"]) for f in report["findings"] if f["level"] == "error"} == {("ADV015", "b")}


def test_indexes_of_the_policy_replace_those_of_the_project(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nindexes = ["https://packages.example.org/simple"]\n')

    assert {code for code, _, _ in places(check())} == {"ADV015"}


def test_a_setting_measured_as_slow_is_reported_in_the_sources(
    project: Path, check: Run, index: PackageIndex, slow_without_onednn: None
) -> None:
    index.add("tensorflow", "2.20.0", code="")
    (project / "freeze.txt").write_text("tensorflow==2.20.0\n")
    (project / "train.py").write_text('import os\n\nos.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"\n')

    report = check("--current", "freeze.txt", "-r", "freeze.txt", "--workload", "transformer-training")

    assert ("ADV016", "train.py", 3) in places(report)


def test_a_setting_in_the_project_table_is_checked(
    project: Path, check: Run, index: PackageIndex, slow_without_onednn: None
) -> None:
    index.add("tensorflow", "2.20.0", code="")
    (project / "freeze.txt").write_text("tensorflow==2.20.0\n")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.settings]\nonednn = "off"\n')

    report = check("--current", "freeze.txt", "-r", "freeze.txt", "--workload", "transformer-training")

    assert [(f["code"], f["path"]) for f in report["findings"] if f["code"] == "ADV016"] == [
        ("ADV016", "pyproject.toml")
    ]


def test_a_framework_without_measurements_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("torch", "2.10.0", code="")
    (project / "freeze.txt").write_text("torch==2.10.0\n")

    report = check("--current", "freeze.txt", "-r", "freeze.txt", "--hardware", "a100")

    assert [(f["package"], f["level"]) for f in report["findings"] if f["code"] == "ADV017"] == [("torch", "note")]


def test_a_compute_capability_that_the_build_does_not_support_is_reported(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.add("torch", "2.0.1", code="")
    index.add("nvidia-cuda-runtime", "13.0.88", code="")
    (project / "freeze.txt").write_text("torch==2.0.1\nnvidia-cuda-runtime==13.0.88\n")

    report = check("--current", "freeze.txt", "-r", "freeze.txt", "--hardware", "v100")

    assert ("ADV004", "freeze.txt", 2) in places(report)


def test_the_driver_that_a_lock_needs_is_a_note_if_that_of_the_target_is_not_known(
    project: Path, check: Run, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("torch", "2.12.0", code="")
    (project / "freeze.txt").write_text("torch==2.12.0\n")
    profile = "source: https://example.org\ncpu: {architecture: x86_64, microarchitecture: zen4}\n"
    gpu = "accelerators: [{vendor: nvidia, model: H100, compute_capability: '9.0'}]\n"
    (tmp_path / "known.yaml").write_text(f"{profile}{gpu}driver: '999.0'\n")
    arguments = ("--current", "freeze.txt", "-r", "freeze.txt", "--hardware")

    unknown, known = check(*arguments, "h100"), check(*arguments, str(tmp_path / "known.yaml"))

    (finding,) = [f for f in unknown["findings"] if f["code"] == "ADV039"]
    assert finding["level"] == "note"
    assert "CUDA 13.0 needs driver" in finding["message"]
    assert "the driver of the target is not known" in finding["message"]
    assert "ADV039" not in {f["code"] for f in known["findings"]}


def test_a_version_with_a_recorded_failure_is_reported(
    project: Path, check: Run, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("numpy", "2.1.0", code="")
    (project / "freeze.txt").write_text("numpy==2.1.0\n")
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(observation("2.1.0", status="crashed", round=number) for number in range(3))

    report = check("--current", "freeze.txt", "-r", "freeze.txt")

    assert ("ADV005", "freeze.txt", 1) in places(report)


def test_a_cpu_build_on_a_gpu_target_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    index.add("torch", "2.10.0+cpu", code="")
    (project / "freeze.txt").write_text("torch==2.10.0+cpu\n")

    report = check("--current", "freeze.txt", "-r", "freeze.txt", "--hardware", "a100")

    assert [(f["package"], f["level"]) for f in report["findings"] if f["code"] == "ADV018"] == [("torch", "warning")]


def test_a_gap_to_the_recommended_stack_above_the_limit_is_reported(
    project: Path, check: Run, index: PackageIndex, slow_tensorflow: None
) -> None:
    index.add("tensorflow", "2.12.1", code="")
    index.add("tensorflow", "2.20.0", code="")
    (project / "loose.txt").write_text("tensorflow\n")
    (project / "freeze.txt").write_text("tensorflow==2.12.1\n")
    arguments = ("--current", "freeze.txt", "-r", "loose.txt", "--workload", "transformer-training")

    beyond = check(*arguments)
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nmax-gap = "1000 %"\n')
    within = check(*arguments)

    assert "ADV008" not in {f["code"] for f in within["findings"]}
    assert ("ADV008", "freeze.txt", 1) in places(beyond)


def test_an_ignored_finding_is_listed_with_its_reason_and_does_not_fail(
    project: Path, check: Run, index: PackageIndex
) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}
    with (project / "pyproject.toml").open("a") as file:
        file.write(
            '[tool.advisor.gate]\nignore = [{ code = "vulnerable", package = "b", reason = "not reachable", '
            "expires = 2999-01-01 }]\n"
        )

    report = check()

    assert report["findings"] == []
    assert [(f["code"], f["reason"]) for f in report["ignored"]] == [("ADV009", "not reachable")]


def test_an_exception_covers_only_its_package(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): ["PYSEC-2026-8"], ("b", "1.1"): ["PYSEC-2026-7"]}
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "vulnerable", package = "B", reason = "not reachable" }]\n')

    report = check()

    assert [(f["code"], f["package"]) for f in report["findings"] if f["level"] == "error"] == [("ADV009", "a")]
    assert [(f["code"], f["package"]) for f in report["ignored"]] == [("ADV009", "b")]
    assert report["exit_code"] == 1


def test_only_codes_in_the_policys_fail_list_fail(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}
    for entry in index.entries["a"]:
        entry["yanked"] = entry["filename"].startswith("a-2.0")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nfail = ["yanked"]\n')

    report = check("--refresh")

    levels = {f["code"]: f["level"] for f in report["findings"]}
    assert (levels["ADV009"], levels["ADV010"]) == ("warning", "error")
    assert report["exit_code"] == 1


def test_an_expired_exception_is_a_finding_at_its_line(project: Path, check: Run, index: PackageIndex) -> None:
    index.vulnerabilities |= {("a", "2.0"): [], ("b", "1.1"): ["PYSEC-2026-7"]}
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(
        f'{text}[tool.advisor.gate]\nignore = [{{ code = "ADV009", reason = "later", expires = {yesterday} }}]\n'
    )

    report = check()

    line = text.count("\n") + 2
    assert ("ADV020", "pyproject.toml", line) in places(report)
    assert "ADV009" in {code for code, _, _ in places(report)}


def test_an_exception_that_covers_no_finding_is_reported(project: Path, check: Run) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV010", reason = "old" }]\n')

    assert "ADV021" in {f["code"] for f in check()["findings"]}


def test_every_target_is_checked_and_a_single_one_can_be_selected(
    project: Path, check: Run, index: PackageIndex
) -> None:
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


def test_two_packages_that_a_rule_forbids_together_are_reported(tmp_path: Path, knowledge_file: Path) -> None:
    (tmp_path / "freeze.txt").write_text("jax==0.7.2\nopt-einsum==2.3.2\n")
    problem = build_problem("jax", "opt-einsum")
    lock = read_lock(tmp_path / "freeze.txt", problem.target)
    predictor = Predictor(DiskCache(tmp_path), address=f"sqlite:///{knowledge_file}", hardware=MACHINE)

    report = list(check_compatibility(build_scope(lock, problem, predictor=predictor)))

    assert [(f.code, f.package, f.place.line, f.level) for f in report] == [("ADV002", "opt-einsum", 2, "error")]


OTHER_PYTHON: dict[str, Callable[[Document], str]] = {
    "pylock.toml": lambda six: "requires-python = '>=3.13'\n" + pylock(six),
    "uv.lock": lambda six: "requires-python = '>=3.13'\n" + uv_lock(six),
    "poetry.lock": lambda six: named_lock(six) + "\n[metadata]\npython-versions = '^3.13 || ^4.0'\n",
    "pdm.lock": lambda six: named_lock(six) + "\n[[metadata.targets]]\nrequires_python = '>=3.13'\n",
    "Pipfile.lock": lambda six: pipfile_lock(six).replace(
        '"_meta": {', '"_meta": {"requires": {"python_version": "3.13"},'
    ),
}


@pytest.mark.parametrize("name", OTHER_PYTHON)
def test_a_lock_that_excludes_the_interpreter_of_the_target_is_an_error_with_the_line(
    six: Document, no_user_configuration: None, index: PackageIndex, tmp_path: Path, check: Run, name: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\n'
    )
    (tmp_path / name).write_text(OTHER_PYTHON[name](six))
    line = next(n for n, text in enumerate((tmp_path / name).read_text().splitlines(), 1) if "3.13" in text)

    others = [f for f in check("--python", "3.12")["findings"] if f["code"] == "ADV012"]

    assert [(f["path"], f["line"]) for f in others] == [(name, line)]
    assert "3.13" in others[0]["message"]
    assert others[0]["message"].endswith("and the target has 3.12.0")
    assert "ADV012" not in {f["code"] for f in check("--python", "3.13")["findings"]}


@pytest.mark.parametrize("name", OTHER_PYTHON)
def test_a_target_without_a_patch_release_is_every_patch_release(
    six: Document, no_user_configuration: None, index: PackageIndex, tmp_path: Path, check: Run, name: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\n'
    )
    text = OTHER_PYTHON[name](six).replace("python_version", "python_full_version").replace("3.13", "3.12.4")
    (tmp_path / name).write_text(text)

    def has_error(python: str) -> bool:
        return "ADV012" in {f["code"] for f in check("--python", python)["findings"]}

    assert [has_error(python) for python in ("3.12", "3.12.4", "3.12.0", "3.11")] == [False, False, True, True]


@pytest.mark.parametrize(
    ("requires", "refused"),
    [
        ({"python_version": "*"}, []),
        ({"python_full_version": "*", "python_version": "3.13"}, ["3.12"]),
        ({"python_version": ">=3.13"}, ["3.12"]),
        ({"python_version": "==3.13.*"}, ["3.12"]),
        ({"python_full_version": ">=3.8, <3.13"}, ["3.13"]),
        ({"python_version": "3"}, []),
    ],
)
def test_a_pipfile_lock_may_require_any_python_or_a_range_as_pipenv_allows(
    tmp_path: Path, requires: dict[str, str], refused: list[str]
) -> None:
    """pipenv/project.py: `required_python_version` ignores `*`; `_python_version_matches_required` reads ranges."""
    path = tmp_path / "Pipfile.lock"
    path.write_text(json.dumps({"_meta": {"requires": requires}, "default": {}}, indent=4))

    locks = {python: read_lock(path, build_problem("a", python=python).target) for python in ("3.12", "3.13")}

    lines = [(python, line) for python, lock in locks.items() for _, line in lock.obstacles]
    assert lines == [(python, 3 + len(requires)) for python in refused]


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock"])
def test_only_the_tool_of_a_lock_can_make_it_admit_the_target(
    six: Document,
    no_user_configuration: None,
    index: PackageIndex,
    tmp_path: Path,
    advisor_here: Advisor,
    name: str,
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    (tmp_path / name).write_text(OTHER_PYTHON[name](six))
    command = f"`{name.removesuffix('.lock')} lock` writes the lock again"

    checked, updated = advisor_here("check"), advisor_here("advise", "--update")

    assert (checked.returncode, updated.returncode) == (1, 1)
    assert "--update" not in checked.stdout
    assert f"next      {command}" in checked.stdout
    assert f"to do     {command}" in updated.stdout
    report = json.loads(advisor_here("advise", "--update", "--format", "json", "--pr-body", "body.md").stdout)
    assert (report["commands"], len(report["instructions"])) == ([], 1)
    assert f"\nWhat to do:\n\n- {command}" in (tmp_path / "body.md").read_text()
    assert f"{name}:" in updated.stdout
    assert "None" not in updated.stdout


def test_a_dry_run_resolves_what_writing_another_lock_resolves(
    six: Document, no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    (tmp_path / "uv.lock").write_text(OTHER_PYTHON["uv.lock"](six))

    results = [
        advisor_here("advise", "--update", "-o", "pylock.new.toml", "--format", "json", *options)
        for options in (("--dry-run",), ())
    ]

    reports = [json.loads(result.stdout) for result in results]
    codes = [([f["code"] for f in report["cleared"]], report["remaining"]) for report in reports]
    assert codes == [(["ADV012"], []), (["ADV012"], [])]
    assert [result.returncode for result in results] == [1, 0]


def test_an_update_of_an_environment_is_not_promised(project: Path, advisor_here: Advisor, index: PackageIndex) -> None:
    venv.create(project / "other", symlinks=True)

    checked, updated = (advisor_here(*words, "--current", "other") for words in (("check",), ("advise", "--update")))

    assert (checked.returncode, updated.returncode) == (1, 1), checked.stdout
    assert "ADV001" in checked.stdout
    assert "--update" not in checked.stdout
    assert "to do     write a lock with `--output FILE`, and install it" in updated.stdout


def test_a_new_lock_is_no_next_step_for_an_environment_where_it_resolves_nothing(
    project: Path, advisor_here: Advisor
) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nextend-fail = ["not-checked"]\n')
    venv.create(project / "other", symlinks=True)
    (packages,) = (project / "other").glob("lib/python*/site-packages")
    for name, version in (("a", "2.0"), ("b", "1.1")):
        (packages / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)

    checked, updated = (advisor_here(*words, "--current", "other") for words in (("check",), ("advise", "--update")))

    assert (checked.returncode, updated.returncode) == (1, 1)
    assert "failed    1 error" in checked.stdout
    assert "ADV022" in updated.stdout.partition("remaining")[2]
    assert "wrote     nothing\n" in updated.stdout
    assert "to do" not in updated.stdout


def test_a_lock_for_other_environments_is_an_error(project: Path, check: Run) -> None:
    line = change(project / "pylock.toml", "x86_64", "riscv64")

    findings = check()["findings"]

    assert ("ADV012", line) in {(f["code"], f["line"]) for f in findings}


def test_all_that_a_lock_requires_of_the_target_is_reported(project: Path, check: Run) -> None:
    lines = [change(project / "pylock.toml", old, new) for old, new in (("x86_64", "riscv64"), ("==3.12.*", ">=3.13"))]

    findings = [f for f in check()["findings"] if f["code"] == "ADV012"]

    assert {f["line"] for f in findings} == set(lines)
    assert len({f["fingerprint"] for f in findings}) == 2


@pytest.mark.parametrize(
    ("old", "new", "obstacle"),
    [("x86_64", "riscv64", ", but the lock has ADV012 not-installable"), ('sha256 = ".', 'sha256 = "0', "")],
)
def test_a_lock_that_fails_is_not_called_the_recommended_stack(
    project: Path, advisor_here: Advisor, old: str, new: str, obstacle: str
) -> None:
    before = advisor_here("check").stdout
    (project / "pylock.toml").write_text(re.sub(old, new, (project / "pylock.toml").read_text()))

    after = advisor_here("check").stdout

    assert "advice    no version differs from the recommended stack\n" in before
    assert "\nfailed  " in after
    assert f"advice no version differs from the recommended stack{obstacle}" in " ".join(after.split())
    assert "the lock is the recommended stack" not in after
