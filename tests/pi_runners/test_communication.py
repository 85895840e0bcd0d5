"""The communication indicator: it detects wrong results and processes that end, and times the operation only."""

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
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest
from pi_runners.harness.contract import Backend, SamplingPlan
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.processes.communication_rank import Stretches
from tests.pi_runners import communication_faults

pytest.importorskip("torch")

ROOT = str(Path(pi_runners.__file__).parents[1])
Messages = dict[str, dict[int, list[str]]]
"""Messages of the checks, one per stretch, by case and rank."""
FakeClock = tuple[list[str], Callable[[str, float], None]]
"""Names of all steps, and a function that adds a step and advances the clock by its seconds."""
BROADCAST = {"pattern": "broadcast", "processes": 2, "elements": 64}
RANK_PROGRAM = """
import os, signal, sys
sys.path.insert(0, {root!r})
rank = int(sys.argv[3])
{before_import}
import torch
import torch.distributed as dist
{change}
from pi_runners.indicators.processes.communication_rank import run_rank
run_rank(*sys.argv[2:])
"""
"""Program of one process of the measurement, with code before and after the import of PyTorch."""


def plan(program: Path) -> SamplingPlan:
    return SamplingPlan(samples=2, min_seconds=0.001, max_warmup_seconds=0.1, archive=str(program))


def measure(program: Path, parameters: dict[str, Any] = BROADCAST) -> dict[str, Any]:
    return INDICATORS["communication"].measure(Backend("cpu", "float32", {}), parameters, plan(program))


