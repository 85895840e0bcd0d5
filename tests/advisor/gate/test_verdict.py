"""The verdict on a change: what it does to speed, what that rests on, what recovers a loss, and how it is measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.api.measurements.measured_program import MeasuredProgram
from advisor.gate.verdict import Outcome, outcome_of
from advisor.report.check.formats.markdown import MARKER
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.ratio import Ratio
from knowledge.hardware.profiles import find_profile
from knowledge.store.engine import open_knowledge_base
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import IndicatorCase
from tests.advisor.lock_pair import packages
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex

Judge = Callable[..., dict[str, Any]]
TENSORFLOW = ("2.12.1", "2.15.1", "2.19.1", "2.20.0", "2.21.0")


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor) -> Path:
    """A project with TensorFlow, of which all versions but 2.21 were measured: 2.12 is ten times as slow as the others.

    Its lock has 2.20. The directory is the working directory.
    """
    for version in TENSORFLOW:
        index.add("tensorflow", version, ["numpy<2"] if version < "2.18" else ["numpy"], code="")
    for version in ("1.26.4", "2.0.2"):
        index.add("numpy", version, code="")
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["tensorflow<2.30"]\n\n'
        f'[tool.uv]\nindex-url = "{index.url}"\n\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\nworkload = "transformer-training"\n'
        "constraints = []\n[tool.advisor.gate]\n"
    )
    ratios = {"2.20.0": 1.0, "2.12.1": 0.1, "2.15.1": 1.0, "2.19.1": 1.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))
    (tmp_path / "requirements.txt").write_text("tensorflow==2.20.0\nnumpy==2.0.2\n")
    return tmp_path


@pytest.fixture
def judge(advisor_here: Advisor) -> Judge:
    """Judge a change and return the JSON report."""

    def run(*arguments: str) -> dict[str, Any]:
        result = advisor_here("verdict", *arguments, "--format", "json")
        assert "Traceback" not in result.stderr
        assert result.stdout, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        assert document["exit_code"] == result.returncode
        return document

    return run


def verdict_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict for the only target."""
    [target] = document["targets"]
    verdict: dict[str, Any] = target["base"]["verdict"]
    return verdict


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.98, 1.02, "no-difference"),
        (0.985, 0.995, "no-difference"),
        (0.90, 1.10, "not-known"),
        (0.96, 1.02, "not-known"),
        (1.02, 1.20, "better"),
        (0.60, 0.99, "worse"),
    ],
)
def test_the_outcome_follows_from_the_interval(low: float, high: float, outcome: Outcome) -> None:
    mean, half = (math.log(high) + math.log(low)) / 2, (math.log(high) - math.log(low)) / 2

    assert outcome_of(Ratio(mean=mean, variance=half**2, quantile=1.0), 0.03) == outcome


def test_a_slower_version_is_worse_and_another_one_recovers_the_loss(project: Path, judge: Judge) -> None:
    document = judge("tensorflow==2.12.1")
    verdict = verdict_of(document)

    assert (verdict["outcome"], document["exit_code"]) == ("worse", 1)
    assert verdict["high"] < 0.3
    assert verdict["comparisons"] > 0, verdict["reason"]
    assert [(f["code"], f["package"]) for f in document["findings"] if f["level"] == "error"] == [
        ("ADV007", "tensorflow")
    ]
    [recovery] = [r for r in verdict["recoveries"] if r["kind"] == "version"]
    assert recovery["what"] == "tensorflow==2.19.1"
    assert recovery["low"] > 0.8
    # NumPy follows, because TensorFlow 2.12 needs an older one.
    changes = {change["package"]: change["after"] for change in document["targets"][0]["base"]["changes"]}
    assert changes == {"tensorflow": "2.12.1", "numpy": "1.26.4"}


def test_locked_packages_that_nothing_requires_stay(project: Path, index: PackageIndex, judge: Judge) -> None:
    index.add("other", "1.0", ["helper"], code="")
    index.add("helper", "1.0", code="")
    (project / "frozen.txt").write_text("tensorflow==2.20.0\nnumpy==2.0.2\nother==1.0\nhelper==1.0\n")

    document = judge("tensorflow==2.19.1", "--current", "frozen.txt")

    assert [change["package"] for change in document["targets"][0]["base"]["changes"]] == ["tensorflow"]


def test_what_a_change_adds_is_the_newest_and_not_the_smallest(
    project: Path, index: PackageIndex, judge: Judge
) -> None:
    index.add("new", "1.0", code="")
    index.add("new", "2.0", ["helper"], code="")
    index.add("helper", "1.0", code="")
    index.add("tensorflow", "2.23.0", ["numpy", "new"], code="")

    document = judge("tensorflow==2.23.0")

    changes = {change["package"]: change["after"] for change in document["targets"][0]["base"]["changes"]}
    assert changes == {"tensorflow": "2.23.0", "new": "2.0", "helper": "1.0"}


