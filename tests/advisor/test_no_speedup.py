"""Reports give a speed-up only where there is one: both stacks run, and measured packages differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Advisor
from tests.package_index import PackageIndex

ON_V100 = ("advise", "-r", "requirements.txt", "--hardware", "v100", "--python", "3.12")
REASON = "the baseline does not run on the target"


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """Requirements of PyTorch, whose newest release on the index has no code for a V100."""
    for version in ("2.5.1", "2.15.0"):
        index.add("torch", version, code="")
    for version in ("1.0", "2.0"):
        index.add("a", version, code="")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntorch\na\n")
    return tmp_path


def predicted(advisor: Advisor, *arguments: str) -> dict[str, Any]:
    """Return the prediction of the JSON report."""
    document: dict[str, Any] = json.loads(advisor(*arguments, "--dry-run", "--format", "json").stdout)
    return document


def test_a_baseline_that_does_not_run_has_no_speed(project: Path, advisor_here: Advisor) -> None:
    document = predicted(advisor_here, *ON_V100)

    prediction = document["prediction"]
    assert {name: version["version"] for version in document["stack"]["packages"] for name in [version["name"]]} == {
        "a": "2.0",
        "torch": "2.5.1",
    }
    assert [prediction[key] for key in ("speedup", "low", "high", "score", "kinds")] == [None, None, None, None, []]
    assert prediction["not_predicted"].startswith(f"{REASON}: ")


@pytest.mark.parametrize("format", ["text", "html"])
def test_a_report_for_people_gives_the_reason(project: Path, advisor_here: Advisor, format: str) -> None:
    report = advisor_here(*ON_V100, "--dry-run", "--format", format).stdout

    assert "2.15.0 does not run on the target" in " ".join(report.split())
    assert "as fast" not in report
    assert "1.000x" not in report


def test_the_same_stack_is_as_fast(project: Path, advisor_here: Advisor) -> None:
    (project / "requirements.txt").write_text((project / "requirements.txt").read_text() + "torch==2.5.1\n")

    prediction = predicted(advisor_here, *ON_V100)["prediction"]

    assert (prediction["speedup"], prediction["not_predicted"]) == (1.0, None)


def test_other_versions_of_packages_that_nobody_measured_have_no_speed(project: Path, advisor_here: Advisor) -> None:
    (project / "requirements.txt").write_text((project / "requirements.txt").read_text() + "torch==2.5.1\n")
    (project / "before.txt").write_text("torch==2.5.1\na==1.0\n")

    current = predicted(advisor_here, *ON_V100, "--current", "before.txt")["current"]

    assert [change["name"] for change in current["changes"]] == ["a"]
    assert current["prediction"]["speedup"] is None
    assert current["prediction"]["not_predicted"]


def test_the_gate_does_not_call_an_unknown_speed_the_same(project: Path, advisor_here: Advisor) -> None:
    (project / "before.txt").write_text("torch==2.5.1\na==1.0\n")
    (project / "after.txt").write_text("torch==2.5.1\na==2.0\n")

    command = ("check", *ON_V100[1:], "--current", "after.txt", "--base", "before.txt")
    text = advisor_here(*command).stdout
    base = json.loads(advisor_here(*command, "--format", "json").stdout)["targets"][0]["base"]

    assert "verdict   not known: " in text
    assert "no significant difference" not in text
    assert base["prediction"]["speedup"] is None
