"""The communication indicator: a wrong operation and a process that dies are noticed, and only operations are timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pi_runners
from pi_runners.campaign import write_program
from pi_runners.harness.contract import Backend, SamplingPlan
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.communication_rank import Stretches
from pi_runners.subprocess_runner import FreshProcesses, ProcessRequest
from tests.pi_runners import communication_faults

pytest.importorskip("torch")

ROOT = str(Path(pi_runners.__file__).parents[1])
BROADCAST = {"pattern": "broadcast", "processes": 2, "elements": 64}
TAKE_PART = """
import os, signal, sys
sys.path.insert(0, {root!r})
rank = int(sys.argv[3])
{first}
import torch
import torch.distributed as dist
{change}
from pi_runners.indicators.communication_rank import run_rank
run_rank(*sys.argv[2:])
"""
"""A program that is one process of the measurement, with a change made to it first."""


def plan(program: Path) -> SamplingPlan:
    return SamplingPlan(samples=2, min_seconds=0.001, max_warmup_seconds=0.1, archive=str(program))


def measured(program: Path, parameters: dict[str, Any] = BROADCAST) -> dict[str, Any]:
    return INDICATORS["communication"].measure(Backend("cpu", "float32", {}), parameters, plan(program))


def changed(folder: Path, change: str = "", *, first: str = "") -> Path:
    """Write the program of a process, with a change to the framework, or with what it does before its import."""
    path = folder / "program.py"
    path.write_text(TAKE_PART.format(root=ROOT, change=change, first=first))
    return path


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, list[str]]]:
    """Run every pattern with every fault, and return what the checks of each rank said of its stretches."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-I", communication_faults.__file__, str(folder)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = range(communication_faults.PROCESSES)
    started = [subprocess.Popen([*command, str(rank)], env=environment) for rank in ranks]
    try:
        assert [process.wait(timeout=300) for process in started] == [0 for _ in ranks]
    finally:
        for process in started:
            process.kill()
    reports: dict[str, dict[int, list[str]]] = {}
    for rank in ranks:
        for case, said in json.loads((folder / f"noticed-{rank}.json").read_text()).items():
            reports.setdefault(case, {})[rank] = said
    return reports


@pytest.mark.parametrize("case", [" ".join(case) for case in communication_faults.cases() if case[2] != "none"])
def test_a_wrong_operation_is_noticed(noticed: dict[str, dict[int, list[str]]], case: str) -> None:
    assert any(any(texts) for texts in noticed[case].values())


@pytest.mark.parametrize("case", [" ".join(case) for case in communication_faults.cases() if case[2] == "none"])
def test_a_right_operation_passes_the_check(noticed: dict[str, dict[int, list[str]]], case: str) -> None:
    assert not any(any(texts) for texts in noticed[case].values())


@pytest.mark.parametrize("pattern", communication_faults.PATTERNS)
def test_the_rank_that_received_nothing_reports_it(noticed: dict[str, dict[int, list[str]]], pattern: str) -> None:
    texts_by_rank = noticed[f"float32 {pattern} some ranks only"]

    assert texts_by_rank[1][0].startswith("rank 1 has ")
    assert not any(texts[0] for rank, texts in texts_by_rank.items() if rank != 1)


@pytest.mark.parametrize("pattern", communication_faults.PATTERNS)
def test_stale_data_of_an_earlier_stretch_is_noticed_in_the_next(
    noticed: dict[str, dict[int, list[str]]], pattern: str
) -> None:
    reports = noticed[f"float32 {pattern} stale"].values()

    assert any(texts[1] for texts in reports)


@pytest.mark.parametrize("pattern", ["latency", "bandwidth"])
def test_messages_between_two_processes_require_exactly_two(pattern: str) -> None:
    complaints = INDICATORS["communication"].complaints({"pattern": pattern, "processes": 3, "elements": 1})

    assert complaints == [f"`processes` of `{pattern}` must be 2"]


