"""The smallest change that passes the gate: it passes, no smaller one does, and it is written to the right file."""

from __future__ import annotations

import itertools
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.utils import canonicalize_name
from packaging.version import Version

from advisor.locks.formats.requirements import with_pins
from advisor.locks.settings_table import locked_settings, read_settings, settings_text
from advisor.resolve.optimum.baseline import verify
from advisor.resolve.score.criteria import HOURS_PER_RELEASE, LeastChange
from tests.advisor.factories import empty_estimator
from tests.advisor.gate.steps import change
from tests.advisor.small_problems import (
    NAMES,
    Releases,
    ReleaseSource,
    Stack,
    VersionSet,
    criteria_for,
    plain,
    problem,
    problems,
    solve_problem,
    some_roots,
    stacks,
    versions,
)
from tests.conftest import Advisor
from tests.examples import examples
from tests.package_index import PackageIndex

EMPTY_ESTIMATOR = empty_estimator()


@settings(max_examples=examples(200), deadline=None)
@given(
    releases=problems,
    roots=some_roots,
    locked=st.dictionaries(st.sampled_from(NAMES), versions),
    refused=st.lists(st.dictionaries(st.sampled_from(NAMES), versions, min_size=1, max_size=3), max_size=4),
)
def test_the_update_is_the_smallest_change_among_all_allowed_stacks(
    releases: Releases, roots: dict[str, VersionSet], locked: Stack, refused: list[Stack]
) -> None:
    admitted = [s for s in stacks(releases, roots) if not any(r.items() <= s.items() for r in refused)]
    source = ReleaseSource(releases)
    change = LeastChange(
        locked={name: Version(str(v)) for name, v in locked.items()},
        refused=tuple(
            frozenset((canonicalize_name(n), Version(str(v))) for n, v in choices.items()) for choices in refused
        ),
    )
    criteria = replace(criteria_for(roots, source, EMPTY_ESTIMATOR, "latest"), change=change)

    optimum = solve_problem(roots, source, criteria)

    if optimum is None:
        assert admitted == []
        return

    def size(stack: Stack) -> tuple[int, int, int]:
        """Return the changed packages, the hours that new direct requirements are behind, and the added packages."""
        new = roots.keys() - locked.keys()
        ages = {name: sorted(releases[name], reverse=True).index(stack[name]) for name in new}
        changed = sum(name in stack and stack[name] != version for name, version in locked.items())
        return changed, sum(ages.values()) * HOURS_PER_RELEASE, len(stack.keys() - locked.keys())

    verify(problem(roots), source, optimum.stack)
    bounds = {bound.objective: bound for bound in optimum.bounds}
    smallest = min(map(size, admitted))
    assert plain(optimum) in admitted
    assert size(plain(optimum)) == smallest
    assert tuple(bounds[name].value for name in ("changes", "freshness-new", "added")) == smallest
    assert optimum.proven


@pytest.fixture
def project(no_user_configuration: None, index: PackageIndex, tmp_path: Path) -> Path:
    """A project with a vulnerable locked version; a newer version requires a third package."""
    for version in ("1.0", "1.1", "2.0"):
        index.add("a", version, code="")
    for version in ("1.0", "1.1"):
        index.add("b", version, code="")
    index.add("b", "2.0", ["c"], code="")
    index.add("c", "1.0", code="")
    index.vulnerabilities |= {(n, v): [] for n in "abc" for v in ("1.0", "1.1", "2.0")}
    index.vulnerabilities["b", "1.0"] = ["PYSEC-2026-7"]
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "m"\nversion = "1"\ndependencies = ["a", "b"]\n[tool.uv]\nindex-url = "{index.url}"\n'
        '[tool.advisor]\nhardware = "cpu-zen4"\npython = "3.12"\n'
    )
    return tmp_path


def lock(advisor_here: Advisor, folder: Path, *pins: str, output: str = "pylock.toml") -> None:
    """Write a lock with some versions."""
    (folder / "pins.txt").write_text("\n".join(pins))
    result = advisor_here("advise", "-c", "pins.txt", "-o", output)
    assert result.returncode == 0, result.stderr


