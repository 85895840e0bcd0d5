"""A user's program is profiled in its own environment, and a program that cannot be profiled gives an error.

The quick tests use a module in place of ONNX Runtime, which writes a recorded profile; the slow ones use the real
frameworks and the programs in `examples`.
"""

from __future__ import annotations

import gzip
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pi_runners.profile.run import ProfileError, ProfileRequest, ProgramProfile, profile_program
from pi_runners.profile.summary import workload_of
from tests.pi_runners.profile.programs import MODULE, PROGRAM, TRACES

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose program uses a module in place of ONNX Runtime."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "onnxruntime.py").write_text(MODULE)
    (folder / "profile.json").write_bytes(gzip.decompress((TRACES / "onnxruntime-cnn.json.gz").read_bytes()))
    (folder / "serve.py").write_text(PROGRAM)
    return folder


def profile(
    project: Path, *command: str, steps: int = 5, warm_up: int = 3, timeout: float = 60, output: Path | None = None
) -> ProgramProfile:
    """Profile a program with the interpreter of the tests."""
    with (output or project.parent / "output.txt").open("w") as file:
        return profile_program(
            ProfileRequest(
                command=(sys.executable, *command),
                directory=project,
                steps=steps,
                warm_up=warm_up,
                timeout_seconds=timeout,
                output=file,
            )
        )


def test_a_program_is_ended_after_its_steps(project: Path) -> None:
    result = profile(project, "serve.py", "1000000")

    assert result.summary.framework == "onnxruntime"
    assert result.summary.steps == 3
    assert result.warnings == ()
    assert result.versions["python"].startswith("3.")
    assert (project.parent / "output.txt").read_text() == ""
    assert sorted(path.name for path in project.iterdir()) == ["onnxruntime.py", "profile.json", "serve.py"]


def test_a_program_with_fewer_steps_is_profiled_with_a_warning(project: Path) -> None:
    result = profile(project, "serve.py", "5")

    assert result.warnings == ("2 steps were profiled instead of 5: the program made no more",)
    assert (project.parent / "output.txt").read_text() == "the last line\n"


def test_a_program_with_too_few_steps_is_an_error(project: Path) -> None:
    with pytest.raises(ProfileError, match="made 2 steps before it ended; at least 4 are needed"):
        profile(project, "serve.py", "2")


def test_a_program_that_fails_is_an_error_with_its_exit_code(project: Path) -> None:
    with pytest.raises(ProfileError, match="ended with exit code 1 before it was profiled"):
        profile(project, "serve.py")
    assert "IndexError" in (project.parent / "output.txt").read_text()
    with pytest.raises(ProfileError, match="exit code 2"):
        profile(project, "nothing.py")
    with pytest.raises(ProfileError, match="signal 9"):
        profile(project, "-c", "import os; os.kill(os.getpid(), 9)")


def test_a_program_that_does_not_exist_is_an_error(project: Path) -> None:
    request = ProfileRequest(command=("pyhton", "serve.py"), directory=project)

    with pytest.raises(ProfileError, match="there is no program `pyhton`") as caught:
        profile_program(request)

    assert caught.value.hint == "did you mean `python`?"


def test_a_program_without_a_framework_is_an_error(project: Path) -> None:
    with pytest.raises(ProfileError, match="no step of a framework was seen") as caught:
        profile(project, "-c", "print(1)")

    assert "advisor workload import" in caught.value.hint


def test_a_program_that_never_ends_is_interrupted(project: Path) -> None:
    start = time.monotonic()

    with pytest.raises(ProfileError, match="no step of a framework was seen in .* in 1 s"):
        profile(project, "-c", "while True: pass", timeout=1)

    assert time.monotonic() - start < 30