class RecordedPattern:
    """A pattern on a clock of its own: what is around the operation takes 100 seconds, the operation one."""

    def __init__(self, spend: Callable[[str, float], None], *, size: int = 1, operations: int = 1) -> None:
        self._spend, self.size, self.operations = spend, size, operations
        self.rank, self.tolerance = 0, 1e-3

    def prepare(self, stretch: int, calls: int) -> None:
        self._spend("prepare", 100)

    def barrier(self) -> None:
        self._spend("barrier", 100)

    def run(self) -> None:
        self._spend("run", 1)

    def synchronise(self, result: Any) -> None:
        self._spend("synchronise", 0)

    def check(self, stretch: int, calls: int) -> float:
        self._spend("check", 100)
        return 0.0

    def state(self) -> str:
        return ""


class RecordedStore:
    """A store in which the other ranks have noted how long they took."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls: list[str] = []
        self._seconds = seconds

    def set(self, key: str, value: str) -> None:
        self.calls.append(value)

    def get(self, key: str) -> bytes:
        return repr(self._seconds).encode()


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Callable[[str, float], None]]:
    """What was done, and how to do something that takes time on a clock that only this moves."""
    calls: list[str] = []
    now = [0.0]

    def spend(name: str, seconds: float) -> None:
        calls.append(name)
        now[0] += seconds

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return calls, spend


def test_only_the_operation_is_timed(spent: tuple[list[str], Callable[[str, float], None]]) -> None:
    done, spend = spent
    pattern = RecordedPattern(spend)

    result = Stretches(pattern, pattern, RecordedStore()).lead(
        SamplingPlan(samples=2, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [1.0, 1.0]
    assert result["loops"] >= 3
    stretch = ["prepare", "barrier", "synchronise", *["run"] * result["loops"], "synchronise", "check"]
    assert done[-2 * len(stretch) :] == stretch * 2


def test_the_slowest_rank_counts(spent: tuple[list[str], Callable[[str, float], None]]) -> None:
    _, spend = spent
    pattern = RecordedPattern(spend, size=3)

    result = Stretches(pattern, pattern, RecordedStore(2.5)).lead(
        SamplingPlan(samples=2, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [2.5, 2.5]


def test_a_sample_of_the_latency_is_half_a_round_trip(spent: tuple[list[str], Callable[[str, float], None]]) -> None:
    _, spend = spent
    pattern = RecordedPattern(spend, operations=2)

    result = Stretches(pattern, pattern, RecordedStore()).lead(
        SamplingPlan(samples=1, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [0.5]


def test_the_other_ranks_receive_the_number_of_calls_and_the_end(
    spent: tuple[list[str], Callable[[str, float], None]],
) -> None:
    done, spend = spent
    pattern, store = RecordedPattern(spend), RecordedStore()

    Stretches(pattern, pattern, store).lead(SamplingPlan(samples=1, min_seconds=3, max_warmup_seconds=10))

    assert sum(int(calls) for calls in store.calls) == done.count("run")
    assert store.calls[-1] == "0"


@pytest.mark.parametrize(
    "parameters",
    [
        {"pattern": "all_reduce", "processes": 2, "elements": 1000},
        {"pattern": "scaling", "processes": 2},
    ],
    ids=lambda p: p["pattern"],
)
def test_processes_are_measured_and_their_results_checked(tmp_path: Path, parameters: dict[str, Any]) -> None:
    result = measured(write_program(tmp_path), parameters)

    assert result["status"] == "ok", result["failure"]
    assert 2 <= len(result["samples"]) <= 6
    assert result["error"] <= result["tolerance"]


def test_a_broadcast_that_reaches_no_other_process_is_a_wrong_result(tmp_path: Path) -> None:
    program = changed(tmp_path, "real = dist.broadcast\ndist.broadcast = lambda tensor, src: real(tensor.clone(), src)")

    result = measured(program)

    assert result["status"] == "wrong-result"
    assert result["failure"].startswith("rank 1 has 4.0 in element 0 of what rank 0 broadcast, instead of 1.0")


def test_a_killed_process_ends_the_measurement_and_is_reported(tmp_path: Path) -> None:
    program = changed(
        tmp_path,
        "calls = 0\n"
        "real = dist.broadcast\n"
        "def broadcast(*arguments, **named):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if rank == 1 and calls == 10:\n"
        "        print('last words of rank', rank, file=sys.stderr, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*arguments, **named)\n"
        "dist.broadcast = broadcast",
    )

    result = measured(program)

    assert result["status"] == "crashed"
    assert "rank 1 of 2 processes was killed by SIGKILL" in result["failure"]
    assert "last words of rank 1" in result["failure"]


def test_a_process_that_exits_before_the_first_barrier_stops_the_others(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    program = changed(
        tmp_path,
        first=f"open({str(tmp_path / 'pids')!r} + '/' + str(os.getpid()), 'w').close()\n"
        "if rank == 0:\n"
        "    raise RuntimeError('no such library')",
    )

    result = measured(program)

    assert result["status"] == "crashed"
    assert "rank 0 of 2 processes ended with exit status 1" in result["failure"]
    assert "no such library" in result["failure"]
    assert not any(is_alive(int(file.name)) for file in (tmp_path / "pids").iterdir())


def test_a_rank_that_runs_out_of_memory_is_reported(tmp_path: Path) -> None:
    program = changed(
        tmp_path,
        "def refuse(*arguments, **named):\n"
        "    raise MemoryError('rank 1 has none left')\n"
        "if rank == 1:\n"
        "    dist.init_process_group = refuse",
    )

    result = measured(program)

    assert result["status"] == "out-of-memory"
    assert "rank 1 has none left" in result["failure"]


def test_a_rank_that_ends_without_a_result_is_a_crash(tmp_path: Path) -> None:
    program = changed(tmp_path, first="if rank == 1:\n    sys.exit(0)")

    result = measured(program)

    assert result["status"] == "crashed"
    assert "rank 1 of 2 processes ended with exit status 0" in result["failure"]


def test_ranks_that_end_with_different_weights_are_a_wrong_result(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        "folder = os.path.dirname(sys.argv[2])\n"
        "document = {'status': 'ok', 'error': 0.0, 'tolerance': 1e-3, 'state': 'weights ' + sys.argv[3]}\n"
        "json.dump(document, open(os.path.join(folder, 'rank-' + sys.argv[3] + '.json'), 'w'))"
    )

    result = measured(program, {"pattern": "scaling", "processes": 2})

    assert result["status"] == "wrong-result"
    assert "rank 1 has other weights than rank 0" in result["failure"]


MEASURE = """
import sys
sys.path.insert(0, {root!r})
from pi_runners.harness.contract import Backend, SamplingPlan
from pi_runners.indicators import INDICATORS
plan = SamplingPlan(samples=2, min_seconds=0.001, max_warmup_seconds=0.1, archive={program!r})
INDICATORS["communication"].measure(Backend("cpu", "float32", {{}}), {parameters!r}, plan)
"""
"""A program that starts ranks, as the worker does."""


@pytest.mark.parametrize(
    ("end_of_the_worker", "timeout_seconds"), [("time", 5.0), ("killed", 60.0)], ids=["timed out", "killed"]
)
def test_no_rank_outlives_the_worker(tmp_path: Path, end_of_the_worker: str, timeout_seconds: float) -> None:
    (tmp_path / "pids").mkdir()
    kill = "if rank == 0: os.kill(os.getppid(), signal.SIGKILL)\n" if end_of_the_worker == "killed" else ""
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import os, signal, sys, time\n"
        "rank = int(sys.argv[3])\n"
        f"pids = {str(tmp_path / 'pids')!r}\n"
        "open(os.path.join(pids, str(os.getpid())), 'w').close()\n"
        "while len(os.listdir(pids)) < 2: time.sleep(0.01)\n"
        f"{kill}"
        "time.sleep(600)"
    )
    worker = tmp_path / "worker.py"
    worker.write_text(MEASURE.format(root=ROOT, program=str(rank), parameters=BROADCAST))

    FreshProcesses().run(
        ProcessRequest(python=Path(sys.executable), program=worker, content={}, timeout_seconds=timeout_seconds)
    )

    pids = [int(file.name) for file in (tmp_path / "pids").iterdir()]
    assert len(pids) == 2
    # They were killed, which takes effect a moment later; they would sleep for ten minutes.
    for _ in range(3000):
        if not any(is_alive(pid) for pid in pids):
            break
        time.sleep(0.01)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