def test_only_packages_with_findings_change(project: Path, advisor_here: Advisor) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.0")

    result = advisor_here("advise", "--update", "--format", "json", "--pr-body", "body.md")

    report = json.loads(result.stdout)
    assert [(c["package"], c["before"], c["after"]) for c in report["changes"]] == [("b", "1.0", "1.1")]
    assert [f["code"] for f in report["cleared"]] == ["ADV009"]
    assert report["remaining"] == []
    assert advisor_here("check").returncode == 0
    body = (project / "body.md").read_text()
    assert "PYSEC-2026-7" in body
    assert "proven to be the smallest change" in body


def test_upgrade_writes_the_best_stack(project: Path, advisor_here: Advisor) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.0")

    result = advisor_here("advise", "--upgrade", "--pr-body", "body.md")

    assert result.returncode == 0, result.stderr
    assert 'version = "2.0"' in (project / "pylock.toml").read_text()
    assert "| a | 1.0 | 2.0 |" in (project / "body.md").read_text()


def test_the_description_of_the_first_lock_states_that_there_was_none(project: Path, advisor_here: Advisor) -> None:
    result = advisor_here("advise", "--pr-body", "body.md")

    assert result.returncode == 0, result.stderr
    body = (project / "body.md").read_text()
    assert "## Dependency stack: 3 added\n" in body
    assert "3 added, there was no lock to compare with: optimal for the score; verified" in body
    assert "Predicted speed compared with the lock" not in body
    assert "| a |  | 2.0 |" in body


def test_a_lock_that_passes_is_not_changed(project: Path, advisor_here: Advisor) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.1")
    before = (project / "pylock.toml").read_bytes()

    result = advisor_here("advise", "--update")

    assert result.returncode == 0
    assert "nothing changes" in result.stdout
    assert (project / "pylock.toml").read_bytes() == before


def test_a_yanked_version_stays_if_the_policy_allows_it(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    lock(advisor_here, project, "a==1.1", "b==1.0")
    for entry in index.entries["a"]:
        entry["yanked"] = entry["filename"].startswith("a-1.1")
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "yanked", reason = "known" }]\n')

    result = advisor_here("advise", "--update", "--refresh", "--dry-run", "--format", "json")

    assert [c["package"] for c in json.loads(result.stdout)["changes"]] == ["b"]


def test_pins_of_a_requirements_file_are_changed_in_place(project: Path, advisor_here: Advisor) -> None:
    (project / "pyproject.toml").write_text(
        (project / "pyproject.toml").read_text().partition("dependencies = ")[2].partition("\n")[2]
    )
    (project / "requirements.txt").write_text("# mine\na==1.0  # why\n\nB == 1.0 ; python_version > '3.8'\n")

    result = advisor_here("advise", "--update")

    assert result.returncode == 0, result.stderr
    expected = "# mine\na==1.0  # why\n\nB == 2.0 ; python_version > '3.8'\n"
    assert (project / "requirements.txt").read_text() == expected


def test_pins_in_an_included_file_are_changed_there(project: Path, advisor_here: Advisor) -> None:
    (project / "pyproject.toml").write_text(
        (project / "pyproject.toml").read_text().partition("dependencies = ")[2].partition("\n")[2]
    )
    (project / "requirements.txt").write_text("a==1.0\n-r more.txt\n")
    (project / "more.txt").write_text("b==1.0\n")

    checked = advisor_here("check")
    result = advisor_here("advise", "--update")

    assert "more.txt:1: ADV009" in checked.stdout
    assert "wrote     `more.txt`" in result.stdout
    assert (project / "more.txt").read_text() == "b==2.0\n"
    assert (project / "requirements.txt").read_text() == "a==1.0\n-r more.txt\n"