@pytest.mark.parametrize("action", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def test_the_steps_before_an_interruption_are_profiled(
    project: Path, monkeypatch: pytest.MonkeyPatch, action: signal.Handlers
) -> None:
    ready = project.parent / "ready"
    waits = f'import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600); print("the'
    (project / "slow.py").write_text(PROGRAM.replace('print("the', waits))
    # The time limit is over as soon as the program waits, however slow this machine is.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (1000 if ready.exists() else 0))
    monkeypatch.setattr("pi_runners.profile.run.time", clock)
    before = signal.signal(signal.SIGINT, action)

    try:
        result = profile(project, "slow.py", "6", timeout=600)
    finally:
        signal.signal(signal.SIGINT, before)

    assert result.warnings == (
        "the program was interrupted after 600 s",
        "3 steps were profiled instead of 5: the program made no more",
    )


def test_a_program_that_ignores_its_end_is_killed_with_its_children(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pi_runners.profile.run._GRACE_SECONDS", 0.5)
    (project / "stubborn.py").write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "try:\n    import serve\n"
        "except SystemExit:\n    child.wait()\n"
    )

    result = profile(project, "stubborn.py", "1000000")

    assert result.summary.steps == 3
    child = int((project.parent / "output.txt").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child still runs")


def test_forked_processes_are_not_profiled(project: Path) -> None:
    (project / "forking.py").write_text(
        "import os, sys, onnxruntime\nif os.fork() == 0:\n    import serve\n    os._exit(0)\nos.wait()\nimport serve\n"
    )

    result = profile(project, "forking.py", "100")

    assert result.warnings == ()
    assert (project.parent / "output.txt").read_text() == "the last line\n"


def test_the_environments_own_sitecustomize_runs_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "sitecustomize.py").write_text("import builtins\nbuiltins.from_the_environment = True\n")
    (project / "needs.py").write_text("assert from_the_environment\nimport serve\n")
    monkeypatch.setenv("PYTHONPATH", str(project))

    assert profile(project, "needs.py", "1000000").summary.steps == 3


def test_a_failure_of_the_profiler_does_not_change_the_program(project: Path) -> None:
    (project / "onnxruntime.py").write_text(MODULE.replace("PROFILE.read_bytes()", "PROFILE.nothing()"))

    with pytest.raises(ProfileError, match="the profiler failed in .*no attribute 'nothing'"):
        profile(project, "serve.py", "20")

    output = (project.parent / "output.txt").read_text()
    assert "advisor: the profiler failed" in output
    assert output.endswith("the last line\n")


REAL = [
    ("cnn-pytorch", "train.py", "torch", {"conv2d", "normalisation", "elementwise"}),
    ("keras-text", "train.py", "tensorflow", {"matmul", "softmax", "elementwise"}),
    ("onnx-service", "serve.py", "onnxruntime", {"conv2d"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("example", "program", "framework", "indicators"), REAL)
def test_the_examples_are_profiled(
    example: str, program: str, framework: str, indicators: set[str], tmp_path: Path
) -> None:
    pytest.importorskip(framework)

    result = profile(ROOT / "examples" / example, program, output=tmp_path / "output.txt", timeout=300)

    workload = workload_of(result.summary, name=example, source="test", versions=result.versions)
    assert result.warnings == ()
    assert (workload.framework, workload.steps) == (framework, 5)
    assert indicators <= {part.indicator for part in workload.parts}
    assert any(part.parameters for part in workload.parts)


PROGRAMS = {
    "torch": """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
        with torch.inference_mode():
            for _ in range(1000): model(torch.randn(16, 64))
    """,
    "tensorflow": """
        import tensorflow as tf
        weights = tf.Variable(tf.random.normal((256, 256)))
        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.matmul(x, weights) ** 2)
            weights.assign_sub(0.01 * tape.gradient(loss, weights))
        for _ in range(1000): step(tf.ones((128, 256)))
    """,
    "jax": f"import runpy; runpy.run_path({str(Path(__file__).with_name('jax_step.py'))!r}, run_name='__main__')",
}


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(PROGRAMS))
def test_steps_without_an_optimizer_or_keras_are_calls(framework: str, tmp_path: Path) -> None:
    import textwrap

    pytest.importorskip(framework)
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAMS[framework]))

    result = profile(tmp_path, "program.py", output=tmp_path / "output.txt", timeout=300)

    assert (result.summary.framework, result.summary.steps) == (framework, 5)
    assert any(claim.indicator == "matmul" for claim in result.summary.division.claims)
    assert os.environ.get("SESHAT_PROFILE_DIRECTORY") is None
