"""Campaigns on the command line with a faulty framework: it crashes, hangs, or takes too much memory."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.advisor.campaign.conftest import MATRIX
from tests.conftest import Advisor
from tests.package_index import PackageIndex

QUICK_OPTIONS = ("--samples", "2", "--min-time", "0.001")


def observations(path: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [r["record"] for r in records if r["kind"] == "observation"]


@pytest.mark.parametrize(
    ("code", "options", "status", "reason"),
    [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", (), "crashed", "exit status -11"),
        ("import sys\nsys.exit(3)", (), "import-error", "SystemExit: 3"),
        ("import time\ntime.sleep(60)", ("--timeout", "1"), "timed-out", "killed after 1 seconds"),
        (
            "import time\nbuffer = bytearray(300_000_000)\ntime.sleep(60)",
            ("--memory-limit", "0.15"),
            "out-of-memory",
            "killed above 1.5e+08 bytes",
        ),
        ("raise ImportError('numpy.core.multiarray failed to import')", (), "import-error", "multiarray"),
    ],
)
def test_the_failure_of_a_framework_is_an_observation(
    advisor: Advisor,
    index: PackageIndex,
    tmp_path: Path,
    code: str,
    options: tuple[str, ...],
    status: str,
    reason: str,
) -> None:
    index.add("numpy", "2.0.0", code=code)

    completed = advisor(
        *("pi", "run", "sort", "--stack", "numpy", "--rounds", "1", "--no-aa", "--index-url", index.url),
        *(*QUICK_OPTIONS, *options, "-o", "block.jsonl"),
    )

    assert completed.returncode == 0, completed.stderr
    assert [o["status"] for o in observations(tmp_path / "block.jsonl")] == [status]
    assert reason in observations(tmp_path / "block.jsonl")[0]["failure"]
    assert "Traceback" not in completed.stderr
    assert f"failed: `numpy 2.0.0` sort: {status}" in completed.stdout


def test_a_plan_lists_dropped_stacks_and_installs_nothing(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("numpy", "2.1.0", ["missing-package"])
    index.add("numpy", "2.0.0")
    (tmp_path / "matrix.toml").write_text(MATRIX.format(rounds=2))

    completed = advisor("pi", "plan", "matrix.toml", "--index-url", index.url)

    assert completed.returncode == 0, completed.stderr
    assert "2 arms x 2 rounds = 4 processes, 4 runs" in completed.stdout
    assert "dropped numpy==2.1.0: stack `numpy==2.1.0` cannot be resolved" in completed.stdout
    assert not (tmp_path / "home" / "cache" / "environments").exists()


def test_a_matrix_of_a_million_runs_is_refused(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("numpy", "2.0.0")
    threads = ", ".join(str(n) for n in range(1, 1001))
    text = MATRIX.format(rounds=1) + f"[settings]\nthreads = [{threads}]\nnuma = [{threads}]\n"
    (tmp_path / "matrix.toml").write_text(text)

    completed = advisor("pi", "campaign", "matrix.toml", "--index-url", index.url)

    assert completed.returncode == 2
    assert "expands to more than 20000 indicator runs per round" in completed.stderr


def test_a_matrix_without_a_stack_that_can_be_resolved_is_refused(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("numpy", "2.0.0", ["missing-package"])
    (tmp_path / "matrix.toml").write_text(MATRIX.format(rounds=1))

    completed = advisor("pi", "campaign", "matrix.toml", "--index-url", index.url)

    assert completed.returncode == 2
    assert "can be resolved" in completed.stderr


@pytest.mark.slow
def test_a_campaign_that_was_killed_is_continued(index: PackageIndex, tmp_path: Path, empty_knowledge: Path) -> None:
    for version in ("2.0.0", "2.1.0", "2.2.0"):
        index.add("numpy", version, code="raise ImportError('not today')")
    (tmp_path / "matrix.toml").write_text(MATRIX.format(rounds=4))
    variables = {
        **os.environ,
        "ADVISOR_CACHE_DIR": str(tmp_path / "cache"),
        "ADVISOR_KNOWLEDGE": f"sqlite:///{tmp_path / 'knowledge.sqlite'}",
    }
    (tmp_path / "knowledge.sqlite").write_bytes(empty_knowledge.read_bytes())
    command = [sys.executable, "-c", "from advisor.cli.app import main; main()", "pi", "campaign", "matrix.toml"]
    command += ["--index-url", index.url, "-o", "campaign.jsonl"]
    generator = random.Random(4)
    for _ in range(3):
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(generator.uniform(0.5, 4.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    completed = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)
    repeated = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)

    assert completed.returncode == 0, completed.stderr
    cells = [(o["round"], o["slot"]) for o in observations(tmp_path / "campaign.jsonl")]
    assert sorted(cells) == [(number, arm) for number in range(4) for arm in range(4)]
    assert "round" not in repeated.stderr.replace("rounds", "")
    assert not list((tmp_path / "cache" / "environments").glob("*/pyvenv.cfg"))


def test_figures_are_written_to_a_file_for_node_exporter(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("numpy", "2.0.0", code="raise ImportError('not today')")
    command = ("pi", "run", "sort", "--stack", "numpy", "--rounds", "2", "--index-url", index.url, *QUICK_OPTIONS)

    completed = advisor(*command, "--prometheus", "figures.prom")
    failed = advisor(*command, "--prometheus", "/proc/none/figures.prom")

    text = (tmp_path / "figures.prom").read_text()
    assert completed.returncode == 0, completed.stderr
    assert 'seshat_runs_total{status="import-error"} 4.0' in text
    assert failed.returncode == 4
    assert "could not be written" in failed.stderr


def test_a_block_over_the_disk_budget_is_refused_before_anything_is_installed(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("numpy", "2.0.0", code="#" * 2_000_000)
    command = ("pi", "run", "sort", "--stack", "numpy", "--index-url", index.url)

    completed = advisor(*command, "--disk-budget", "0.001")

    assert completed.returncode == 2
    assert "the budget is 0.0 GB" in completed.stderr
    assert not list((tmp_path / "home" / "cache").glob("environments/*"))


def test_without_uv_measuring_ends_and_names_the_extra(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("numpy", "2.0.0", code="")
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    output = tmp_path / "measured.jsonl"

    completed = advisor_here("pi", "run", "sort", "--stack", "numpy", "--index-url", index.url, "--output", str(output))

    assert completed.returncode == 2
    assert "needs the program `uv`" in completed.stderr
    assert "pip install 'seshat-advisor[measure]'" in completed.stderr
    assert not output.exists()


def test_a_full_disk_is_an_error_and_leaves_no_environment(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pi_runners.execution import environment
    from pi_runners.execution.environment import FullDiskError

    # The message of uv for a full disk: a disk that is full for one process only cannot be made without root.
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'error: failed to write: No space left on device (os error 28)' >&2\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setattr(environment, "find_uv", lambda: str(uv))
    lock = environment.StackLock(requested=("numpy",), packages=(), python="3.11", platform="manylinux_2_28_x86_64")

    with pytest.raises(FullDiskError, match="the disk is full"):
        environment.build_environment(lock, tmp_path / "environments")
    assert list((tmp_path / "environments").iterdir()) == []


def test_a_wheel_that_cannot_be_downloaded_is_a_download_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from knowledge.domain.stack import PackageVersion
    from pi_runners.execution import environment
    from pi_runners.execution.environment import DownloadError, LockedPackage

    package = PackageVersion(name="numpy", version="2.0.0")
    # No server listens on port 9.
    wheel = "http://127.0.0.1:9/numpy-2.0.0-py3-none-any.whl"
    lock = environment.StackLock(
        requested=("numpy",),
        packages=(LockedPackage(package=package, url=wheel, sha256="0" * 64),),
        python=sys.executable,
        platform="manylinux_2_28_x86_64",
    )
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    with pytest.raises(DownloadError, match="could not download"):
        environment.build_environment(lock, tmp_path / "environments")


def test_a_process_that_fails_while_the_disk_is_full_says_nothing_about_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest

    program = tmp_path / "program.py"
    program.write_text("raise SystemExit(120)")
    request = ProcessRequest(python=Path(sys.executable), program=program, content={}, timeout_seconds=60.0)

    assert FreshProcesses().run(request).ending == "exit"
    # The process could not even write its message.
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    assert FreshProcesses().run(request).ending == "disk"
