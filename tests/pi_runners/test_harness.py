"""The harness: the archive of the measuring program, its processes, and its clock."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessRequest
from pi_runners.harness import timing
from pi_runners.harness.contract import Backend, SamplingPlan, Unsupported
from pi_runners.harness.random_inputs import decode, random_bytes
from pi_runners.indicators import INDICATORS


def make_request(*indicators: str, backend: str = "numpy") -> dict[str, Any]:
    return {
        "backend": backend,
        "settings": {},
        "samples": 3,
        "min_seconds": 0.001,
        "max_warmup_seconds": 0.5,
        "indicators": [
            {"name": name, "parameters": INDICATORS[name].sets["small"][0], "device": "cpu", "dtype": "float64"}
            for name in indicators
        ],
    }


def process_request(tmp_path: Path, program: str, timeout: float = 60.0) -> ProcessRequest:
    path = tmp_path / "program.py"
    path.write_text(program)
    return ProcessRequest(python=Path(sys.executable), program=path, content={}, timeout_seconds=timeout)


def test_inputs_depend_on_the_seed_only() -> None:
    assert random_bytes(1, 4) == random_bytes(1, 4)
    assert decode(bytes([0, 255]), "float32") == [-1.0, 1.0]
    assert decode(bytes([0, 255]), "int8") == [-128.0, 127.0]


def test_a_sample_waits_for_the_device_before_and_after_its_calls() -> None:
    calls: list[str] = []

    timing.time_calls(lambda: calls.append("run"), lambda _: calls.append("wait"), 2)

    assert calls == ["wait", "run", "run", "wait"]


def test_the_archive_runs_in_isolation_and_writes_one_line_per_indicator(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    (tmp_path / "request.json").write_text(json.dumps(make_request("matmul", "training_step")))
    command = [
        sys.executable,
        "-I",
        str(program),
        "measure",
        str(tmp_path / "request.json"),
        str(tmp_path / "out.jsonl"),
    ]

    subprocess.run(command, check=True, cwd=tmp_path)

    documents = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(d["number"], d["status"]) for d in documents] == [(0, "ok"), (1, "unsupported")]
    assert "backward" in documents[1]["failure"] or "training" in documents[1]["failure"]
    assert len(documents[0]["samples"]) >= 3
    assert documents[0]["environment"]["numpy"]


@pytest.mark.parametrize("is_own_version", [True, False])
def test_the_byte_code_of_the_archive_is_only_for_interpreters_of_this_version(
    tmp_path: Path, is_own_version: bool
) -> None:
    program = write_program(tmp_path)
    magic = importlib.util.MAGIC_NUMBER if is_own_version else b"\0\0\r\n"
    with zipfile.ZipFile(program) as archive, zipfile.ZipFile(tmp_path / "other.pyz", "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".pyc"):
                content = magic + content[len(magic) :]
            elif name == "pi_runners/harness/worker.py":
                content = b"raise SystemExit('compiled from source')"
            other.writestr(name, content)

    command = [sys.executable, "-I", str(tmp_path / "other.pyz"), "measure", str(tmp_path / "absent"), "results"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ("compiled from source" in result.stderr) is not is_own_version
    assert (f'File "{program}/pi_runners/harness/worker.py", line' in result.stderr) is is_own_version


def test_a_framework_that_cannot_be_imported_is_an_import_error(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    runner = FreshProcesses()

    end = runner.run(
        ProcessRequest(
            python=Path(sys.executable),
            program=program,
            content=make_request("matmul", backend="tensorflow"),
            timeout_seconds=60,
        )
    )

    assert [r["status"] for r in end.results] == ["import-error"]
    assert "tensorflow" in end.results[0]["failure"]


def test_the_results_before_a_crash_are_returned(tmp_path: Path) -> None:
    end = FreshProcesses().run(
        process_request(
            tmp_path,
            'import sys, os\nopen(sys.argv[3], \'w\').write(\'{"indicator": "one"}\\n{"indic\')\n'
            "print('about to die', file=sys.stderr, flush=True)\nos.abort()",
        )
    )

    assert end.results == ({"indicator": "one"},)
    assert end.ending == "exit"
    assert end.exit_status < 0
    assert "about to die" in end.error_tail


def test_a_process_that_exceeds_its_time_is_killed_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"

    end = FreshProcesses().run(
        process_request(
            tmp_path,
            "import subprocess, sys, time\n"
            "process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            f"open({str(child)!r}, 'w').write(str(process.pid))\n"
            "time.sleep(600)",
            timeout=5.0,
        )
    )

    assert end.ending == "time"
    # A killed process takes a moment to end, and stays a zombie until its new parent reaps it.
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(child.read_text()))
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)


def test_a_process_is_killed_if_an_interruption_comes_before_the_wait_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pi_runners.execution.subprocess_runner.Sampler", interrupt)
    runner = FreshProcesses()

    with pytest.raises(KeyboardInterrupt):
        runner.run(process_request(tmp_path, "import time; time.sleep(600)"))

    assert runner._running is not None
    assert runner._running.returncode == -signal.SIGKILL


def test_the_process_ignores_pythonpath_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "callers-packages"))

    end = FreshProcesses().run(
        process_request(tmp_path, "import sys, json\nopen(sys.argv[3], 'w').write(json.dumps(sys.path) + '\\n')")
    )

    assert not any("callers-packages" in entry for entry in end.results[0])


def test_an_unknown_backend_or_operation_is_unsupported() -> None:
    from pi_runners.frameworks import make_backend

    with pytest.raises(Unsupported):
        make_backend("abacus", "cpu", "float32", {})
    with pytest.raises(Unsupported):
        Backend("cpu", "float32", {}).matmul(None, None)


def test_a_clock_that_does_not_advance_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 1.0)

    with pytest.raises(timing.ClockError, match="clock"):
        timing.time_calls(lambda: None, lambda _: None, 1)


def test_a_change_of_the_system_time_is_reported_and_affects_no_sample(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    script = tmp_path / "clock_jump.py"
    # The system time is set an hour ahead while the indicator runs.
    script.write_text(
        f"import sys, time\nsys.path.insert(0, {str(program)!r})\nreal, calls = time.time, []\n"
        "def jumping_time():\n    calls.append(1)\n    return real() + (3600 if len(calls) > 1 else 0)\n"
        "time.time = jumping_time\nfrom pi_runners.harness import worker\nsys.exit(worker.main())\n"
    )
    (tmp_path / "request.json").write_text(json.dumps(make_request("matmul")))
    command = [sys.executable, str(script), "measure", str(tmp_path / "request.json"), str(tmp_path / "out.jsonl")]

    subprocess.run(command, check=True, cwd=tmp_path)

    document = json.loads((tmp_path / "out.jsonl").read_text())
    assert document["clock_jump"] == pytest.approx(3600, abs=60)
    assert max(document["samples"]) < 60


def test_a_process_that_exceeds_the_memory_limit_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import time\nbuffer = bytearray(400 * 1024 * 1024)\ntime.sleep(600)\n")

    end = FreshProcesses().run(
        ProcessRequest(
            python=Path(sys.executable), program=path, content={}, timeout_seconds=600, memory_limit_bytes=200e6
        )
    )

    assert end.ending == "memory"


def test_the_load_of_the_machine_is_recorded_during_the_run(tmp_path: Path) -> None:
    end = FreshProcesses().run(
        process_request(tmp_path, "import time\nend = time.time() + 2\nwhile time.time() < end: pass")
    )

    figures = [reading.figures for reading in end.readings]
    # A process that has just ended has no memory.
    memory = [f["memory_bytes"] for f in figures if "memory_bytes" in f]
    assert memory
    assert min(memory) > 0
    assert max(f["cpu_percent"] for f in figures) > 0


def test_each_result_is_released_before_the_next_is_computed() -> None:
    class Result:
        alive = 0
        max_alive = 0

        def __init__(self) -> None:
            Result.alive += 1
            Result.max_alive = max(Result.max_alive, Result.alive)

        def __del__(self) -> None:
            Result.alive -= 1

    timing.measure(Result, lambda _: None, SamplingPlan(samples=3, min_seconds=0.0001, max_warmup_seconds=0.1))

    # With two results alive, every call would allocate new memory.
    assert Result.max_alive == 1


def test_a_stopped_process_ends_as_stopped_and_no_other_is_started(tmp_path: Path) -> None:
    runner = FreshProcesses()
    endless = process_request(tmp_path, "import time\ntime.sleep(600)")
    threading.Timer(0.3, runner.stop).start()

    first = runner.run(endless)
    second = runner.run(endless)

    assert first.ending == second.ending == "stopped"
    assert runner.stopped
