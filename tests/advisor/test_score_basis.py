"""The report of `advise` lists the basis of the score: measured packages, rules, packages without measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from knowledge.estimate.workloads import kinds_of
from tests.conftest import Advisor
from tests.package_index import PackageIndex

pytestmark = pytest.mark.shipped

ARGUMENTS = ("advise", "--dry-run", "-r", "requirements.txt", "--hardware", "cpu-zen4", "--python", "3.12")


@pytest.fixture
def stack(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """Requirements of a measured framework, of one that has not been measured on the target, and of others."""
    index.add("tensorflow-cpu", "2.20.0", ["numpy"], code="")
    index.add("numpy", "2.0.2", code="")
    index.add("tf-nightly", "2.21.0.dev20260101", code="")
    index.add("a", "1.0", ["b"], code="")
    index.add("b", "1.0", code="")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\ntensorflow-cpu\ntf-nightly\na\n")
    return tmp_path


def test_the_text_report_names_measured_and_unmeasured_packages(stack: Path, advisor_here: Advisor) -> None:
    result = advisor_here(*ARGUMENTS, "--details")

    text = re.sub(r"[0-9]+ kinds of workloads", "WORKLOADS", " ".join(result.stdout.split()))
    assert (
        "score rules, builds and freshness of all packages; speed from a gain of 3 %, WORKLOADS: `numpy`, "
        "`tensorflow-cpu` measured on comparable hardware unknown speed: `tf-nightly` (no usable measurement on "
        "comparable hardware) and 2 other packages"
    ) in text
    assert "the speed of tf-nightly on such hardware: no usable measurement of it" in text
    assert "the speed of 2 other packages that nobody measured proof optimal for the score over 5 versions" in text


def test_the_json_report_lists_all_packages_of_the_stack(stack: Path, advisor_here: Advisor) -> None:
    result = advisor_here(*ARGUMENTS, "--format", "json")

    score = json.loads(result.stdout)["score"]
    assert score.pop("workload") in {kind.name for kind in kinds_of("tensorflow") + kinds_of("numpy")}
    assert score == {
        "criteria": ["rules", "idle-builds", "speed", "freshness-direct", "build", "freshness"],
        "min_gain": 0.03,
        "measured": ["numpy", "tensorflow-cpu"],
        "unmeasured": ["tf-nightly"],
        "not_in_workload": [],
        "without_measurements": ["a", "b"],
    }


def test_a_measured_package_that_the_workload_does_not_use_is_named(stack: Path, advisor_here: Advisor) -> None:
    result = advisor_here(*ARGUMENTS, "--workload", "numeric", "--format", "json")

    score = json.loads(result.stdout)["score"]
    assert score["measured"] == ["numpy"]
    assert score["not_in_workload"] == ["tensorflow-cpu"]
    assert score["unmeasured"] == ["tf-nightly"]


def test_an_objective_without_speed_is_reported(stack: Path, advisor_here: Advisor) -> None:
    result = advisor_here(*ARGUMENTS, "--objective", "latest", "--details")

    text = " ".join(result.stdout.split())
    assert "score rules, builds and freshness of all packages; objective `latest` ignores speed" in text


def test_the_html_report_states_the_same(stack: Path, advisor_here: Advisor) -> None:
    page = advisor_here(*ARGUMENTS, "--format", "html").stdout

    assert "<b>optimal for the score</b><span>among" in page
    assert "<code>numpy</code>, <code>tensorflow-cpu</code> measured on comparable hardware" in page
    unknown = (
        "Unknown speed: <code>tf-nightly</code> (no usable measurement on comparable hardware) and 2 other packages"
    )
    assert unknown in page
