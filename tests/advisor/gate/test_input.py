"""Invalid input gives one error message and the documented exit code; `config show` names the source of each value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.advisor.gate.steps import Run, git
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "message"),
    [
        (lambda p: (p / "pylock.toml").unlink(), (), 2, "no lock to check"),
        (lambda p: None, ("--target", "gpu"), 2, "no target `gpu`"),
        (lambda p: git(p, "init", "-q"), ("--base", "nowhere"), 2, "neither a file nor a commit"),
        (lambda p: git(p, "init", "-q"), ("--base", "--output=x"), 2, "neither a file nor a commit"),
        (lambda p: None, ("--base", "main"), 2, "git cannot read it"),
        (lambda p: None, ("--format", "yaml"), 2, "no format `yaml`"),
        (lambda p: None, ("-o", "report"), 2, "names no format"),
        (lambda p: None, ("-o", "nowhere/report.json"), 2, "not a directory"),
        (lambda p: None, ("--current", "nothing.lock"), 2, "nothing.lock"),
    ],
)
def test_invalid_input_gives_one_message_and_the_documented_exit_code(
    project: Path,
    advisor_here: Advisor,
    prepare: Callable[[Path], object],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    prepare(project)

    result = advisor_here("check", *arguments)

    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("max-gpa = 0.1", "did you mean `max-gap`?"),
        ("max-gap = -0.1", "is negative"),
        ("max-regression = 3", "lets everything pass"),
        ('max-gap = "much"', "not a fraction"),
        ("indexes = []", "no package could ever pass"),
        ('fail = ["ADV9"]', "not the code or the name of a finding"),
        ('fail = "ADV001"', "not a list"),
        ('ignore = [{ code = "ADV009" }]', "has no `reason`"),
        ('ignore = [{ code = "ADV09", reason = "x" }]', "did you mean"),
        ('ignore = [{ code = "ADV009", reason = "x", until = 2027-01-01 }]', "has no key `until`"),
        ('ignore = [{ code = "ADV009", reason = "x", expires = "soon" }]', "is not a date"),
    ],
)
def test_an_invalid_policy_is_refused(project: Path, advisor_here: Advisor, gate: str, message: str) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write(f"[tool.advisor.gate]\n{gate}\n")

    result = advisor_here("check")

    assert result.returncode == 2
    assert message in result.stderr
    assert "pyproject.toml" in result.stderr


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[tool.advisor.settings]\nonedn = "off"\n', "did you mean `onednn`?"),
        ("[tool.advisor.settings]\nonednn = true\n", "must be one of on, off"),
        ('[tool.advisor.targets.gpu]\nhardwear = "t4"\n', "did you mean `hardware`?"),
        ("[tool.advisor.targets.gpu]\npython = 3.12\n", "wrong type"),
        ('[tool.advisor.targets.gpu]\nhardware = "t5"\n', "no hardware profile `t5`"),
        ('[tool.advisor.targets.gpu]\nlock = "pylock.gpu.toml"\n', "which does not exist"),
        ('[tool.advisor]\ntarget = "gpu"\n', "has no key `target`"),
    ],
)
def test_invalid_settings_and_targets_are_refused(
    project: Path, advisor_here: Advisor, table: str, message: str
) -> None:
    text = (project / "pyproject.toml").read_text()
    own = table.removeprefix("[tool.advisor]\n")
    (project / "pyproject.toml").write_text(text + (own if own != table else table))

    result = advisor_here("check")

    assert result.returncode == 2
    assert message in result.stderr


@pytest.mark.slow
def test_a_lock_of_two_thousand_packages_is_checked(
    no_user_configuration: None, index: PackageIndex, tmp_path: Path, advisor_here: Advisor, check: Run
) -> None:
    names = [f"p{number}" for number in range(2000)]
    for name in names:
        index.add(name, "1.0", code="")
    (tmp_path / "requirements.txt").write_text(
        f"--index-url {index.url}\n" + "".join(f"{name}==1.0\n" for name in names)
    )

    report = check("--hardware", "cpu-zen4", "--index-url", index.url)

    assert len(report["targets"][0]["packages"]) == 2000
    assert report["exit_code"] == 0


def test_config_show_names_the_source_of_each_value(
    project: Path, advisor_here: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nmax-gap = "7 %"\n')
    monkeypatch.setenv("ADVISOR_WORKLOAD", "cnn-training")

    rows = {row["key"]: row for row in json.loads(advisor_here("config", "show", "--format", "json").stdout)}
    message = advisor_here("config", "show").stdout

    assert (rows["hardware"]["value"], rows["hardware"]["from"]) == ("cpu-zen4", "pyproject.toml:11")
    assert rows["workload"]["from"] == "variable ADVISOR_WORKLOAD"
    assert (rows["gate.max-gap"]["value"], rows["gate.max-gap"]["from"]) == (0.07, "pyproject.toml:14")
    assert rows["gate.max-regression"]["from"] == "default"
    assert (rows["gate.max-growth"]["value"], rows["gate.max-growth"]["from"]) == (None, "default")
    assert "objective" in message
    assert advisor_here("config", "show", "nowhere").returncode == 2


def test_rule_explains_a_finding(advisor_here: Advisor) -> None:
    assert "NumPy 1" in advisor_here("rule", "ADV006").stdout
    assert advisor_here("rule", "abi-break").stdout == advisor_here("rule", "adv006").stdout
    assert "ADV101" in advisor_here("rule").stdout
    result = advisor_here("rule", "ADV999")
    assert result.returncode == 2
    assert result.stderr.startswith("error: there is no finding `ADV999`")
