"""Benchmarks of projects in the harness: real programs in real processes, with the failures that users will have."""

from __future__ import annotations

import sys
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from knowledge.domain.observation import Observation
from pi_runners.execution.benchmark import Benchmark, Metric
from pi_runners.execution.campaign import FailureLimit
from tests.knowledge.samples import observation
from tests.pi_runners.benchmarks import THROUGHPUT, benchmark_of, run_benchmark
from tests.pi_runners.campaigns import Sink
from tests.processes import ends_within


def result_of(tmp_path: Path, benchmark: Benchmark, **options: Any) -> dict[str, Any]:
    [result] = run_benchmark(tmp_path, benchmark, **options).results
    return result


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("raise ValueError('no such model')", "error", "exit status 1: ValueError: no such model"),
        ("import sys; sys.exit(3)", "error", "exit status 3"),
        ("import os; os.kill(os.getpid(), 11)", "crashed", "killed by signal 11"),
        ("print('done')", "error", r"no line of the output matches the metric's pattern `throughput: (\S+)`"),
        ("print('throughput: fast')", "error", "the metric is `fast`, which is not a positive number"),
        ("print('throughput: nan')", "error", "the metric is `nan`, which is not a positive number"),
        ("print('throughput: -1')", "error", "the metric is `-1`, which is not a positive number"),
        (
            "print('throughput: 1\\nthroughput: 2')",
            "error",
            r"the metric's pattern `throughput: (\S+)` matches 2 times (`1`, `2`, ...); it must match once",
        ),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('data'); p.parse_args()",
            "error",
            "exit status 2: bench.py: error: the following arguments are required: data",
        ),
        (
            "open('data.csv')",
            "error",
            "exit status 1: FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
        ),
        (
            "open('bench.py', 'a').write('#'); print('throughput: 1')",
            "error",
            "the program changed `bench.py`, which is one of the benchmark's `files`: its runs are not comparable; "
            "write to another file, or narrow `files`",
        ),
    ],
)
def test_a_program_that_gives_no_result_is_a_failure_with_its_reason_in_the_last_line(
    tmp_path: Path, program: str, status: str, reason: str
) -> None:
    result = result_of(tmp_path, benchmark_of(tmp_path / "project", program))

    assert result["status"] == status
    assert result["failure"].splitlines()[-1] == reason
    assert "samples" not in result


def test_a_program_that_does_not_exist_is_a_failure(tmp_path: Path) -> None:
    benchmark = benchmark_of(tmp_path / "project", "", command=("no-such-program", "x"))

    result = result_of(tmp_path, benchmark)

    assert result["status"] == "error"
    assert result["failure"].startswith("`no-such-program` cannot be started: No such file or directory")


def test_a_program_that_runs_forever_is_killed_with_its_children(tmp_path: Path) -> None:
    program = (
        "import pathlib, subprocess, sys\nprint('started', flush=True)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\nchild.wait()"
    )

    result = result_of(tmp_path, benchmark_of(tmp_path / "project", program), timeout_seconds=5.0)

    assert result["status"] == "timed-out"
    assert result["failure"] == "started\nkilled after 5 seconds: it did not end"
    child = int((tmp_path / "child").read_text())
    # The signal was sent to the whole process group; the system ends each of its processes a moment later.
    assert ends_within(child, seconds=10.0)


def test_a_program_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    program = "import time\nbuffer = bytearray(300_000_000)\ntime.sleep(60)"

    end = run_benchmark(tmp_path, benchmark_of(tmp_path / "project", program), memory_limit_bytes=2e8)

    assert (end.ending, end.results) == ("memory", ())


def test_a_rate_is_stored_as_seconds_for_each_unit_with_the_rate_as_metric(tmp_path: Path) -> None:
    result = result_of(tmp_path, benchmark_of(tmp_path / "project", "print('x throughput: 250 images/s')"), runs=3)

    assert (result["status"], result["samples"], result["loops"]) == ("ok", [0.004] * 3, 1)
    assert result["metrics"]["value"] == 250
    assert 0 < result["metrics"]["seconds_per_run"] < 60
    assert result["metrics"]["peak_memory_bytes"] > 1e6