def write_rank_program(folder: Path, change: str = "", *, before_import: str = "") -> Path:
    """Write the program of a process, with a change to PyTorch or code that runs before its import."""
    path = folder / "program.py"
    path.write_text(RANK_PROGRAM.format(root=ROOT, change=change, before_import=before_import))
    return path


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Messages:
    """Run every pattern with every fault, and return the messages of the checks."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-I", communication_faults.__file__, str(folder)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = range(communication_faults.PROCESSES)
    processes = [subprocess.Popen([*command, str(rank)], env=environment) for rank in ranks]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0 for _ in ranks]
    finally:
        for process in processes:
            process.kill()
    by_case: Messages = {}
    for rank in ranks:
        for case, texts in json.loads((folder / f"messages-{rank}.json").read_text()).items():
            by_case.setdefault(case, {})[rank] = texts
    return by_case


@pytest.mark.parametrize("case", [" ".join(case) for case in communication_faults.cases() if case[2] != "none"])
def test_a_faulty_operation_fails_the_check(messages: Messages, case: str) -> None:
    assert any(any(texts) for texts in messages[case].values())


@pytest.mark.parametrize("case", [" ".join(case) for case in communication_faults.cases() if case[2] == "none"])
def test_a_correct_operation_passes_the_check(messages: Messages, case: str) -> None:
    assert not any(any(texts) for texts in messages[case].values())


@pytest.mark.parametrize("pattern", communication_faults.PATTERNS)
def test_the_rank_that_received_nothing_fails_its_check(messages: Messages, pattern: str) -> None:
    by_rank = messages[f"float32 {pattern} some ranks only"]

    assert by_rank[1][0].startswith("rank 1 has ")
    assert not any(texts[0] for rank, texts in by_rank.items() if rank != 1)


@pytest.mark.parametrize("pattern", communication_faults.PATTERNS)
def test_a_result_of_an_earlier_stretch_fails_the_check_of_the_next(messages: Messages, pattern: str) -> None:
    by_rank = messages[f"float32 {pattern} stale"]

    assert any(texts[1] for texts in by_rank.values())


@pytest.mark.parametrize("pattern", ["latency", "bandwidth"])
def test_point_to_point_patterns_require_exactly_two_processes(pattern: str) -> None:
    complaints = INDICATORS["communication"].complaints({"pattern": pattern, "processes": 3, "elements": 1})

    assert complaints == [f"`processes` of `{pattern}` must be 2"]


class RecordedPattern:
    """A pattern on a fake clock: the operation takes one second, everything around it 100 seconds."""

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
    """A store that contains the durations of the other ranks."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls: list[str] = []
        self._seconds = seconds

    def set(self, key: str, value: str) -> None:
        self.calls.append(value)

    def get(self, key: str) -> bytes:
        return repr(self._seconds).encode()


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Replace the clock by one that only the returned function advances."""
    steps: list[str] = []
    now = [0.0]

    def spend(name: str, seconds: float) -> None:
        steps.append(name)
        now[0] += seconds

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return steps, spend


def test_only_the_operation_is_timed(fake_clock: FakeClock) -> None:
    steps, spend = fake_clock
    pattern = RecordedPattern(spend)

    result = Stretches(pattern, pattern, RecordedStore()).lead(
        SamplingPlan(samples=2, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [1.0, 1.0]
    assert result["loops"] >= 3
    stretch = ["prepare", "barrier", "synchronise", *["run"] * result["loops"], "synchronise", "check"]
    assert steps[-2 * len(stretch) :] == stretch * 2


def test_the_time_of_the_slowest_rank_is_the_sample(fake_clock: FakeClock) -> None:
    _, spend = fake_clock
    pattern = RecordedPattern(spend, size=3)

    result = Stretches(pattern, pattern, RecordedStore(2.5)).lead(
        SamplingPlan(samples=2, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [2.5, 2.5]


def test_a_latency_sample_is_half_a_round_trip(fake_clock: FakeClock) -> None:
    _, spend = fake_clock
    pattern = RecordedPattern(spend, operations=2)

    result = Stretches(pattern, pattern, RecordedStore()).lead(
        SamplingPlan(samples=1, min_seconds=3, max_warmup_seconds=10)
    )

    assert result["samples"] == [0.5]


def test_the_first_rank_publishes_the_calls_of_every_stretch_and_the_end(
    fake_clock: FakeClock,
) -> None:
    steps, spend = fake_clock
    pattern, store = RecordedPattern(spend), RecordedStore()

    Stretches(pattern, pattern, store).lead(SamplingPlan(samples=1, min_seconds=3, max_warmup_seconds=10))

    assert sum(int(calls) for calls in store.calls) == steps.count("run")
    assert store.calls[-1] == "0"


@pytest.mark.parametrize(
    "parameters",
    [
        {"pattern": "all_reduce", "processes": 2, "elements": 1000},
        {"pattern": "scaling", "processes": 2},
    ],
    ids=lambda p: p["pattern"],
)
def test_two_processes_are_measured_and_their_results_checked(tmp_path: Path, parameters: dict[str, Any]) -> None:
    result = measure(write_program(tmp_path), parameters)

    assert result["status"] == "ok", result["failure"]
    assert 2 <= len(result["samples"]) <= 6
    assert result["error"] <= result["tolerance"]


def test_a_broadcast_that_no_other_process_receives_is_a_wrong_result(tmp_path: Path) -> None:
    program = write_rank_program(
        tmp_path, "real = dist.broadcast\ndist.broadcast = lambda tensor, src: real(tensor.clone(), src)"
    )

    result = measure(program)

    assert result["status"] == "wrong-result"
    assert result["failure"].startswith("rank 1 has 4.0 in element 0 of what rank 0 broadcast, instead of 1.0")


def test_a_killed_process_ends_the_measurement_and_is_reported(tmp_path: Path) -> None:
    program = write_rank_program(
        tmp_path,
        "calls = 0\n"
        "real = dist.broadcast\n"
        "def broadcast(*arguments, **options):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if rank == 1 and calls == 10:\n"
        "        print('last words of rank', rank, file=sys.stderr, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*arguments, **options)\n"
        "dist.broadcast = broadcast",
    )

    result = measure(program)

    assert result["status"] == "crashed"
    assert "rank 1 of 2 processes was killed by SIGKILL" in result["failure"]
    assert "last words of rank 1" in result["failure"]


def test_a_process_that_ends_before_the_rendezvous_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    program = write_rank_program(
        tmp_path,
        before_import=f"open({str(tmp_path / 'pids')!r} + '/' + str(os.getpid()), 'w').close()\n"
        "if rank == 0:\n"
        "    raise RuntimeError('no such library')",
    )

    result = measure(program)

    assert result["status"] == "crashed"
    assert "rank 0 of 2 processes ended with exit status 1" in result["failure"]
    assert "no such library" in result["failure"]
    assert not any(is_alive(int(file.name)) for file in (tmp_path / "pids").iterdir())


def test_a_rank_without_memory_is_reported_as_out_of_memory(tmp_path: Path) -> None:
    program = write_rank_program(
        tmp_path,
        "def refuse(*arguments, **options):\n"
        "    raise MemoryError('rank 1 has no memory')\n"
        "if rank == 1:\n"
        "    dist.init_process_group = refuse",
    )

    result = measure(program)

    assert result["status"] == "out-of-memory"
    assert "rank 1 has no memory" in result["failure"]


def test_a_rank_that_ends_without_a_result_is_a_crash(tmp_path: Path) -> None:
    program = write_rank_program(tmp_path, before_import="if rank == 1:\n    sys.exit(0)")

    result = measure(program)

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

    result = measure(program, {"pattern": "scaling", "processes": 2})

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
"""Program that starts the ranks, as the worker does."""


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
    # A killed process takes a moment to end; without the kill, it would sleep for ten minutes.
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