def test_a_package_that_is_new_to_pinned_requirements_becomes_a_pin(
    project: Path, index: PackageIndex, judge: Judge
) -> None:
    (project / "pyproject.toml").write_text(f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\npython = "3.12"\n')
    index.add("new", "1.0", code="")

    document = judge("new==1.0")

    changes = {change["package"]: change["after"] for change in document["targets"][0]["base"]["changes"]}
    assert (changes, document["exit_code"]) == ({"new": "1.0"}, 0)


def test_a_faster_version_is_better(project: Path, judge: Judge) -> None:
    (project / "old.txt").write_text("tensorflow==2.12.1\nnumpy==1.26.4\n")

    document = judge("tensorflow==2.20.0", "--current", "old.txt")

    assert (verdict_of(document)["outcome"], document["exit_code"]) == ("better", 0)
    assert verdict_of(document)["low"] > 3
    assert verdict_of(document)["recoveries"] == []


def test_an_unmeasured_version_is_not_known_and_the_policy_may_refuse_it(project: Path, judge: Judge) -> None:
    document = judge("tensorflow==2.21.0")
    verdict = verdict_of(document)

    assert (verdict["outcome"], document["exit_code"]) == ("not-known", 0)
    assert verdict["minutes"] > 0
    assert [f["level"] for f in document["findings"] if f["code"] == "ADV041"] == ["note"]
    with (project / "pyproject.toml").open("a") as file:
        file.write('extend-fail = ["effect-not-known"]\n')
    assert judge("tensorflow==2.21.0")["exit_code"] == 1


def test_comparisons_of_other_releases_are_not_behind_a_verdict(
    project: Path, index: PackageIndex, judge: Judge
) -> None:
    for version in ("2.21.1", "2.22.0"):
        index.add("tensorflow", version, ["numpy"], code="")
    (project / "old.txt").write_text("tensorflow==2.21.0\nnumpy==2.0.2\n")

    for version in ("2.21.1", "2.22.0"):
        verdict = verdict_of(judge(f"tensorflow=={version}", "--current", "old.txt"))

        assert (verdict["outcome"], verdict["speedup"], verdict["comparisons"]) == ("not-known", None, 0)
        # NumPy has no measurements either, but does not change.
        assert verdict["reason"] == "on such hardware, only `tensorflow` up to 2.20.0 was compared"


def test_a_change_to_what_cannot_run_is_worse(project: Path, judge: Judge) -> None:
    before, after = project / "before.txt", project / "after.txt"
    before.write_text("tensorflow==2.20.0\nnumpy==2.0.2\n")
    after.write_text("tensorflow==2.15.1\nnumpy==2.0.2\n")

    document = judge("--base", "before.txt", "--head", "after.txt")
    back = judge("--base", "after.txt", "--head", "before.txt")

    assert (verdict_of(document)["outcome"], document["exit_code"]) == ("worse", 1)
    assert verdict_of(document)["speedup"] is None
    assert verdict_of(document)["reason"].startswith("the lock has ADV006 abi-break and 1 more")
    assert verdict_of(back)["outcome"] == "better"
    assert {finding["code"] for finding in verdict_of(back)["resolved"]} == {"ADV006"}


def test_a_version_that_does_not_exist_is_worse_and_one_that_was_removed_is_still_a_base(
    project: Path, index: PackageIndex, judge: Judge
) -> None:
    (project / "other.txt").write_text("tensorflow==2.12.1\nnumpy==1.26.4\n")
    index.entries["tensorflow"] = [e for e in index.entries["tensorflow"] if "2.12.1" not in e["filename"]]

    document = judge("--base", "requirements.txt", "--head", "other.txt")
    back = judge("--base", "other.txt", "--head", "requirements.txt")

    assert (verdict_of(document)["outcome"], verdict_of(document)["speedup"]) == ("worse", None)
    assert verdict_of(document)["reason"] == "the lock has ADV011 removed"
    assert verdict_of(back)["outcome"] == "better"
    assert verdict_of(back)["low"] > 3


def test_removed_versions_that_both_locks_have_change_nothing(project: Path, index: PackageIndex, judge: Judge) -> None:
    index.add("other", "1.0", code="")
    others = 'other==9.0\nother==9.1 ; sys_platform == "win32"\n'
    (project / "before.txt").write_text(f"tensorflow==2.12.1\nnumpy==1.26.4\n{others}")
    (project / "after.txt").write_text(f"tensorflow==2.20.0\nnumpy==2.0.2\n{others}")

    verdict = verdict_of(judge("--base", "before.txt", "--head", "after.txt"))

    assert (verdict["outcome"], verdict["reason"]) == ("better", None)
    assert verdict["low"] > 3


def test_equal_locks_that_are_out_of_date_are_no_difference(project: Path, judge: Judge) -> None:
    for name in ("before.txt", "after.txt"):
        (project / name).write_text("tensorflow==2.20.0\n")

    document = judge("--base", "before.txt", "--head", "after.txt")
    (project / "after.txt").write_text("tensorflow==2.19.1\n")
    changed = judge("--base", "before.txt", "--head", "after.txt")

    assert (verdict_of(document)["outcome"], document["exit_code"]) == ("no-difference", 1)
    assert {finding["code"] for finding in document["findings"] if finding["level"] == "error"} == {"ADV001"}
    assert verdict_of(changed)["outcome"] == "not-known"


def test_pins_of_the_project_do_not_bind_other_locks(project: Path, index: PackageIndex, judge: Judge) -> None:
    pyproject = project / "pyproject.toml"
    pyproject.write_text(
        pyproject.read_text().partition("[tool.uv]")[1] + pyproject.read_text().partition("[tool.uv]")[2]
    )
    (project / "before.txt").write_text("tensorflow==2.20.0\nnumpy==2.0.2\n")
    (project / "after.txt").write_text("tensorflow==2.12.1\nnumpy==1.26.4\n")

    document = judge("--base", "before.txt", "--head", "after.txt")

    assert verdict_of(document)["high"] < 0.3
    assert "ADV001" not in {finding["code"] for finding in document["findings"]}


def test_a_verdict_names_the_other_frameworks_that_were_not_compared(
    project: Path, index: PackageIndex, judge: Judge, advisor_here: Advisor
) -> None:
    for version in ("1.20.0", "1.20.1"):
        index.add("onnxruntime", version, code="")
    (project / "before.txt").write_text("tensorflow==2.20.0\nnumpy==2.0.2\nonnxruntime==1.20.0\n")
    (project / "after.txt").write_text("tensorflow==2.19.1\nnumpy==2.0.2\nonnxruntime==1.20.1\n")
    arguments = "--base", "before.txt", "--head", "after.txt"

    verdict = verdict_of(judge(*arguments))

    assert verdict["comparisons"] > 0, verdict["reason"]
    assert verdict["not_compared"] == ["onnxruntime"]
    assert "`onnxruntime` not compared" in " ".join(advisor_here("verdict", *arguments).stdout.split())


def test_the_same_versions_are_no_difference(project: Path, judge: Judge) -> None:
    verdict = verdict_of(judge("tensorflow==2.20.0"))

    assert (verdict["outcome"], verdict["reason"]) == ("no-difference", "no package differs")


def test_a_project_without_a_lock_is_compared_with_its_newest_stack(project: Path, advisor_here: Advisor) -> None:
    for lock in (*project.glob("pylock.toml"), *project.glob("requirements.txt")):
        lock.unlink()

    text = advisor_here("verdict", "tensorflow==2.12.1").stdout

    assert "compared with the newest stack" in " ".join(text.split())
    assert "tensorflow  2.21.0 -> 2.12.1" in text


def test_a_framework_that_only_one_lock_has_is_not_compared(project: Path, judge: Judge) -> None:
    (project / "before.txt").write_text("numpy==2.0.2\n")

    verdict = verdict_of(judge("--base", "before.txt"))

    assert (verdict["outcome"], verdict["speedup"]) == ("not-known", None)
    assert verdict["reason"] == "only one of the two stacks has `tensorflow`"


def test_a_newest_stack_that_does_not_exist_is_explained(
    project: Path, index: PackageIndex, advisor_here: Advisor
) -> None:
    (project / "requirements.txt").unlink()
    index.add("tensorflow", "2.22.0", ["absent"], code="")
    pyproject = project / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('"tensorflow<2.30"', '"tensorflow==2.22.0"'))

    explained = advisor_here("advise")
    result = advisor_here("verdict", "numpy==1.26.4")

    assert result.returncode == 3
    assert "absent" in result.stderr
    assert result.stderr == explained.stderr