@pytest.mark.parametrize(
    ("unit", "better", "sample"), [("ms", "lower", 0.008), ("MB", "lower", 8.0), ("images/s", "higher", 0.125)]
)
def test_a_lower_sample_is_always_better(tmp_path: Path, unit: str, better: Any, sample: float) -> None:
    metric = Metric(pattern="= ([0-9.]+)", unit=unit, better=better)

    result = result_of(tmp_path, benchmark_of(tmp_path / "project", "print('value = 8')", metric), runs=1)

    assert result["samples"] == [sample]


def test_without_a_pattern_the_samples_are_the_durations_of_the_command(tmp_path: Path) -> None:
    program = "import time; time.sleep(0.3); print('throughput: 1')"

    result = result_of(tmp_path, benchmark_of(tmp_path / "project", program, Metric()))

    assert len(result["samples"]) == 2
    assert all(0.3 < seconds < 30 for seconds in result["samples"])
    assert result["warmup_seconds"] > 0.3
    # For energy: when the timed runs were.
    window = result["window"]
    assert window["stretches"] == 2
    assert window["started"] > result["started"] + 0.3
    assert 0.6 < window["timed_seconds"] < window["seconds"] < result["seconds"] - 0.3


def test_runs_with_a_start_up_command_have_no_window(tmp_path: Path) -> None:
    program = "import sys, time; time.sleep(0.1 * len(sys.argv)); print('throughput: 1')"
    benchmark = benchmark_of(tmp_path / "project", program, Metric(), startup=("python", "bench.py"))

    result = result_of(tmp_path, replace(benchmark, command=("python", "bench.py", "long")))

    assert result["status"] == "ok"
    assert "window" not in result


def test_each_process_starts_from_a_new_copy_and_its_runs_share_it(tmp_path: Path) -> None:
    program = (
        "import pathlib\nnotes = pathlib.Path('notes.txt')\n"
        "notes.write_text(notes.read_text() + 'x' if notes.exists() else 'x')\n"
        "print('throughput:', len(notes.read_text()))"
    )
    benchmark = benchmark_of(tmp_path / "project", program)

    results = [result_of(tmp_path, benchmark) for _ in range(2)]

    # The warm-up writes the first letter.
    assert [r["samples"] for r in results] == [[0.5, 0.333333]] * 2
    assert not (tmp_path / "project" / "notes.txt").exists()


def test_the_program_runs_in_the_environment_and_can_import_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    package = tmp_path / "project" / "src" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("SPEED = 5")
    program = (
        "import demo, os, sys\nassert '/nowhere' not in sys.path\n"
        f"assert os.environ['VIRTUAL_ENV'] == sys.prefix == {sys.prefix!r}\n"
        "print('throughput:', demo.SPEED)"
    )

    result = result_of(tmp_path, benchmark_of(tmp_path / "project", program), runs=1)

    assert (result["status"], result["samples"]) == ("ok", [0.2]), result


@pytest.mark.parametrize("exits", ["", "; raise SystemExit(3)"])
def test_a_command_that_runs_python_in_another_environment_is_refused(tmp_path: Path, exits: str) -> None:
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    command = ("bash", "-c", f"PATH={other}/bin:$PATH python bench.py")
    benchmark = benchmark_of(tmp_path / "project", f"print('throughput: 5'){exits}", command=command)

    result = result_of(tmp_path, benchmark, runs=1)

    assert result["status"] == "error"
    assert f"runs Python in `{other}`, not in the environment of the stack" in result["failure"]


def test_the_environment_of_a_program_is_recorded_beside_other_interpreters_and_hooks(tmp_path: Path) -> None:
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    program = (
        f"import subprocess, sys\nsubprocess.run([{str(other / 'bin' / 'python')!r}, '-c', 'pass'], check=True)\n"
        "import sitecustomize\nassert not any('interpreters' in path for path in sys.path)\n"
        "print('throughput:', sitecustomize.SPEED)"
    )
    benchmark = benchmark_of(tmp_path / "project", program)
    (tmp_path / "project" / "sitecustomize.py").write_text("SPEED = 4")

    result = result_of(tmp_path, benchmark, runs=1)

    assert (result["status"], result["samples"]) == ("ok", [0.25]), result
    assert result["environment"]["program_python"] == "stack"


