"""`advisor bisect`: real locks, environments and processes of small packages that a local index serves."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.lock_pair import PROGRAM, add, packages, pylock, requirements
from tests.advisor.measured_project import make_project
from tests.conftest import Advisor
from tests.package_index import PackageIndex

LIMITS = ("--max-load", "100", "--budget", "4m")


def run(advisor: Advisor, index: PackageIndex, project: Path, *arguments: str) -> dict[str, Any]:
    completed = advisor("bisect", *arguments, *LIMITS, "--format", "json", "--index-url", index.url, cwd=project)
    assert completed.stdout, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return {**document, "exit_code": completed.returncode, "messages": completed.stderr}


def culprits(document: Mapping[str, Any]) -> list[list[str]]:
    return sorted(sorted(d["name"] for d in culprit["differences"]) for culprit in document["culprits"])


def test_the_package_that_is_slower_is_named_with_a_pin_that_recovers(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    project, good, _ = packages(index, tmp_path, {"pc": 1.1})

    completed = advisor("bisect", "--good", good, *LIMITS, "--issue", "issue.md", "--index-url", index.url, cwd=project)

    assert completed.returncode == 1, completed.stderr
    text = " ".join(completed.stdout.split())
    assert "bad is 10." in text or "bad is 9." in text
    assert "pc 1.0 -> 2.0 explains" in text
    assert 'constraints = ["pc==1.0"]' in text
    assert "pin `pc==1.0`: measured, 0." in text
    issue = (project / "issue.md").read_text()
    assert issue.startswith("# pc 1.0 -> 2.0: the program is slower\n")
    assert "pip install --no-deps pc==1.0" in issue
    assert str(tmp_path) not in issue


@pytest.mark.slow
def test_a_bisection_names_two_of_twelve_packages_that_cost_10_percent_together(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    project, good, _ = packages(index, tmp_path, {"pd": 1.05, "pj": 1.05}, letters="abcdefghijkl")

    document = run(advisor, index, project, "--good", good)

    assert (document["exit_code"], document["verdict"]) == (1, "slower")
    assert culprits(document) == [["pd"], ["pj"]]
    assert document["is_recovered"] is True
    assert document["pins"] == ["pd==1.0", "pj==1.0"] or document["pins"] == ["pj==1.0", "pd==1.0"]


@pytest.mark.slow
def test_equal_speed_ends_with_0(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    project, good, bad = packages(index, tmp_path, {})

    document = run(advisor, index, project, "--good", good, "--bad", bad)

    assert (document["exit_code"], document["verdict"]) == (0, "equal")
    assert document["slowdown"]["low"] < 1 < document["slowdown"]["high"]


def test_equal_locks_are_not_measured(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    project, _, bad = packages(index, tmp_path, {})

    document = run(advisor, index, project, "--good", bad)

    assert (document["exit_code"], document["rounds"], document["differences"]) == (0, 0, [])


def test_a_bisection_names_the_package_that_fails_to_import(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    names = ["pa", "pb", "pc"]
    for name in names:
        add(index, name, "1.0")
        add(index, name, "2.0", code="raise ImportError('no symbol')" if name == "pb" else "FACTOR = 1.0")
    project = make_project(tmp_path / "project", names, PROGRAM)
    good = requirements(project / "requirements.old.txt", dict.fromkeys(names, "1.0"))
    bad = requirements(project / "requirements.txt", dict.fromkeys(names, "2.0"))

    document = run(advisor, index, project, "--good", good.name, "--bad", bad.name)

    assert (document["exit_code"], document["verdict"]) == (1, "failing")
    assert "no symbol" in document["failure"]
    assert culprits(document) == [["pb"]]
    assert document["is_recovered"] is True


@pytest.mark.slow
def test_a_package_that_hangs_is_named_long_before_the_end_of_the_budget(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.api.measurements.laboratory._LEAST_FIRST_TIMEOUT_SECONDS", 6.0)
    project, good, _ = packages(index, tmp_path, {}, letters="ac")
    add(index, "pc", "2.0", code="import time\ntime.sleep(900)")
    pylock(project / "pylock.toml", index, {"pa": "2.0", "pc": "2.0"})
    monkeypatch.chdir(project)

    completed = advisor_here("bisect", "--good", good, *LIMITS, "--format", "json", "--index-url", index.url)

    document = json.loads(completed.stdout)
    assert (completed.returncode, document["verdict"], document["ending"]) == (1, "failing", "complete")
    assert culprits(document) == [["pc"]]
    assert re.search(r"killed after [0-9]+ seconds: it did not end", document["failure"])
    assert document["minutes"] < 2


@pytest.mark.slow
def test_a_repeated_bisection_soon_kills_a_stack_in_between_that_hangs(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LEAST_TIMEOUT_SECONDS", "_LEAST_FIRST_TIMEOUT_SECONDS"):
        monkeypatch.setattr(f"advisor.api.measurements.laboratory.{name}", 6.0)
    project, good, _ = packages(index, tmp_path, {"pd": 1.2})
    versions = "importlib.metadata.version('pc'), importlib.metadata.version('pd')"
    hang = f"if ({versions}) == ('2.0', '1.0'):\n    __import__('time').sleep(900)\n"
    (project / "bench.py").write_text(PROGRAM + hang)
    monkeypatch.chdir(project)
    arguments = ("bisect", "--good", good, "--max-load", "100", "--format", "json", "--index-url", index.url)
    first = json.loads(advisor_here(*arguments, "--budget", "4m").stdout)

    again = json.loads(advisor_here(*arguments, "--budget", "100s").stdout)

    assert [document["ending"] for document in (first, again)] == ["complete", "complete"]
    assert culprits(again) == culprits(first) == [["pc", "pd"]]


def dependent_pair(index: PackageIndex, tmp_path: Path, operator: str) -> tuple[Path, str, str]:
    """Return a project whose `pa` requires the slow `pb`, with its good and its bad lock."""
    names = ["pa", "pb", "pc"]
    for version in ("1.0", "2.0"):
        add(index, "pa", version, requires=[f"pb{operator}{version}"])
        add(index, "pb", version, 1.1 if version == "2.0" else 1.0)
        add(index, "pc", version)
    project = make_project(tmp_path / "project", names, PROGRAM)
    good = requirements(project / "requirements.old.txt", dict.fromkeys(names, "1.0"))
    bad = requirements(project / "requirements.txt", dict.fromkeys(names, "2.0"))
    return project, good.name, bad.name


@pytest.mark.slow
def test_packages_that_require_each_other_change_together(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    project, good, bad = dependent_pair(index, tmp_path, "==")

    document = run(advisor, index, project, "--good", good, "--bad", bad)

    # `pb` cannot be older than `pa`, so they are one culprit.
    assert culprits(document) == [["pa", "pb"]]
    assert document["is_recovered"] is True


@pytest.mark.slow
def test_a_package_that_needs_the_culprit_is_named_with_the_pin(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    project, good, bad = dependent_pair(index, tmp_path, ">=")

    document = run(advisor, index, project, "--good", good, "--bad", bad)

    assert culprits(document) == [["pb"]]
    assert document["pins"] == ["pb==1.0", "pa==1.0"]
    assert [d["name"] for d in document["dependents"]] == ["pa"]
    assert document["is_recovered"] is True


@pytest.mark.slow
def test_a_setting_is_found_that_the_lock_of_an_earlier_commit_does_not_have(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    versions = {"numpy": "2.2.6", "pa": "1.0"}
    for name, version in versions.items():
        add(index, name, version)
    add(index, "pa", "2.0")
    project = make_project(tmp_path / "project", list(versions), PROGRAM)
    lock = pylock(project / "pylock.toml", index, versions)

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=project, check=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    pylock(lock, index, {**versions, "pa": "2.0"})
    setting = '[tool.advisor]\nsettings-version = 1\n[[tool.advisor.settings]]\nframework = "numpy"\n'
    lock.write_text(lock.read_text() + setting + 'name = "isa"\nvalue = "avx512"\nnumerics = "reordered"\n')

    document = run(advisor, index, project, "--good", "HEAD")

    assert sorted(d["kind"] for d in document["differences"]) == ["package", "setting"]
    assert culprits(document) == [["isa"]]


@pytest.mark.slow
def test_the_stack_of_a_day(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    for name in ("pa", "pb"):
        add(index, name, "1.0", uploaded="2026-01-01T00:00:00Z")
        add(index, name, "2.0", 1.1 if name == "pb" else 1.0, uploaded="2026-03-01T00:00:00Z")
    project = make_project(tmp_path / "project", ["pa", "pb"], PROGRAM)

    document = run(advisor, index, project, "--good", "2026-02-01", "--bad", "2026-04-01")

    assert document["good"]["packages"] == {"pa": "1.0", "pb": "1.0"}
    assert document["bad"]["packages"] == {"pa": "2.0", "pb": "2.0"}
    assert culprits(document) == [["pb"]]


@pytest.mark.slow
def test_a_lock_without_all_packages_is_completed(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    add(index, "pa", "1.0", requires=["pb"])
    add(index, "pa", "2.0", 1.1, requires=["pb"])
    add(index, "pb", "1.0")
    project = make_project(tmp_path / "project", ["pa"], PROGRAM)
    good = requirements(project / "requirements.old.txt", {"pa": "1.0"})
    bad = requirements(project / "requirements.txt", {"pa": "2.0"})

    document = run(advisor, index, project, "--good", good.name, "--bad", bad.name)

    assert document["good"]["packages"] == {"pa": "1.0", "pb": "1.0"}
    assert culprits(document) == [["pa"]]


@pytest.mark.slow
def test_the_same_command_continues(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    project, good, bad = packages(index, tmp_path, {"pc": 1.1})
    first = run(advisor, index, project, "--good", good, "--bad", bad)

    again = run(advisor, index, project, "--good", good, "--bad", bad)

    assert culprits(again) == culprits(first) == [["pc"]]
    assert "of earlier experiments count" in again["messages"]
    assert again["rounds"] - first["rounds"] < first["rounds"] / 2


def refused(advisor: Advisor, index: PackageIndex, project: Path, *arguments: str) -> tuple[int, str]:
    completed = advisor("bisect", *arguments, "--max-load", "100", "--index-url", index.url, cwd=project)
    assert "Traceback" not in completed.stderr
    assert completed.stdout == ""
    return completed.returncode, completed.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--good", "nothing"], 2, "`--good nothing` is neither a file, a date nor a commit"),
        (["--good", "2999-01-01"], 2, "is in the future"),
        (["--good", "2020-01-01"], 3, "the project has no stack of `--good 2020-01-01`"),
        (["--good", "bench.py"], 2, "`bench.py` is not the name of a lock"),
        (["--good", "other.txt"], 2, "the index has no wheel of `pa 7.0`"),
        (["--good", "requirements.old.txt", "--budget", "soon"], 2, "`soon` is not a duration"),
        (["--good", "requirements.old.txt", "--tolerance", "0"], 2, "a tolerance of 0 % is never certain"),
        (["--good", "requirements.old.txt", "--tolerance", "much"], 2, "`much` is not a loss of speed"),
        (["--good", "requirements.old.txt", "--hardware", "h100-sxm"], 2, "`advisor bisect` measures on this machine"),
        (["--good", "requirements.old.txt", "--max-download", "1kB"], 2, "exceeds `--max-download 1.0 kB`"),
        (["--good", "requirements.old.txt", "--issue", "none/issue.md"], 2, "`none` is not a directory"),
        (["--good", "requirements.old.txt", "--budget", "1s"], 2, "is too small"),
    ],
)
def test_bad_input_is_refused_with_one_sentence(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    project, _, _ = packages(index, tmp_path, {})
    requirements(project / "other.txt", {"pa": "7.0"})

    actual, text = refused(advisor, index, project, *arguments)

    assert actual == code
    assert message in text


def test_a_good_stack_that_fails_and_a_missing_lock_are_refused(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    project, good, bad = packages(index, tmp_path, {})
    (project / "bench.py").write_text("print('no metric')\n")

    code, message = refused(advisor, index, project, "--good", good)

    assert code == 2
    assert f"the program fails with the good stack, `{good}`" in message
    (project / bad).unlink()
    assert "the project has no lock that could be the bad one" in refused(advisor, index, project, "--good", good)[1]


@pytest.mark.slow
def test_the_end_of_the_time_says_what_is_known(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    project, good, _ = packages(index, tmp_path, {"pc": 1.02})
    (project / "bench.py").write_text(PROGRAM.replace("0.004", "0.2"))

    completed = advisor(
        "bisect", "--good", good, "--max-load", "100", "--budget", "20s", "--index-url", index.url, cwd=project
    )

    assert completed.returncode == 4
    assert "the time is over" in " ".join(completed.stdout.split())
    assert "the same command continues" in " ".join(completed.stdout.split())


@pytest.mark.slow
def test_the_lock_of_the_project_is_not_changed(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    project, good, bad = packages(index, tmp_path, {"pc": 1.1})
    before = (project / bad).read_bytes()

    run(advisor, index, project, "--good", good)

    assert (project / bad).read_bytes() == before
    assert tomllib.loads(before.decode())["lock-version"] == "1.0"