def test_a_comment_has_a_marker_and_says_everything(project: Path, advisor_here: Advisor) -> None:
    result = advisor_here("verdict", "tensorflow==2.12.1", "--format", "markdown", "-o", "sarif=a.sarif")

    text = result.stdout
    assert text.startswith(f"{MARKER}\n")
    assert "**🔴 Verdict: worse: 0.1" in text
    assert "- Recovery: `tensorflow==2.19.1`: " in text
    sarif = json.loads((project / "a.sarif").read_text())
    assert all(entry["locations"] for entry in sarif["runs"][0]["results"])
    assert "ADV007" in {entry["ruleId"] for entry in sarif["runs"][0]["results"]}
    assert [v["outcome"] for v in sarif["runs"][0]["properties"]["verdicts"]] == ["worse"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing says what changes"),
        (["tensorflow"], 2, "nothing says what changes"),
        (["tensorflow==2.20.0", "there", "here"], 2, "`here` does not say what to change"),
        (["tensorflow=2"], 2, "`tensorflow=2` does not say what to change"),
        (["tensorflow==2.20.0", "TensorFlow==2.12.1"], 2, "`tensorflow` is named twice"),
        (["tensorflow==2.20.0", "--base", "requirements.txt"], 2, "contradict each other"),
        (["tensorflow==99"], 3, "you require `tensorflow==99` (the change)"),
        (["tensorflow==2.12.1", "--measure", "2m"], 2, "the target `cpu-zen4` is another machine"),
        (["absent-package==1.0"], 3, "absent-package"),
        (["--base", "absent.txt"], 2, "absent.txt"),
    ],
)
def test_bad_input_is_one_clear_sentence(
    project: Path, advisor_here: Advisor, arguments: list[str], code: int, message: str
) -> None:
    result = advisor_here("verdict", *arguments)

    assert result.returncode == code, result.stderr
    assert message in " ".join(f"{result.stdout} {result.stderr}".split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("slow", "outcome", "exception"),
    [({"pc": 1.25}, "worse", False), ({"pc": 1.25}, "worse", True), ({}, "no-difference", False)],
)
def test_a_verdict_is_measured(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, slow: dict[str, float], outcome: str, exception: bool
) -> None:
    folder, good, bad = packages(index, tmp_path, slow, letters="c" if exception else "bc")
    if exception:
        with (folder / "pyproject.toml").open("a") as file:
            file.write('[tool.advisor.gate]\nignore = [{ code = "ADV007", package = "pc", reason = "needed" }]\n')

    completed = advisor(
        *("verdict", "--base", good, "--head", bad, "--measure", "4m", "--max-load", "100"),
        *("--format", "json", "--index-url", index.url),
        cwd=folder,
    )

    assert completed.stdout, completed.stderr
    document = json.loads(completed.stdout)
    verdict = verdict_of(document)
    assert (verdict["outcome"], verdict["measured"]) == (outcome, True)
    assert completed.returncode == (1 if slow and not exception else 0)
    errors = [f["code"] for f in document["findings"] if f["level"] == "error"]
    assert errors == (["ADV007"] if slow and not exception else [])
    assert [f["code"] for f in document["ignored"]] == (["ADV007"] if exception else [])