@pytest.mark.parametrize(
    "command",
    [
        ("echo", "throughput: 5"),
        ("python", "-E", "bench.py"),
        ("python", "-I", "bench.py"),
        ("bash", "-c", 'env -i "$(command -v python)" bench.py'),
        ("bash", "-c", "PYTHONPATH=. python bench.py"),
    ],
)
def test_a_command_whose_python_cannot_be_recorded_is_refused_with_the_way_out(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    benchmark = benchmark_of(tmp_path / "project", "print('throughput: 5')", command=command)

    result = result_of(tmp_path, benchmark, runs=1)

    assert result["status"] == "error"
    assert "start the program with `python`, without `-I`, `-E` or `-S`" in result["failure"]
    assert "`PYTHONPATH=.:$PYTHONPATH`" in result["failure"]


@pytest.mark.parametrize(
    "work", ["{python} work.py", "{python} -c 'import numpy'", "{python} -c 'import os; os.kill(os.getpid(), 9)'"]
)
def test_a_launcher_of_the_stack_that_lets_another_environment_do_the_work_is_refused(
    tmp_path: Path, work: str
) -> None:
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    [packages] = other.glob("lib/python*/site-packages")
    (packages / "numpy.py").write_text("")
    started = work.format(python=other / "bin" / "python")
    program = f"import subprocess\nsubprocess.run({started!r}, shell=True)\nprint('throughput: 5')"
    benchmark = benchmark_of(tmp_path / "project", program)
    (tmp_path / "project" / "work.py").write_text("")

    result = result_of(tmp_path, benchmark, runs=1)

    assert result["status"] == "error"
    assert f"runs Python in `{other}`, not in the environment of the stack" in result["failure"]


def test_a_package_that_an_interpreter_of_another_environment_loads_at_its_start_is_no_work(tmp_path: Path) -> None:
    other = tmp_path / "other"
    venv.create(other, symlinks=True)
    [packages] = other.glob("lib/python*/site-packages")
    (packages / "numpy.py").write_text("")
    (packages / "numpy.pth").write_text("import numpy\n")
    python = str(other / "bin" / "python")
    program = f"import subprocess\nsubprocess.run([{python!r}, '-c', 'import time'])\nprint('throughput: 5')"

    result = result_of(tmp_path, benchmark_of(tmp_path / "project", program), runs=1)

    assert result["status"] == "ok", result["failure"]


def test_a_program_with_gigabytes_of_output_takes_little_memory_and_its_metric_is_read(tmp_path: Path) -> None:
    program = "import sys\nfor _ in range(300): sys.stdout.write('x' * 1_000_000)\nprint('\\nthroughput: 4')"

    end = run_benchmark(
        tmp_path, benchmark_of(tmp_path / "project", program, warmup_runs=0), runs=1, memory_limit_bytes=2e8
    )

    assert [r["samples"] for r in end.results] == [[0.25]]


def test_a_pattern_that_takes_exponential_time_is_a_failure(tmp_path: Path) -> None:
    metric = replace(THROUGHPUT, pattern=r"((?:a+)+)b")

    benchmark = benchmark_of(tmp_path / "project", "print('a' * 60)", metric, warmup_runs=0)
    result = result_of(tmp_path, benchmark, timeout_seconds=3.0)

    assert result["status"] == "error"
    assert result["failure"].splitlines()[-1] == (
        "the search for the pattern `((?:a+)+)b` in the output was stopped after 3 seconds; "
        "simplify the pattern, or print less"
    )


def test_the_identity_depends_on_everything_that_makes_results_comparable(tmp_path: Path) -> None:
    benchmark = benchmark_of(tmp_path / "project", "print()")
    same = replace(benchmark, directory=tmp_path, warmup_runs=2)
    others = [
        replace(benchmark, project="other"),
        replace(benchmark, command=("python", "bench.py", "--fast")),
        replace(benchmark, metric=Metric()),
        replace(benchmark, files={"bench.py": "0"}),
    ]

    assert benchmark.identity == same.identity
    assert len({benchmark.identity, *(other.identity for other in others)}) == 5


def test_an_arm_is_given_up_after_two_consecutive_failures() -> None:
    sink = Sink()
    limit = FailureLimit(sink.add)

    def failure(arm: int) -> Observation:
        return replace(observation(), arm=arm, status="timed-out", samples=(), failure="output\nkilled after 5 seconds")

    limit.add([failure(0), failure(1)])
    assert (limit.reason(0), limit.reason(1)) == ("", "")
    limit.add([replace(observation(), arm=0)])
    limit.add([failure(0), failure(1)])

    assert limit.reason(0) == ""
    assert limit.reason(1) == "not run again after 2 failures: killed after 5 seconds"
    assert len(sink.observations) == 5
