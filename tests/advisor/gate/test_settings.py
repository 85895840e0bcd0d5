"""Findings about run-time settings of a project, and what a change of them is predicted to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advisor.locks.settings_table import locked_settings, settings_path, settings_text
from knowledge.store.engine import open_knowledge_base
from tests.advisor.gate.steps import Run, git
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex

ARGUMENTS = ("--current", "freeze.txt", "-r", "freeze.txt", "--workload", "transformer-training")


def lock(project: Path, index: PackageIndex, **versions: str) -> None:
    """Lock versions in `freeze.txt`."""
    for name, version in versions.items():
        index.add(name, version, code="")
    (project / "freeze.txt").write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))


def recommend(project: Path, framework: str, **values: int | str) -> None:
    """Write the settings of the lock."""
    path = settings_path(project / "freeze.txt")
    path.write_text(settings_text(locked_settings({framework: values})))


def found(report: dict[str, Any], *codes: str) -> list[tuple[str, str, int | None]]:
    return [(f["code"], f["path"], f["line"]) for f in report["findings"] if f["code"] in codes]


def message(report: dict[str, Any], code: str) -> str:
    [text] = [f["message"] for f in report["findings"] if f["code"] == code]
    return str(text)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("Dockerfile", "FROM x\nENV TF_ENABLE_ONEDNN_OPTS=0\n", 2),
        (".env", "TF_ENABLE_ONEDNN_OPTS=0\n", 1),
        ("run.sh", "export TF_ENABLE_ONEDNN_OPTS=0\n", 1),
        (".github/workflows/ci.yml", "env:\n  TF_ENABLE_ONEDNN_OPTS: '0'\n", 2),
    ],
)
def test_a_setting_against_the_lock_is_reported_where_it_is_made(
    project: Path, check: Run, index: PackageIndex, name: str, text: str, line: int
) -> None:
    lock(project, index, tensorflow="2.20.0")
    recommend(project, "tensorflow", onednn="on")
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)

    report = check(*ARGUMENTS)

    assert found(report, "ADV034", "ADV035") == [("ADV034", name, line)]
    assert "`onednn=on`" in message(report, "ADV034")


@pytest.mark.parametrize(("library", "codes"), [("libjemalloc.so.2", ["ADV034"]), ("libtcmalloc_minimal.so.4", [])])
def test_another_allocator_than_that_of_the_lock_is_reported(
    project: Path, check: Run, index: PackageIndex, library: str, codes: list[str]
) -> None:
    """The lock records an allocator for all frameworks."""
    lock(project, index, torch="2.10.0")
    recommend(project, "torch", allocator="tcmalloc")
    (project / "Dockerfile").write_text(f"FROM x\nENV LD_PRELOAD=/usr/lib/x86_64-linux-gnu/{library}\n")

    assert [code for code, *_ in found(check(*ARGUMENTS), "ADV034", "ADV035")] == codes


def test_code_that_overrides_a_recommended_setting_is_reported(project: Path, check: Run, index: PackageIndex) -> None:
    lock(project, index, torch="2.10.0")
    recommend(project, "torch", threads=8)
    (project / "train.py").write_text("import torch\n\ntorch.set_num_threads(4)\n")

    report = check(*ARGUMENTS)

    assert found(report, "ADV034", "ADV035") == [("ADV035", "train.py", 3)]
    assert "sets `threads` to `4`, so the recommended `threads=8` has no effect" in message(report, "ADV035")


def test_code_with_a_value_of_its_own_is_reported_as_overriding(project: Path, check: Run, index: PackageIndex) -> None:
    lock(project, index, torch="2.10.0")
    recommend(project, "torch", threads=8)
    (project / "train.py").write_text("import torch\nif args.threads:\n    torch.set_num_threads(args.threads)\n")

    text = message(check(*ARGUMENTS), "ADV035")

    assert "sets `threads` when the program runs under a condition" in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "import torch\ntorch.set_num_threads(8)\n"),
        ("train.py", "import os\nos.environ.setdefault('OMP_NUM_THREADS', '4')\n"),
        ("run.sh", "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}\n"),
        ("run.sh", "export OPENBLAS_NUM_THREADS=4\n"),
    ],
)
def test_settings_that_agree_or_are_replaced_by_the_environment_are_not_reported(
    project: Path, check: Run, index: PackageIndex, name: str, text: str
) -> None:
    lock(project, index, torch="2.10.0")
    recommend(project, "torch", threads=8)
    (project / name).write_text(text)

    assert found(check(*ARGUMENTS), "ADV034", "ADV035", "ADV036", "ADV037") == []


def test_a_setting_that_needs_code_is_not_said_to_override_the_environment(
    project: Path, check: Run, index: PackageIndex
) -> None:
    lock(project, index, torch="2.10.0")
    recommend(project, "torch", compile="on")
    (project / "train.py").write_text("import torch\nm = torch.compile(m, mode='max-autotune')\n")

    assert found(check(*ARGUMENTS), "ADV034", "ADV035") == [("ADV034", "train.py", 2)]


def test_a_value_that_the_locked_version_does_not_know_is_reported(
    project: Path, check: Run, index: PackageIndex
) -> None:
    lock(project, index, torch="1.13.1")
    (project / "train.py").write_text("import torch\nm = torch.compile(m)\n")

    report = check(*ARGUMENTS)

    assert found(report, "ADV036") == [("ADV036", "train.py", 2)]
    assert "torch 1.13.1 does not know it" in message(report, "ADV036")


@pytest.mark.parametrize(("hardware", "reported"), [("v100", True), ("a100", False), ("cpu-zen4", False)])
def test_a_value_that_the_hardware_lacks_is_reported(
    project: Path, check: Run, index: PackageIndex, hardware: str, reported: bool
) -> None:
    lock(project, index, torch="2.10.0")
    text = "import torch\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n    pass\n"
    (project / "train.py").write_text(text)

    report = check(*ARGUMENTS, "--hardware", hardware)

    assert bool(found(report, "ADV036")) is reported


@pytest.mark.parametrize("value", ["0", "many"])
def test_a_value_out_of_range_is_reported(project: Path, check: Run, index: PackageIndex, value: str) -> None:
    lock(project, index, torch="2.10.0")
    (project / ".env").write_text(f"OMP_NUM_THREADS={value}\n")

    report = check(*ARGUMENTS)

    assert found(report, "ADV036") == [("ADV036", ".env", 1)]
    assert "`threads` must be an integer of at least 1" in message(report, "ADV036")


def test_settings_that_contradict_each_other_are_reported(project: Path, check: Run, index: PackageIndex) -> None:
    lock(project, index, torch="2.10.0")
    (project / "train.py").write_text(
        'import torch\ntorch.backends.cuda.matmul.allow_tf32 = False\ntorch.set_float32_matmul_precision("high")\n'
    )

    report = check(*ARGUMENTS, "--hardware", "a100")

    assert found(report, "ADV037") == [("ADV037", "train.py", 3)]
    assert "`matmul_precision=high`, which contradicts `tf32=off` of `train.py:2`" in message(report, "ADV037")


def test_a_setting_for_another_device_than_that_of_the_target_is_not_reported(
    project: Path, check: Run, index: PackageIndex
) -> None:
    lock(project, index, torch="2.10.0")
    code = "import torch\nwith torch.autocast({}, dtype=torch.bfloat16):\n    pass\n"
    (project / "cuda.py").write_text(code.format("'cuda'"))
    (project / "cpu.py").write_text(code.format("'cpu'"))

    report = check(*ARGUMENTS, "--hardware", "cpu-haswell")

    assert found(report, "ADV036") == [("ADV036", "cpu.py", 2)]


def test_a_file_that_may_contain_settings_and_cannot_be_parsed_is_reported(
    project: Path, check: Run, index: PackageIndex
) -> None:
    lock(project, index, torch="2.10.0")
    (project / "main.py").write_text(f"import torch\nx = {' + '.join(['1'] * 60_000)}\ntorch.set_num_threads(1)\n")

    report = check(*ARGUMENTS)

    assert found(report, "ADV038") == [("ADV038", "main.py", None)]


def test_settings_of_the_lock_that_cannot_be_read_are_an_error(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    lock(project, index, torch="2.10.0")
    settings_path(project / "freeze.txt").write_text("settings = 3\n")

    result = advisor_here("check", *ARGUMENTS)

    assert result.returncode == 2
    assert "advisor-settings.freeze.toml" in result.stderr


@pytest.fixture
def repository(project: Path, index: PackageIndex, slow_without_onednn: None) -> Path:
    """A project with a lock of TensorFlow, whose container switches oneDNN on, in one commit."""
    lock(project, index, tensorflow="2.20.0")
    (project / "Dockerfile").write_text("FROM x\nENV TF_ENABLE_ONEDNN_OPTS=1\n")
    (project / "old.sh").write_text("export TF_ENABLE_ONEDNN_OPTS=0\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "pyproject.toml", "freeze.txt", "Dockerfile", "old.sh")
    git(project, "commit", "-qm", "base")
    return project


def changes(report: dict[str, Any]) -> list[dict[str, Any]]:
    settings: list[dict[str, Any]] = report["targets"][0]["base"]["settings"]
    return settings


def test_a_project_without_changes_has_no_changed_settings(repository: Path, check: Run) -> None:
    assert changes(check(*ARGUMENTS, "--base", "HEAD")) == []


def test_an_added_setting_is_predicted_against_the_default(repository: Path, check: Run) -> None:
    (repository / "new.sh").write_text("\nexport TF_ENABLE_ONEDNN_OPTS=0 X=1\n")
    (repository / "Dockerfile").write_text("FROM x\n\nENV TF_ENABLE_ONEDNN_OPTS=1\n")

    report = check(*ARGUMENTS, "--base", "HEAD")

    [change] = changes(report)
    [effect] = change["effects"]
    assert (change["kind"], change["before"], change["after"]) == ("added", [], ["off"])
    assert (change["path"], change["line"], change["frameworks"]) == ("new.sh", 2, ["tensorflow"])
    assert effect["package"] == "tensorflow"
    assert effect["high"] < 1


def test_an_added_slow_setting_fails_unless_the_policy_allows_the_loss(repository: Path, check: Run) -> None:
    (repository / "old.sh").unlink()
    git(repository, "commit", "-qam", "without")
    (repository / "new.sh").write_text("#!/bin/sh\nexport TF_ENABLE_ONEDNN_OPTS=0\n")

    report = check(*ARGUMENTS, "--base", "HEAD")
    with (repository / "pyproject.toml").open("a") as file:
        file.write("[tool.advisor.gate]\nmax-regression = 0.99\n")
    allowed = check(*ARGUMENTS, "--base", "HEAD")

    (finding,) = [f for f in report["findings"] if f["code"] in ("ADV007", "ADV016")]
    assert (report["exit_code"], finding["code"], finding["level"]) == (1, "ADV016", "error")
    assert (finding["path"], finding["line"]) == ("new.sh", 2)
    assert re.search(r"0\.\d\d times as fast as with the default \[0\.\d\d, 0\.\d\d\]; 0\.97 times", finding["message"])
    assert (allowed["exit_code"], found(allowed, "ADV007", "ADV016")) == (0, [])


def test_a_removed_slow_setting_is_predicted_to_gain(repository: Path, check: Run) -> None:
    (repository / "old.sh").unlink()

    report = check(*ARGUMENTS, "--base", "HEAD")

    [change] = changes(report)
    assert (change["kind"], change["before"], change["after"]) == ("removed", ["off"], [])
    assert change["path"] == "old.sh"
    assert change["effects"][0]["low"] > 1
    assert found(report, "ADV007", "ADV016") == []


def test_a_setting_that_moves_to_another_file_does_not_change(repository: Path, check: Run) -> None:
    (repository / "old.sh").rename(repository / "new.sh")

    assert changes(check(*ARGUMENTS, "--base", "HEAD")) == []


def test_a_change_that_was_not_measured_is_said_to_be_so(repository: Path, check: Run, advisor_here: Advisor) -> None:
    (repository / "Dockerfile").write_text("FROM x\nENV TF_ENABLE_ONEDNN_OPTS=0\n")

    [change] = changes(check(*ARGUMENTS, "--base", "HEAD"))
    text = advisor_here("check", *ARGUMENTS, "--base", "HEAD").stdout

    assert (change["kind"], change["before"], change["after"]) == ("changed", ["on"], ["off"])
    assert change["effects"] == []
    assert "Dockerfile:2 `onednn=off` in place of `onednn=on`: effect not measured" in " ".join(text.split())


@pytest.mark.parametrize("output", ["text", "markdown", "html"])
def test_reports_contain_the_changed_setting(repository: Path, advisor_here: Advisor, output: str) -> None:
    (repository / "old.sh").unlink()

    result = advisor_here("check", *ARGUMENTS, "--base", "HEAD", "--format", output)

    assert "old.sh" in result.stdout
    assert "removed: tensorflow" in result.stdout


def test_a_removed_setting_that_made_the_stack_faster_fails_the_gate(
    project: Path, check: Run, index: PackageIndex, tmp_path: Path, advisor_here: Advisor
) -> None:
    ratios = {"2.20.0": 1.0, "2.20.0 onednn=on": 50.0, "2.15.1": 1.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))
    lock(project, index, tensorflow="2.20.0")
    (project / "train.py").write_text('import os\nos.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"\n')
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "pyproject.toml", "freeze.txt", "train.py")
    git(project, "commit", "-qm", "base")
    (project / "train.py").write_text("print('training')\n")

    report = check(*ARGUMENTS, "--base", "HEAD")

    assert report["exit_code"] == 1
    assert found(report, "ADV007") == [("ADV007", "train.py", None)]
    assert "`tensorflow` with `onednn=on` removed is predicted to be 0." in message(report, "ADV007")


@pytest.fixture
def fast_with_onednn(advisor_here: Advisor, tmp_path: Path) -> None:
    """Invented measurements in which TensorFlow is 50 times as fast with oneDNN."""
    ratios = {"2.20.0": 1.0, "2.20.0 onednn=on": 50.0, "2.15.1": 1.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))


def commit_base(project: Path) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "base")


def test_a_setting_that_the_lock_does_not_recommend_any_more_fails_the_gate(
    project: Path, check: Run, index: PackageIndex, fast_with_onednn: None
) -> None:
    lock(project, index, tensorflow="2.20.0")
    recommend(project, "tensorflow", onednn="on")
    commit_base(project)
    assert changes(check(*ARGUMENTS, "--base", "HEAD")) == []
    settings_path(project / "freeze.txt").unlink()

    report = check(*ARGUMENTS, "--base", "HEAD")

    assert [(c["kind"], c["path"], c["before"]) for c in changes(report)] == [("removed", "freeze.txt", ["on"])]
    assert found(report, "ADV007") == [("ADV007", "freeze.txt", None)]


@pytest.mark.parametrize("name", ["pyproject.toml", "Dockerfile", "train.py"])
def test_a_setting_that_a_file_has_in_place_of_the_lock_is_no_change(
    project: Path, check: Run, index: PackageIndex, fast_with_onednn: None, name: str
) -> None:
    lock(project, index, tensorflow="2.20.0")
    recommend(project, "tensorflow", onednn="on")
    commit_base(project)
    settings_path(project / "freeze.txt").unlink()
    text = {
        "pyproject.toml": (project / "pyproject.toml").read_text() + '\n[tool.advisor.settings]\nonednn = "on"\n',
        "Dockerfile": "FROM x\nENV TF_ENABLE_ONEDNN_OPTS=1\n",
        "train.py": 'import os\nos.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"\n',
    }
    (project / name).write_text(text[name])

    report = check(*ARGUMENTS, "--base", "HEAD")

    assert changes(report) == []
    assert found(report, "ADV007") == []


def test_a_setting_that_a_file_always_had_counts_and_not_that_of_the_lock(
    project: Path, check: Run, index: PackageIndex, fast_with_onednn: None
) -> None:
    lock(project, index, tensorflow="2.20.0")
    recommend(project, "tensorflow", onednn="on")
    (project / ".env").write_text("TF_ENABLE_ONEDNN_OPTS=1\n")
    commit_base(project)
    settings_path(project / "freeze.txt").unlink()

    assert changes(check(*ARGUMENTS, "--base", "HEAD")) == []


def test_the_lock_is_named_where_it_is(project: Path, check: Run, index: PackageIndex, fast_with_onednn: None) -> None:
    lock(project, index, tensorflow="2.20.0")
    recommend(project, "tensorflow", onednn="on")
    (project / "locks").mkdir()
    for path in (project / "freeze.txt", settings_path(project / "freeze.txt")):
        path.rename(project / "locks" / path.name)
    (project / "all.in").write_text("tensorflow\n")
    commit_base(project)
    settings_path(project / "locks" / "freeze.txt").unlink()

    report = check("--current", "locks/freeze.txt", "-r", "all.in", *ARGUMENTS[4:], "--base", "HEAD")

    assert found(report, "ADV007") == [("ADV007", "locks/freeze.txt", None)]


def test_a_loss_that_a_faster_release_outweighs_is_no_regression(
    project: Path, check: Run, index: PackageIndex, tmp_path: Path
) -> None:
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        ratios = {"2.15.1": 1.0, "2.15.1 onednn=on": 50.0, "2.20.0": 10_000.0}
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))
    lock(project, index, tensorflow="2.15.1")
    recommend(project, "tensorflow", onednn="on")
    commit_base(project)
    lock(project, index, tensorflow="2.20.0")
    settings_path(project / "freeze.txt").unlink()

    report = check(*ARGUMENTS, "--base", "HEAD")

    [change] = changes(report)
    assert change["effects"][0]["high"] < 1
    assert report["targets"][0]["base"]["prediction"]["speedup"] > 1
    assert found(report, "ADV007") == []


def test_a_change_may_repair_the_settings_of_the_lock(
    project: Path, check: Run, index: PackageIndex, advisor_here: Advisor
) -> None:
    lock(project, index, tensorflow="2.20.0")
    settings_path(project / "freeze.txt").write_text("settings = 3\n")
    commit_base(project)
    recommend(project, "tensorflow", onednn="on")

    result = advisor_here("check", *ARGUMENTS, "--base", "HEAD")

    assert "the run-time settings of the base cannot be read: " in result.stderr
    assert result.returncode == 0, result.stdout


@pytest.mark.shipped
@pytest.mark.parametrize("hardware", ["v100-sxm2-16gb", "a100-sxm4-80gb"])
def test_the_gate_predicts_a_removed_setting_as_the_advice_predicts_the_setting(
    tmp_path: Path, advisor: Advisor, index: PackageIndex, hardware: str
) -> None:
    index.add("torch", "2.1.0", code="")
    (tmp_path / "requirements.in").write_text("torch\n")
    script = tmp_path / "train.py"
    script.write_text('import torch\n\nwith torch.autocast("cuda", dtype=torch.float16):\n    pass\n')
    options = ("-r", "requirements.in", "--index-url", index.url, "--hardware", hardware, "--workload", "cnn-training")
    advice = json.loads(advisor("advise", *options, "--format", "json", cwd=tmp_path).stdout)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "requirements.in", "pylock.toml", "train.py")
    git(tmp_path, "commit", "-qm", "base")
    script.write_text("import torch\n")

    checked = advisor("check", *options, "--base", "HEAD", "--format", "json", cwd=tmp_path)

    report = json.loads(checked.stdout)
    (advised,) = [e for e in advice["setting_effects"] if e["setting"] == "amp=float16"]
    (effect,) = changes(report)[0]["effects"]
    assert effect["speedup"] == pytest.approx(1 / advised["speedup"], rel=1e-4)
    assert (effect["low"], effect["high"]) == pytest.approx((1 / advised["high"], 1 / advised["low"]), rel=1e-4)
    assert advised["low"] > 1
    assert (checked.returncode, len(found(report, "ADV007"))) == (1, 1)


def test_equal_findings_are_one_with_all_places_and_no_update_is_promised_for_settings(
    repository: Path, advisor_here: Advisor
) -> None:
    for number in (1, 2):
        (repository / f"new{number}.sh").write_text("\nexport TF_ENABLE_ONEDNN_OPTS=0\n")

    checked = advisor_here("check", *ARGUMENTS)
    updated = advisor_here("advise", *ARGUMENTS, "--update", "--dry-run")

    places = "new1.sh:2, new2.sh:2, old.sh:1: ADV016 slow-setting (3 places)"
    for result in (checked, updated):
        assert result.stdout.count("`onednn=off`") == 1
        assert places in " ".join(result.stdout.split())
    assert "--update" not in checked.stdout
    assert "failed    3 errors" in checked.stdout


def test_update_is_named_with_the_number_of_errors_that_it_can_resolve(
    repository: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    index.vulnerabilities["tensorflow", "2.20.0"] = ["PYSEC-2026-9"]

    result = advisor_here("check", *ARGUMENTS, "--refresh")

    assert "`advisor advise --update` can resolve 1 of 2 errors" in " ".join(result.stdout.split())
