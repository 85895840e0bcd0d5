"""Predictions in the gate's report: only significant differences, and only for stacks that can run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.gate.check import PREVENT_PREDICTION
from advisor.gate.checks.speed_limits import check_regression
from advisor.gate.comparison import LockComparison, PackageChange
from advisor.gate.findings import gate_codes
from advisor.gate.verdict import ChangeVerdict
from advisor.locks.lock import Lock, LockedVersion
from knowledge.estimate.interface import PredictedChange, Prediction
from tests.advisor.factories import build_problem, build_scope, ratio_of
from tests.advisor.gate.steps import Run
from tests.conftest import Advisor
from tests.package_index import PackageIndex

RATIO = re.compile(r"\d\.\d{2} +(?:times as fast )?\[|\d\.\d{3}x")
ARGUMENTS = (
    "--workload",
    "transformer-training",
    "--current",
    "requirements.txt",
    "-r",
    "loose.txt",
    "--base",
    "before.txt",
)


@pytest.fixture
def stacks(project: Path, index: PackageIndex, slow_tensorflow: None) -> Path:
    """A project with TensorFlow and NumPy, which have been measured on its target."""
    for version in ("2.12.1", "2.15.1", "2.20.0"):
        index.add("tensorflow", version, code="")
    for version in ("1.26.4", "2.0.2"):
        index.add("numpy", version, code="")
    (project / "loose.txt").write_text("tensorflow\nnumpy\n")
    return project


def write_locks(project: Path, *, before: str, after: str) -> None:
    """Write the pinned requirements of the base and of the change."""
    (project / "before.txt").write_text(before.replace(" ", "\n") + "\n")
    (project / "requirements.txt").write_text(after.replace(" ", "\n") + "\n")


@pytest.mark.shipped
@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_an_unchanged_lock_lists_no_ratios(stacks: Path, advisor_here: Advisor, format: str) -> None:
    write_locks(stacks, before="tensorflow==2.20.0 numpy==2.0.2", after="tensorflow==2.20.0 numpy==2.0.2")

    report = advisor_here("check", *ARGUMENTS, "--format", format).stdout

    assert "no difference: no package differs" in report
    assert "at each indicator" not in report
    assert not RATIO.search(report.partition("no package differs")[0].rpartition("before.txt")[2])


def test_a_significant_change_lists_its_ratios(stacks: Path, advisor_here: Advisor, check: Run) -> None:
    write_locks(stacks, before="tensorflow==2.12.1 numpy==1.26.4", after="tensorflow==2.20.0 numpy==1.26.4")

    text = advisor_here("check", *ARGUMENTS).stdout
    comparison = check(*ARGUMENTS)["targets"][0]["base"]

    assert re.search(r"^verdict +better: [1-9]\.", text, re.MULTILINE)
    assert len(RATIO.findall(text)) >= 2
    assert comparison["prediction"]["speedup"] > 1
    assert comparison["not_predicted"] is None


def test_a_lock_that_cannot_run_is_not_predicted(stacks: Path, advisor_here: Advisor, check: Run) -> None:
    write_locks(stacks, before="tensorflow==2.20.0 numpy==2.0.2", after="tensorflow==2.15.1 numpy==2.0.2")

    text = advisor_here("check", *ARGUMENTS).stdout
    target = check(*ARGUMENTS)["targets"][0]

    assert "verdict   worse: the lock has ADV006 abi-break" in text
    assert not RATIO.search(text)
    assert target["base"]["prediction"] is None
    assert target["base"]["effects"] == []
    assert target["base"]["not_predicted"].startswith("the lock has ADV006 abi-break")
    assert target["recommended"]["prediction"] is None
    assert target["recommended"]["not_predicted"].startswith("the lock has ADV006 abi-break")


def test_a_lock_with_an_unmet_requirement_is_not_predicted(
    stacks: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    index.add("a", "3.0", ["numpy>=2.0"], code="")
    (stacks / "loose.txt").write_text("tensorflow\nnumpy\na\n")
    write_locks(
        stacks,
        before="tensorflow==2.12.1 numpy==2.0.2 a==3.0",
        after="tensorflow==2.12.1 numpy==1.26.4 a==3.0",
    )

    report = advisor_here("check", *ARGUMENTS, "--format", "markdown").stdout

    assert "Verdict: not known: the lock has ADV001 lock-out-of-date" in report
    assert not RATIO.search(report)


def test_a_base_that_cannot_run_is_not_predicted(stacks: Path, advisor_here: Advisor, check: Run) -> None:
    write_locks(stacks, before="tensorflow==2.15.1 numpy==2.0.2", after="tensorflow==2.20.0 numpy==2.0.2")

    text = advisor_here("check", *ARGUMENTS).stdout
    target = check(*ARGUMENTS)["targets"][0]

    assert "verdict   better: the base `before.txt` has ADV006 abi-break" in text
    assert target["base"]["prediction"] is None
    assert target["recommended"]["prediction"] is not None


def test_an_error_that_the_policy_ignores_does_not_prevent_a_prediction(stacks: Path, advisor_here: Advisor) -> None:
    write_locks(stacks, before="tensorflow==2.20.0 numpy==2.0.2", after="tensorflow==2.15.1 numpy==2.0.2")
    with (stacks / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV006", reason = "not imported" }]\n')

    text = advisor_here("check", *ARGUMENTS).stdout

    assert "not predicted" not in text
    assert RATIO.search(text)


def test_an_update_of_a_lock_that_cannot_run_has_no_prediction(stacks: Path, advisor_here: Advisor) -> None:
    write_locks(stacks, before="", after="tensorflow==2.15.1 numpy==2.0.2")

    result = advisor_here("advise", "--update", "--dry-run", *ARGUMENTS[:-2], "--pr-body", "body.md")

    assert "speed     not predicted: the lock has ADV006 abi-break" in result.stdout, result.stderr
    assert not RATIO.search(result.stdout + (stacks / "body.md").read_text())


@pytest.mark.parametrize("rows", [0, 1])
def test_a_loss_of_a_framework_by_another_package_alone_is_reported(tmp_path: Path, rows: int) -> None:
    """A framework may be slower with another NumPy although its own version is that of the base.

    A prediction that rests on no comparison of the releases that differ is no reason to fail.
    """
    versions = {"torch": Version("2.3.1"), "numpy": Version("2.0.2")}
    lock = Lock(
        path=tmp_path / "pylock.toml",
        packages={canonicalize_name(name): LockedVersion(version=version) for name, version in versions.items()},
    )
    slower = PredictedChange(package="torch", ratio=ratio_of(0.5, 0.4, 0.6), measured=True, evidence=())
    prediction = Prediction(
        ratio=ratio_of(0.5, 0.4, 0.6), score=-0.7, confidence=0.95, workload="w", changes=(slower,), unmeasured=()
    )
    comparison = LockComparison(
        base="main",
        changes=(PackageChange(package="numpy", before=Version("1.26.4"), after=Version("2.0.2")),),
        listed=frozenset(),
        prediction=prediction,
        effects=(),
        settings=(),
    )
    scope = build_scope(lock, build_problem("torch"))

    verdict = ChangeVerdict(outcome="worse", tolerance=0.03, rows=rows)

    findings = list(check_regression(replace(scope, base=scope, comparison=comparison, verdict=verdict)))

    assert [(finding.code, finding.package) for finding in findings] == [("ADV007", "torch")] * rows
    assert all("with the base's packages" in finding.message for finding in findings)


@pytest.mark.parametrize("code", ["ADV007", "ADV008"])
def test_the_findings_about_speed_say_which_findings_prevent_them(code: str) -> None:
    assert sorted(set(re.findall(r"ADV\d{3}", gate_codes()[code].why))) == sorted(PREVENT_PREDICTION)


def test_an_update_of_pins_is_checked_like_the_pins_without_unlisted_dependencies(
    project: Path, index: PackageIndex, advisor_here: Advisor, slow_tensorflow: None
) -> None:
    # TensorFlow 2.12 requires JAX, which the pins do not list: with it, the predicted gap is smaller than allowed.
    index.add("tensorflow", "2.12.1", ["jax", "numpy<2"])
    index.add("tensorflow", "2.20.0", ["numpy"])
    index.add("jax", "0.4.29")
    index.add("numpy", "1.26.4")
    index.add("numpy", "2.0.2")
    (project / "pyproject.toml").write_text("[tool.advisor.gate]\nmax-gap = 0.09\n")
    (project / "pylock.toml").unlink()
    pins = project / "requirements.txt"
    pins.write_text("tensorflow==2.12.1\nnumpy==1.26.4\n")
    options = (
        "--workload",
        "transformer-training",
        "--hardware",
        "cpu-zen4",
        "--python",
        "3.12",
        "--index-url",
        index.url,
    )
    before = advisor_here("check", ".", *options)

    update = advisor_here("advise", ".", "--update", *options)
    after = advisor_here("check", ".", *options)

    assert (before.returncode, "ADV008" in before.stdout) == (1, True), before.stdout + before.stderr
    assert update.returncode == 0, update.stderr
    assert "tensorflow==2.20.0" in pins.read_text()
    assert "ADV008" in update.stdout.partition("resolved ")[2]
    assert (after.returncode, "ADV008" in after.stdout) == (0, False)