def test_an_update_of_a_uv_lock_prints_the_uv_command(project: Path, advisor_here: Advisor) -> None:
    from pi_runners.execution.environment import find_uv

    subprocess.run(
        [find_uv(), "lock", "-q", "--no-python-downloads", "-P", "a==1.0", "-P", "b==1.0", "--no-cache"],
        cwd=project,
        check=True,
    )
    before = (project / "uv.lock").read_bytes()

    result = advisor_here("advise", "--update", "--pr-body", "body.md")
    report = json.loads(advisor_here("advise", "--update", "--format", "json").stdout)

    assert result.returncode == 1
    assert "resolves  `b 1.0` has" in result.stdout
    assert (report["commands"], report["instructions"]) == (["uv lock --upgrade-package b==1.1"], [])
    assert "\nTo apply it, run:\n\n- `uv lock --upgrade-package b==1.1`\n" in (project / "body.md").read_text()
    assert "to do     uv lock --upgrade-package b==1.1" in result.stdout
    assert (project / "uv.lock").read_bytes() == before
    command = result.stdout.partition("to do     uv ")[2].split("\n")[0].split()
    subprocess.run([find_uv(), *command, "-q", "--no-cache"], cwd=project, check=True)
    assert advisor_here("check").returncode == 0


def test_a_new_requirement_is_as_new_as_in_the_recommended_stack(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.1")
    index.add("web", "1.0", code="")
    index.add("web", "2.0", ["certificates", "names"], code="")
    index.add("certificates", "1.0", code="")
    index.add("names", "1.0", code="")
    change(project / "pyproject.toml", '["a", "b"]', '["a", "b", "web"]')

    result = advisor_here("advise", "--update", "--refresh", "--format", "json")

    changes = {c["package"]: c["after"] for c in json.loads(result.stdout)["changes"]}
    assert changes == {"web": "2.0", "certificates": "1.0", "names": "1.0"}


def test_a_new_requirement_is_older_where_a_newer_one_changes_more_of_the_lock(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.1")
    index.add("web", "1.0", ["a<2"], code="")
    index.add("web", "2.0", ["a>=2"], code="")
    change(project / "pyproject.toml", '["a", "b"]', '["a", "b", "web"]')

    result = advisor_here("advise", "--update", "--refresh")

    assert "resolves ADV001; 2.0 would change 1 more package of the lock" in " ".join(result.stdout.split())


def test_run_time_settings_of_a_lock_stay(project: Path, advisor_here: Advisor, index: PackageIndex) -> None:
    index.add("torch", "2.6.0", ["b"], code="")
    change(project / "pyproject.toml", '["a", "b"]', '["a", "b", "torch"]')
    lock(advisor_here, project, "a==1.0", "b==1.0")
    settings = settings_text(locked_settings({"torch": {"threads": 4}}))
    table = settings.partition("settings-version")[2].replace("[[settings]]", "[[tool.advisor.settings]]")
    table = table.replace("[settings.", "[tool.advisor.settings.")
    path = project / "pylock.toml"
    path.write_text(f"{path.read_text()}\n[tool.advisor]\nsettings-version{table}")
    recorded = read_settings(path)

    result = advisor_here("advise", "--update", "--refresh")

    assert result.returncode == 0, result.stderr
    assert 'version = "1.1"' in path.read_text()
    assert recorded is not None
    assert [s.text for s in recorded.settings] == ["threads=4"]
    assert read_settings(path) == recorded


def test_settings_that_the_new_versions_do_not_have_are_named(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    (project / "advisor-settings.other.toml").write_text(settings_text(locked_settings({"torch": {"threads": 4}})))
    lock(advisor_here, project, "a==1.0", "b==1.0", output="other.txt")
    (project / "advisor-settings.other.toml").write_text(settings_text(locked_settings({"torch": {"threads": 4}})))

    result = advisor_here("advise", "--update", "--refresh", "--current", "other.txt")

    assert "dropped   setting threads=4 (torch): the new versions do not have it" in result.stdout
    assert (settings := read_settings(project / "other.txt")) is not None
    assert settings.settings == ()


def test_no_other_lock_is_written_for_a_project_of_pins(project: Path, advisor_here: Advisor) -> None:
    (project / "pyproject.toml").write_text(
        (project / "pyproject.toml").read_text().partition("dependencies = ")[2].partition("\n")[2]
    )
    (project / "requirements.txt").write_text("a==1.0\nb==1.0\n")

    result = advisor_here("advise", "--update", "-o", "pylock.toml")

    assert result.returncode == 2
    assert "the pins of `requirements.txt` are the project's requirements, too" in result.stderr
    assert not (project / "pylock.toml").exists()


def test_findings_that_no_versions_remove_are_reported(
    project: Path, advisor_here: Advisor, index: PackageIndex
) -> None:
    for version in ("1.0", "1.1", "2.0"):
        index.vulnerabilities["b", version] = ["PYSEC-2026-7"]
    lock(advisor_here, project, "a==1.0", "b==1.0")

    result = advisor_here("advise", "--update")

    assert result.returncode == 3
    assert "PYSEC-2026-7" in result.stderr
    assert result.stderr.startswith("error: no stack satisfies the requirements and passes the gate")


def test_findings_about_other_things_remain_and_fail(project: Path, advisor_here: Advisor, index: PackageIndex) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.0")
    del index.vulnerabilities["a", "1.0"]
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nextend-fail = ["not-checked"]\n')

    result = advisor_here("advise", "--update", "--refresh", "--format", "json")

    report = json.loads(result.stdout)
    assert result.returncode == 1
    assert [c["package"] for c in report["changes"]] == ["b"]
    assert [f["code"] for f in report["remaining"]] == ["ADV022"]


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ("--trusted-host evil.example\n--extra-index-url https://evil.example/simple\n", ""),
        ("", 'extend-fail = ["hash-missing", "unpinned-dependencies"]'),
    ],
)
def test_only_versions_of_pins_are_promised(project: Path, advisor_here: Advisor, options: str, policy: str) -> None:
    """An update of a pinned file changes its versions: options, hashes and lines stay as they are."""
    text = (project / "pyproject.toml").read_text().partition("dependencies = ")[2].partition("\n")[2]
    (project / "pyproject.toml").write_text(f"{text}[tool.advisor.gate]\n{policy}\n")
    (project / "requirements.txt").write_text(f"{options}a==1.0\nb==2.0\n")

    checked, updated = advisor_here("check"), advisor_here("advise", "--update", "--format", "json")

    assert len(json.loads(updated.stdout)["remaining"]) == 2
    assert "failed    2 errors" in checked.stdout
    assert "--update" not in checked.stdout


def test_an_update_that_no_versions_allow_is_not_promised(project: Path, advisor_here: Advisor) -> None:
    lock(advisor_here, project, "a==1.0", "b==1.1")
    change(project / "pyproject.toml", '"a"', '"a>=3"')

    checked, updated = advisor_here("check"), advisor_here("advise", "--update")

    text = " ".join(checked.stdout.split())
    assert "`advisor advise --update` makes the smallest change that passes, if there is one" in text
    assert updated.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--update", "--upgrade"), "contradict"),
        (("--update", "--format", "html"), "no HTML report"),
        (("--update", "--pr-body", "nowhere/body.md"), "not a directory"),
        (("--update",), "no lock to check"),
    ],
)
def test_wrong_usage_is_reported(
    project: Path, advisor_here: Advisor, arguments: tuple[str, ...], message: str
) -> None:
    result = advisor_here("advise", *arguments)

    assert result.returncode == 2
    assert message in result.stderr
    assert not (project / "pylock.toml").exists()


@given(
    st.lists(
        st.sampled_from(["a==1", "# a==1", "A == 1 # x", "b[x]==2; python_version > '3'", "-r other.txt", "", "c>=1"])
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_other_lines_do_not_change(lines: list[str], end: str) -> None:
    text = end.join(lines)

    changed = with_pins(text, {"a": Version("9"), "b": Version("8"), "c": Version("7")})

    assert with_pins(text, {}) == text
    for old, new in itertools.zip_longest(text.split(end), changed.split(end)):
        pinned = old.replace("==1", "==9").replace("== 1", "== 9").replace("==2", "==8")
        assert new == (old if old.startswith("#") else pinned)
