"""`advisor benchmark init`: real projects in small, with real locks, environments and processes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.project.benchmark import read_benchmark
from tests.conftest import Advisor
from tests.package_index import PackageIndex

PROGRAMS = Path(__file__).parent.parent / "fixtures" / "programs"
SLOW = (
    "import argparse, sys, time\nimport lib\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--steps', type=int, default=1000)\noptions = parser.parse_args()\n"
    "if __name__ == '__main__':\n    time.sleep(0.1)\n    time.sleep(options.steps * lib.SECONDS)\n    print('done')\n"
)

Init = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def init(advisor: Advisor, index: PackageIndex, project: Path) -> Init:
    """Run the command for a project."""
    index.add("lib", "1.0", code="FACTOR = 3\nSECONDS = 0.06")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return advisor("benchmark", "init", *arguments, "--index-url", index.url, cwd=project)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The service in plain Python, which prints the mean time of an answer."""
    return Path(shutil.copytree(PROGRAMS / "plain-service", tmp_path / "project"))


def table_of(project: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["advisor"]["benchmark"]
    return table


def test_with_consent_the_command_runs_once_and_the_benchmark_is_written(init: Init, project: Path) -> None:
    before = (project / "pyproject.toml").read_text()

    completed = init("--yes", "--steps", "30000")

    assert completed.returncode == 0, completed.stderr
    text = (project / "pyproject.toml").read_text()
    assert text.startswith(before)
    assert table_of(project) == {
        "command": "python serve.py --requests 30000",
        "metric": {"pattern": "mean *latency: *([0-9.eE+-]+) *ms", "unit": "ms", "better": "lower"},
    }
    assert "options   --requests 30000  as you named it (default 20000, serve.py:18)" in completed.stdout
    assert "of the line `mean latency: " in completed.stdout
    assert f"with Python {sys.version.split()[0]}, lib 1.0" in completed.stdout
    assert completed.stderr.endswith(
        "wrote `[tool.advisor.benchmark]` into `pyproject.toml`: `advisor pi run --benchmark` runs it\n"
    )
    assert sorted(os.listdir(project)) == ["pyproject.toml", "serve.py"]


def test_without_a_terminal_and_consent_the_proposal_is_printed_and_nothing_changes(init: Init, project: Path) -> None:
    before = (project / "pyproject.toml").read_bytes()

    completed = init()

    assert completed.returncode == 2
    assert 'command = "python serve.py --requests 25"\nstartup = "python serve.py --requests 5"' in completed.stdout
    assert completed.stderr == (
        "error: `pyproject.toml` was not changed, and nothing was run\n"
        "hint: `--yes` runs the command once and writes the benchmark; `--no-try --yes` only writes it\n"
    )
    assert (project / "pyproject.toml").read_bytes() == before


def test_a_dry_run_prints_json_and_changes_nothing(init: Init, project: Path) -> None:
    before = (project / "pyproject.toml").read_bytes()

    completed = init("--dry-run", "--format", "json")

    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    assert document["schema_version"] == 1
    assert document["program"] == "serve.py"
    assert document["options"] == [
        {"option": "--requests", "value": "25", "purpose": "few steps", "declared": "serve.py:18"}
    ]
    assert (document["trial"], document["written"]) == (None, None)
    assert (project / "pyproject.toml").read_bytes() == before


@pytest.mark.slow
def test_a_program_without_a_metric_is_measured_by_the_duration_of_its_steps(init: Init, project: Path) -> None:
    (project / "serve.py").unlink()
    (project / "train.py").write_text(SLOW)

    completed = init("--yes", "--format", "json")

    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    trial = document["trial"]
    assert document["benchmark"] == table_of(project)
    assert document["benchmark"] == {
        "command": "python train.py --steps 25",
        "startup": "python train.py --steps 5",
    }
    # 20 steps of 0.06 s: what the start takes is not in it.
    assert trial["value"] == pytest.approx(trial["command_seconds"] - trial["startup_seconds"])
    assert trial["value"] > 0.6
    assert trial["startup_seconds"] > 0.4
    assert document["written"] == "pyproject.toml"


WITH_MODEL = '("--model", required=True)\n    parser.add_argument("--requests",'
SLOW_START = SLOW.replace("0.1", "1.5 if options.steps < 25 else 0").replace("lib.SECONDS", "0")


@pytest.mark.parametrize(
    ("change", "arguments", "messages"),
    [
        (
            lambda code: code,
            ["--command", "python serve.py --requests many"],
            [
                "error: `python serve.py --requests many` gave no result: exit status 2: serve.py: error: ",
                "usage: serve.py",
                "hint: correct it with `--command '...'`",
            ],
        ),
        (
            lambda code: code.replace('("--requests",', WITH_MODEL),
            [],
            [
                "error: `python serve.py --model MODEL --requests 25` needs values that only you know: `--model` "
                "(serve.py:18)"
            ],
        ),
        pytest.param(
            lambda _: SLOW_START,
            [],
            ["its steps are too short to be measured", "hint: let it take more steps: `--steps 406`"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["failing", "open", "too short"],
)
def test_a_command_that_gives_no_result_is_an_error_and_nothing_is_written(
    init: Init, project: Path, change: Callable[[str], str], arguments: list[str], messages: list[str]
) -> None:
    (project / "serve.py").write_text(change((project / "serve.py").read_text()))
    before = (project / "pyproject.toml").read_bytes()

    completed = init("--yes", *arguments)

    assert completed.returncode == 2
    assert [message for message in messages if message not in completed.stderr] == []
    assert (project / "pyproject.toml").read_bytes() == before


def test_a_benchmark_that_exists_is_replaced_only_on_request(init: Init, project: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text(path.read_text() + '\n[tool.advisor.benchmark]\ncommand = "python old.py"\n\n[tool.x]\ny = 1\n')

    refused = init("--no-try", "--yes")
    replaced = init("--no-try", "--yes", "--replace")

    assert refused.returncode == 2
    assert "error: `pyproject.toml` defines a benchmark already" in refused.stderr
    assert replaced.returncode == 0, replaced.stderr
    # Without a trial, the duration without the start-up counts.
    assert table_of(project) == {
        "command": "python serve.py --requests 25",
        "startup": "python serve.py --requests 5",
    }
    assert read_benchmark(project).startup == ("python", "serve.py", "--requests", "5")
    assert "[tool.x]\ny = 1\n" in path.read_text()
    assert "# a comment that stays" in path.read_text()


def test_a_project_without_a_pyproject_gets_one_after_a_message(init: Init, project: Path) -> None:
    (project / "pyproject.toml").unlink()
    (project / "requirements.txt").write_text("lib\n")

    completed = init("--yes")

    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.startswith(
        "`pyproject.toml` does not exist: it is to be created, with the printed table only\n"
    )
    assert list(tomllib.loads((project / "pyproject.toml").read_text())) == ["tool"]


def test_a_file_that_is_not_utf_8_or_starts_with_a_mark_is_not_damaged(init: Init, project: Path) -> None:
    path = project / "pyproject.toml"
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    with_mark = init("--no-try", "--yes")
    assert with_mark.returncode == 0, with_mark.stderr
    assert path.read_bytes().startswith(b"\xef\xbb\xbf" + content)

    path.write_bytes(content.replace(b"a comment", b"\xe9 comment"))
    other = init("--no-try", "--yes")
    assert other.returncode == 2
    assert "is not valid TOML" in other.stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_on_a_terminal_it_asks(
    project: Path, index: PackageIndex, tmp_path: Path, first_knowledge: Path, answer: str, code: int
) -> None:
    index.add("lib", "1.0", code="FACTOR = 3")
    own, other = pty.openpty()
    command = [sys.executable, "-m", "advisor", "benchmark", "init", "--index-url", index.url, "--no-try"]
    variables = {**os.environ, "ADVISOR_CACHE_DIR": str(tmp_path / "cache"), "TERM": "dumb"}
    with subprocess.Popen(command, cwd=project, env=variables, stdin=other, stdout=other, stderr=other) as process:
        os.write(own, answer.encode())
        status = process.wait(timeout=120)
        os.close(other)
        output = os.read(own, 100_000).decode()
    os.close(own)

    assert status == code, output
    assert "Write it into `pyproject.toml`? [y/N]" in output
    assert ("benchmark" in (project / "pyproject.toml").read_text()) == (code == 0)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_a_real_training_program_is_measured_by_its_throughput(advisor: Advisor, tmp_path: Path) -> None:
    project = Path(shutil.copytree(PROGRAMS / "torch-training", tmp_path / "project"))

    completed = advisor("benchmark", "init", "--yes", cwd=project)

    assert completed.returncode == 0, completed.stderr
    assert table_of(project) == {
        "command": "python train.py --output-dir benchmark-output --steps-per-epoch 25 --epochs 1 --dataset synthetic",
        "metric": {
            "pattern": "([0-9.eE+-]+) *samples/s",
            "unit": "samples/s",
            "better": "higher",
            "statistic": "median",
        },
    }
    assert "torch 2.13.0" in completed.stdout
