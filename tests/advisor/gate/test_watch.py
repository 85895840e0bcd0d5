"""`advisor watch`: new releases are judged and reported once, also where the index or the file of the state is odd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.gate.releases import ReportedRelease, WatchState
from knowledge.store.engine import open_knowledge_base
from tests.advisor.lock_pair import add
from tests.advisor.measured_project import make_project
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex

Pass = Callable[..., tuple[int, dict[str, tuple[str, str]]]]


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor) -> Path:
    """A project with TensorFlow 2.15, of which 2.12, 2.15, 2.16 and 2.20 were measured; the last is twice as fast."""
    for version in ("2.12.1", "2.15.1", "2.16.1"):
        index.add("tensorflow", version, ["numpy<2"], code="")
    index.add("numpy", "1.26.4", code="")
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["tensorflow<2.30", "numpy"]\n\n'
        f'[tool.uv]\nindex-url = "{index.url}"\n\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\nworkload = "transformer-training"\n'
        "[tool.advisor.gate]\n"
    )
    (tmp_path / "requirements.txt").write_text("tensorflow==2.16.1\nnumpy==1.26.4\n")
    ratios = {"2.16.1": 1.0, "2.12.1": 1.0, "2.17.1": 0.1, "2.18.1": 10.0}
    with open_knowledge_base(str(tmp_path / "own.sqlite")) as store:
        store.add(invented_blocks("tensorflow", ratios, device="cpu", hardware="cpu-zen4"))
    return tmp_path


@pytest.fixture
def one_pass(advisor_here: Advisor) -> Pass:
    """Make a pass; return the exit code, and code and message by package and version."""

    def run(*arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
        result = advisor_here("watch", "--refresh", "--state", "state.json", "--format", "json", *arguments)
        assert "Traceback" not in result.stderr
        assert result.stdout, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        findings = {f"{f['package']} {f['subject']}": (f["name"], f["message"]) for f in document["findings"]}
        return result.returncode, findings

    return run


def test_each_release_is_reported_once(project: Path, index: PackageIndex, one_pass: Pass) -> None:
    assert one_pass() == (0, {})
    index.add("tensorflow", "2.17.1", ["numpy<2"], code="")
    code, slower = one_pass()
    assert (code, slower["tensorflow 2.17.1"][0]) == (0, "slower-release")
    assert one_pass() == (0, {})
    index.add("tensorflow", "2.18.1", ["numpy<2"], code="")
    code, faster = one_pass("--pr-body", "body.md")
    assert [name for name, _ in faster.values()] == ["faster-release"]
    assert one_pass() == (0, {})
    body = (project / "body.md").read_text()
    assert "tensorflow" in body
    assert "To do: set `tensorflow==2.18.1` in `requirements.txt`." in body


def test_the_policy_says_which_release_fails(project: Path, index: PackageIndex, one_pass: Pass) -> None:
    index.add("tensorflow", "2.17.1", ["numpy<2"], code="")
    with (project / "pyproject.toml").open("a") as file:
        file.write('extend-fail = ["slower-release"]\n')

    assert one_pass()[0] == 1


def test_a_release_that_is_not_known_is_reported_again_when_it_is(
    project: Path, index: PackageIndex, one_pass: Pass
) -> None:
    index.add("tensorflow", "2.16.5", ["numpy<2"], code="")
    _, first = one_pass()
    assert [name for name, _ in first.values()] == ["release-not-known"]
    assert one_pass() == (0, {})
    with open_knowledge_base(str(project / "own.sqlite")) as store:
        blocks = invented_blocks("tensorflow", {"2.16.1": 1.0, "2.16.5": 0.1}, device="cpu", hardware="cpu-zen4")
        store.add(replace(o, block=f"later-{o.block}") for o in blocks)

    _, later = one_pass()

    assert [name for name, _ in later.values()] == ["slower-release"]


def test_a_removed_release_is_reported_once(project: Path, index: PackageIndex, one_pass: Pass) -> None:
    index.add("tensorflow", "2.17.1", ["numpy<2"], code="")
    one_pass()
    listed = index.entries["tensorflow"]
    index.entries["tensorflow"] = [entry for entry in listed if "2.17.1" not in entry["filename"]]

    _, gone = one_pass()
    again = one_pass()
    index.entries["tensorflow"] = listed
    _, back = one_pass()

    assert [name for name, _ in gone.values()] == ["release-removed"]
    assert again == (0, {})
    assert [name for name, _ in back.values()] == ["slower-release"]


def test_a_release_without_a_file_for_the_target_or_with_a_conflict_does_not_run(
    project: Path, index: PackageIndex, one_pass: Pass
) -> None:
    index.add("tensorflow", "2.18.1", ["numpy<2"], code="", tag="cp312-cp312-win_amd64")
    index.add("numpy", "2.0.2", code="")

    _, findings = one_pass()
    again = one_pass()
    index.add("tensorflow", "2.18.1", ["numpy<2"], code="")
    _, later = one_pass()

    assert again == (0, {})
    assert findings["tensorflow 2.18.1"][0] == "release-does-not-run"
    assert "no file of it for the target" in findings["tensorflow 2.18.1"][1]
    assert findings["numpy 2.0.2"][0] == "release-does-not-run"
    # Its wheel came later.
    assert later["tensorflow 2.18.1"][0] == "faster-release"


def test_a_lock_that_is_out_of_date_makes_no_release_faster(project: Path, index: PackageIndex, one_pass: Pass) -> None:
    index.add("tensorflow", "2.17.1", ["numpy<2"], code="")
    (project / "requirements.txt").write_text("tensorflow==2.16.1\n")
    (project / "body.md").write_text("of an earlier pass")

    _, findings = one_pass("--pr-body", "body.md")

    assert "faster-release" not in {name for name, _ in findings.values()}
    assert not (project / "body.md").exists()


def test_releases_that_the_constraints_exclude_are_not_judged(
    project: Path, index: PackageIndex, one_pass: Pass
) -> None:
    for version in ("2.30.1", "2.17.0rc1"):
        index.add("tensorflow", version, ["numpy<2"], code="")
    index.add("tensorflow", "2.29.1", ["numpy<2"], code="", yanked=True)

    assert one_pass() == (0, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not the state of `advisor watch`"),
        ('{"schema": 1, "releases": [{"package": 5}]}', "is not the state of `advisor watch`"),
        ('{"schema": 9, "releases": []}', "was written by another version"),
        (
            '{"schema": 1, "releases": [{"target": "", "package": "a", "version": "garbage", "outcome": "slower"}]}',
            "is not the state of `advisor watch`",
        ),
    ],
)
def test_a_wrong_state_is_refused_and_not_changed(
    project: Path, index: PackageIndex, advisor_here: Advisor, content: str, message: str
) -> None:
    (project / "state.json").write_text(content)

    result = advisor_here("watch", "--state", "state.json")

    assert result.returncode == 2
    assert message in result.stderr
    assert "delete it to have everything reported again" in " ".join(result.stderr.split())
    assert (project / "state.json").read_text() == content


def test_nothing_counts_as_reported_if_the_report_could_not_be_written(
    project: Path, index: PackageIndex, advisor_here: Advisor, one_pass: Pass
) -> None:
    index.add("tensorflow", "2.17.1", ["numpy<2"], code="")
    (project / "report.md").mkdir()

    failed = advisor_here("watch", "--refresh", "--state", "state.json", "-o", "report.md")
    _, findings = one_pass()

    assert failed.returncode == 2
    assert "tensorflow 2.17.1" in findings


def test_a_release_that_a_measurement_did_not_decide_is_judged_again_and_not_measured_again() -> None:
    release = ReportedRelease(target="", package="a", version="1.0", outcome="not-known", measured=True)
    state = WatchState((release, replace(release, package="b", outcome="does-not-run")))

    assert [state.is_settled("", name, "1.0") for name in ("a", "b")] == [False, True]
    assert [state.is_measured(("", name, "1.0")) for name in ("a", "b", "c")] == [True, True, False]


def test_nothing_is_measured_for_other_machines(project: Path, index: PackageIndex, advisor_here: Advisor) -> None:
    index.add("tensorflow", "2.16.5", ["numpy<2"], code="")

    result = advisor_here("watch", "--refresh", "--state", "state.json", "--measure", "2m")

    assert result.returncode == 0, result.stderr
    assert "ADV046 release-not-known" in result.stdout
    assert "the target `cpu-zen4` is another machine" in " ".join(result.stderr.split())


def test_what_evidence_does_not_say_is_measured(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    add(index, "numpy", "1.0")
    add(index, "numpy", "2.0", 1.3)
    program = "import random, numpy\nprint('seconds:', numpy.FACTOR * random.gauss(1, 0.004))\n"
    folder = make_project(tmp_path / "project", ["numpy"], program)
    (folder / "requirements.txt").write_text("numpy==1.0\n")
    with (folder / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.targets.here]\n[tool.advisor.targets.away]\nhardware = "cpu-zen4"\n')

    completed = advisor(
        *("watch", "--state", "state.json", "--measure", "4m", "--max-load", "100", "--format", "json"),
        *("--index-url", index.url),
        cwd=folder,
    )

    assert completed.stdout, completed.stderr
    document = json.loads(completed.stdout)
    findings = {finding["targets"][0]: finding["name"] for finding in document["findings"]}
    assert findings == {"here": "slower-release", "away": "release-not-known"}
    assert [target["base"]["verdict"]["measured"] for target in document["targets"]] == [True, False]
    assert "the target `cpu-zen4` is another machine than this one, so nothing is measured for it" in completed.stderr
