from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pi_runners.backends.numpy import NumpyBackend
from pi_runners.campaign import write_program
from pi_runners.executors.base import Job
from pi_runners.executors.local import LocalExecutor
from pi_runners.harness import timing
from pi_runners.harness.contract import Backend, Unsupported, random_bytes, values
from pi_runners.indicators import INDICATORS


def request(*indicators: str, backend: str = "numpy") -> dict[str, Any]:
    return {
        "backend": backend,
        "device": "cpu",
        "dtype": "float64",
        "samples": 3,
        "min_seconds": 0.001,
        "max_warmup_seconds": 0.5,
        "indicators": [
            {"name": name, "parameters": INDICATORS[name].parameters_for("small", backend)} for name in indicators
        ],
    }


def job(tmp_path: Path, program: str, timeout: float = 60.0) -> Job:
    path = tmp_path / "program.py"
    path.write_text(program)
    return Job(python=Path(sys.executable), program=path, request={}, timeout_seconds=timeout)


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpy_computes_what_the_reference_says(name: str, dtype: str) -> None:
    indicator = INDICATORS[name]
    trial = indicator.prepare(NumpyBackend("cpu", dtype), indicator.parameters_for("small", "numpy"))

    assert trial.check(trial.run()) <= trial.tolerance


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
def test_a_wrong_result_is_noticed(name: str) -> None:
    indicator = INDICATORS[name]
    trial = indicator.prepare(NumpyBackend("cpu", "float32"), indicator.parameters_for("small", "numpy"))

    assert trial.check(trial.run() * 1.01) > trial.tolerance


def test_numpy_says_that_it_goes_through_im2col() -> None:
    assert INDICATORS["conv2d"].parameters_for("small", "numpy")["algorithm"] == "im2col"


def test_what_numpy_cannot_do_is_unsupported() -> None:
    with pytest.raises(Unsupported):
        NumpyBackend("cuda", "float32")
    with pytest.raises(Unsupported):
        INDICATORS["training_step"].prepare(NumpyBackend("cpu", "float32"), INDICATORS["training_step"].sizes["small"])


def test_flop_counts_follow_their_formulae() -> None:
    assert INDICATORS["matmul"].flops({"m": 2, "n": 3, "k": 4}) == 48
    one = {"batch": 1, "channels": 1, "filters": 1, "size": 4, "kernel": 3}
    assert INDICATORS["conv2d"].flops(one) == 2 * 16 * 9


def test_inputs_are_the_same_everywhere() -> None:
    assert random_bytes(1, 4) == random_bytes(1, 4)
    assert values(bytes([0, 255])) == [-1.0, 1.0]


def test_loops_are_calibrated_to_the_least_time() -> None:
    taken = timing.measure(lambda: time.sleep(0.0005), lambda _: None, 3, 0.01, 2.0)

    assert taken.loops >= 10
    assert len(taken.samples) == 3
    assert all(sample >= 0.0005 for sample in taken.samples)


def test_a_warm_up_that_never_settles_ends_and_says_so() -> None:
    delays = iter(range(10**6))

    taken = timing.measure(lambda: time.sleep(0.002 * (next(delays) % 3)), lambda _: None, 2, 0.0001, 0.1)

    assert not taken.steady
    assert taken.samples


def test_the_device_is_waited_for_on_both_sides() -> None:
    calls: list[str] = []

    timing.time_calls(lambda: calls.append("run"), lambda _: calls.append("wait"), 2)

    assert calls == ["wait", "run", "run", "wait"]


def test_the_archive_runs_alone_and_writes_a_line_an_indicator(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    (tmp_path / "request.json").write_text(json.dumps(request("matmul", "training_step")))
    command = [sys.executable, "-I", str(program), str(tmp_path / "request.json"), str(tmp_path / "out.jsonl")]

    subprocess.run(command, check=True, cwd=tmp_path)

    documents = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(d["indicator"], d["status"]) for d in documents] == [("matmul", "ok"), ("training_step", "unsupported")]
    assert len(documents[0]["samples"]) == 3
    assert documents[0]["environment"]["numpy"]


def test_a_framework_that_does_not_import_is_a_result(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    executor = LocalExecutor()

    end = executor.run(
        Job(
            python=Path(sys.executable),
            program=program,
            request=request("matmul", backend="tensorflow"),
            timeout_seconds=60,
        )
    )

    assert [r["status"] for r in end.results] == ["import-error"]
    assert "tensorflow" in end.results[0]["failure"]


def test_a_crash_keeps_what_was_reported_before_it(tmp_path: Path) -> None:
    end = LocalExecutor().run(
        job(
            tmp_path,
            'import sys, os\nopen(sys.argv[2], \'w\').write(\'{"indicator": "one"}\\n{"indic\')\n'
            "print('about to die', file=sys.stderr, flush=True)\nos.abort()",
        )
    )

    assert end.results == ({"indicator": "one"},)
    assert end.exit_status is not None
    assert end.exit_status < 0
    assert "about to die" in end.error_tail


def test_a_process_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    started = time.monotonic()

    end = LocalExecutor().run(
        job(
            tmp_path,
            "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "time.sleep(60)",
            timeout=1.0,
        )
    )

    assert end.exit_status is None
    assert time.monotonic() - started < 30


def test_the_environment_of_the_program_does_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "leak"))

    end = LocalExecutor().run(
        job(tmp_path, "import sys, json\nopen(sys.argv[2], 'w').write(json.dumps(sys.path) + '\\n')")
    )

    assert not any("leak" in entry for entry in end.results[0])


def test_an_unknown_backend_is_unsupported() -> None:
    from pi_runners.backends import make_backend

    with pytest.raises(Unsupported):
        make_backend("abacus", "cpu", "float32")
    with pytest.raises(Unsupported):
        Backend("cpu", "float32").matmul(b"", b"", 1, 1, 1)