@pytest.mark.parametrize("changed", ["jax", "onnxruntime"])
def test_the_indicators_run_with_the_framework_that_changes(changed: str) -> None:
    inference = next(own for own in INDICATORS["model"].sets["medium"] if own.get("mode") == "inference")
    parameters = INDICATORS["model"].canonical(dict(inference))
    program = MeasuredProgram(
        text="a model",
        cases=(IndicatorCase(name="model", parameters=parameters),),
        preferred=frozenset({changed, "numpy"}),
    )

    [run] = program.runs(["jax", "numpy", "onnxruntime"], find_profile("cpu-zen4"))

    assert FRAMEWORKS[changed] == run.backend


@pytest.mark.slow
def test_a_measurement_without_a_result_does_not_remove_what_the_policy_refuses(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    folder, _, _ = packages(index, tmp_path, {}, letters="b")
    program = "import random\nprint('seconds:', random.gauss(10, 4) ** 2 + 1)\n"
    (folder / "bench.py").write_text(program)
    index.add("numpy", "1.0", code="")
    index.add("numpy", "2.0", code="")
    (folder / "before.txt").write_text("pb==1.0\nnumpy==1.0\n")
    (folder / "after.txt").write_text("pb==1.0\nnumpy==2.0\n")
    with (folder / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nextend-fail = ["effect-not-known"]\n')

    completed = advisor(
        *("verdict", "--base", "before.txt", "--head", "after.txt", "--measure", "60s", "--max-load", "100"),
        *("--format", "json", "--index-url", index.url),
        cwd=folder,
    )

    assert completed.stdout, completed.stderr
    document = json.loads(completed.stdout)
    assert verdict_of(document)["outcome"] == "not-known"
    assert verdict_of(document)["minutes"] > 0
    assert completed.returncode == 1
    [message] = [f["message"] for f in document["findings"] if f["code"] == "ADV041"]
    # The interval is the measured one, as in the verdict.
    assert f"{verdict_of(document)['low']:.2f} to {verdict_of(document)['high']:.2f} times as fast" in message
