"""The contract of executors, checked on each of them."""

from __future__ import annotations

import contextlib
import copy
import errno
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pi_runners.executors.base import Batch, Executor, RefusedError
from pi_runners.executors.kubernetes import KubernetesExecutor
from pi_runners.executors.local import LocalExecutor
from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.pi_runners.executors.engines import on_kubernetes, wait, wait_until_final
from tests.slurm.cluster import Cluster

MakeBatch = Callable[..., Batch]


@pytest.fixture
def make_batch(tmp_path: Path) -> MakeBatch:
    """Return a function that makes a batch, which runs a line of Python for each task; ``task`` is its number."""

    def make(code: str, tasks: tuple[int, ...] = (0,)) -> Batch:
        name = f"test-{uuid.uuid4().hex[:12]}"
        return Batch(
            name=name,
            command=(sys.executable, "-c", f"import os, sys, time; task = int(sys.argv[1]); {code}", "{task}"),
            tasks=tasks,
            folder=tmp_path / name,
            home=tmp_path,
        )

    return make


def test_tasks_that_succeed_are_done_and_their_output_is_stored(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("print('task', task)", (3, 7))
    handle = executor.submit(batch)

    statuses = wait_until_final(executor, batch, handle)

    assert {task: status.state for task, status in statuses.items()} == {3: "done", 7: "done"}
    assert all(status.node for status in statuses.values())
    assert [executor.output(batch, handle, task).split() for task in (3, 7)] == [["task", "3"], ["task", "7"]]


def test_special_characters_of_a_command_are_passed_unchanged(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("print('''$HOME `id` \"q\" \\\\ {x}''')")
    handle = executor.submit(batch)

    wait_until_final(executor, batch, handle)

    assert executor.output(batch, handle, 0).strip() == '$HOME `id` "q" \\ {x}'


def test_a_crashed_task_is_failed_with_a_reason_and_other_tasks_are_unaffected(
    executor: Executor, make_batch: MakeBatch
) -> None:
    batch = make_batch("task == 1 and sys.exit(3)", (0, 1, 2))
    handle = executor.submit(batch)

    statuses = wait_until_final(executor, batch, handle)

    assert [statuses[task].state for task in (0, 1, 2)] == ["done", "failed", "done"]
    assert statuses[1].reason


def test_a_killed_task_is_failed(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("os.kill(os.getpid(), 9)")

    statuses = wait_until_final(executor, batch, executor.submit(batch))

    assert statuses[0].state == "failed"


class HastyKubernetes(KubernetesExecutor):
    """Kubernetes with a time limit of one second, which its options cannot state."""

    def manifests(self, batch: Batch) -> list[dict[str, Any]]:
        config, job = super().manifests(batch)
        job["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 1
        return [config, job]


def test_a_task_over_its_time_limit_is_ended(make_batch: MakeBatch, kubernetes: KubernetesDouble) -> None:
    _check_time_limit(HastyKubernetes(on_kubernetes(kubernetes).options), make_batch)


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_a_task_over_its_memory_limit_is_ended(
    engine: str, make_batch: MakeBatch, request: pytest.FixtureRequest
) -> None:
    cluster = request.getfixturevalue(engine)
    limited = SlurmExecutor(SlurmOptions(exclusive=False, memory="150M"))
    executor = limited if engine == "slurm" else on_kubernetes(cluster, memory="150M")
    batch = make_batch("buffer = b'x' * 300_000_000; time.sleep(60)")

    statuses = wait_until_final(executor, batch, executor.submit(batch))

    assert (statuses[0].state, "memory" in statuses[0].reason or "bytes" in statuses[0].reason) == (
        "out-of-memory",
        True,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_a_task_over_its_time_limit_is_ended_by_slurm(make_batch: MakeBatch) -> None:
    # Slurm checks time limits every 30 seconds.
    _check_time_limit(SlurmExecutor(SlurmOptions(minutes=1)), make_batch)


def _check_time_limit(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("time.sleep(600)")
    statuses = wait_until_final(executor, batch, executor.submit(batch), seconds=180)
    assert statuses[0].state == "timed-out"


def test_cancelling_a_batch_ends_its_tasks_and_keeps_finished_ones(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("task == 0 or time.sleep(600)", (0, 1, 2, 3))
    handle = executor.submit(batch)
    wait(executor, batch, handle, lambda s: s.final if s.task == 0 else s.task > 1 or s.state == "running")

    executor.cancel(batch, handle)
    executor.cancel(batch, handle)
    statuses = wait_until_final(executor, batch, handle)

    assert [statuses[task].state for task in (0, 1, 2, 3)] == ["done", "cancelled", "cancelled", "cancelled"]


def test_a_batch_that_is_submitted_again_runs_once(executor: Executor, make_batch: MakeBatch, tmp_path: Path) -> None:
    batch = make_batch(f"open(r'{tmp_path}/ran', 'a').write('x'); time.sleep(1)")

    first = executor.submit(batch)
    second = executor.submit(batch)
    wait_until_final(executor, batch, first)
    third = executor.submit(batch)

    assert first == second == third
    time.sleep(1)
    assert (tmp_path / "ran").read_text() == "x"


def test_another_executor_can_poll_a_submitted_batch(executor: Executor, make_batch: MakeBatch) -> None:
    batch = make_batch("time.sleep(1)", (0, 1))
    handle = executor.submit(batch)

    another = copy.copy(executor)
    statuses = wait_until_final(another, batch, handle)

    assert [status.state for status in statuses.values()] == ["done", "done"]
    assert wait_until_final(another, batch, handle) == statuses


def _processes_of(batch: Batch) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if str(batch.folder) in " ".join(process.cmdline()):
                yield process
        except psutil.Error:
            continue


def test_tasks_of_a_machine_that_goes_down_are_lost(make_batch: MakeBatch) -> None:
    executor = LocalExecutor()
    batch = make_batch("task == 0 or time.sleep(600)", (0, 1, 2))
    handle = executor.submit(batch)
    wait(executor, batch, handle, lambda s: s.final if s.task == 0 else s.task == 2 or s.state == "running")

    # Stopped first: no supervisor may see the end of its task.
    processes = list(_processes_of(batch))
    members = [*processes, *(child for process in processes for child in process.children(recursive=True))]
    for signal_number in (signal.SIGSTOP, signal.SIGKILL):
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(signal_number)
    statuses = wait_until_final(executor, batch, handle)

    assert [statuses[task].state for task in (0, 1, 2)] == ["done", "lost", "lost"]


def test_a_running_task_without_a_supervisor_is_not_lost_until_it_ends(make_batch: MakeBatch, tmp_path: Path) -> None:
    executor = LocalExecutor()
    batch = make_batch(f"time.sleep(3); open(r'{tmp_path}/ended', 'w').close()")
    handle = executor.submit(batch)
    wait(executor, batch, handle, lambda s: s.state == "running")

    for process in _processes_of(batch):
        process.send_signal(signal.SIGKILL)
    time.sleep(0.3)
    before = executor.poll(batch, handle)
    statuses = wait_until_final(executor, batch, handle)

    assert before[0].state == "running"
    assert statuses[0].state == "lost"
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
def test_the_task_of_a_failed_node_runs_again(slurm: Cluster, make_batch: MakeBatch, tmp_path: Path) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    batch = make_batch(f"f = open(r'{tmp_path}/ran', 'a'); f.write('x'); f.close(); time.sleep(3)")
    handle = executor.submit(batch)
    (running,) = wait(executor, batch, handle, lambda s: s.state == "running")
    while not (tmp_path / "ran").exists():
        time.sleep(0.1)

    slurm.kill_node(running.node)
    slurm.start_node(running.node)
    statuses = wait_until_final(executor, batch, handle)

    assert statuses[0].state == "done"
    assert (tmp_path / "ran").read_text() == "xx"


def test_the_task_of_a_lost_kubernetes_node_runs_again(
    kubernetes: KubernetesDouble, make_batch: MakeBatch, tmp_path: Path
) -> None:
    executor = on_kubernetes(kubernetes)
    ran = tmp_path / "ran"
    batch = make_batch(
        f"f = open(r'{ran}', 'a'); f.write('x'); f.close(); time.sleep(60 if os.path.getsize(r'{ran}') == 1 else 0)"
    )
    handle = executor.submit(batch)
    while not (ran.exists() and ran.read_text()):
        time.sleep(0.05)

    kubernetes.lose_node("node-a")
    statuses = wait_until_final(executor, batch, handle)

    assert statuses[0].state == "done"
    assert ran.read_text() == "xx"


def test_the_states_of_a_job_that_slurm_no_longer_lists_are_read_from_the_folder_of_the_batch(
    slurm: Cluster, make_batch: MakeBatch
) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    batch = make_batch("sys.exit(task)", (0, 1))
    wait_until_final(executor, batch, executor.submit(batch))

    statuses = executor.poll(batch, "4000000")

    assert [(s.state, s.node != "") for s in statuses] == [("done", True), ("failed", True)]


# A node ends jobs that its controller does not know; the script of the job may still write that it was killed.
ENDED_BY_NODE = ("lost", "failed")


def _wait_for_file(tmp_path: Path) -> str:
    """Return the code of a task that writes to `starts` and runs until the file `end` exists."""
    starts, end = tmp_path / "starts", tmp_path / "end"
    return f"f = open(r'{starts}', 'a'); f.write('x'); f.close()\nwhile not os.path.exists(r'{end}'): time.sleep(0.1)"


@pytest.mark.slow
def test_a_restarted_controller_continues_the_jobs_that_it_had_saved(
    slurm: Cluster, make_batch: MakeBatch, tmp_path: Path
) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    batch = make_batch(_wait_for_file(tmp_path))
    handle = executor.submit(batch)
    wait(executor, batch, handle, lambda s: s.state == "running")
    slurm.wait_until_saved(handle)

    slurm.kill_controller()
    slurm.start_controller()
    (status,) = executor.poll(batch, handle)
    resubmitted = executor.submit(batch)
    (tmp_path / "end").touch()
    statuses = wait_until_final(executor, batch, handle)

    assert status.state == "running"
    assert resubmitted == handle
    assert statuses[0].state == "done"
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.slow
def test_a_job_that_a_killed_controller_had_not_saved_is_not_done(
    slurm: Cluster, make_batch: MakeBatch, tmp_path: Path
) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    batch = make_batch(_wait_for_file(tmp_path))
    handle = executor.submit(batch)
    wait(executor, batch, handle, lambda s: s.state == "running")

    slurm.kill_controller()
    slurm.forget_jobs()
    slurm.start_controller()
    statuses = wait_until_final(executor, batch, handle)

    assert statuses[0].state in ENDED_BY_NODE
    assert executor.find(batch) is None


@pytest.mark.slow
def test_a_job_of_another_batch_with_the_same_number_is_not_cancelled(slurm: Cluster, make_batch: MakeBatch) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    lost, other = make_batch("time.sleep(600)"), make_batch("time.sleep(600)")
    first = executor.submit(lost)
    wait(executor, lost, first, lambda s: s.state == "running")
    slurm.kill_controller()
    slurm.forget_jobs()
    slurm.start_controller()
    # A controller without saved jobs numbers them from one again.
    numbers = [executor.submit(other)]
    while int(numbers[-1]) < int(first):
        numbers.append(executor.submit(other := make_batch("time.sleep(600)")))

    (status,) = executor.poll(lost, first)
    executor.cancel(lost, first)
    (untouched,) = executor.poll(other, numbers[-1])
    executor.cancel(other, numbers[-1])

    assert numbers[-1] == first
    assert status.state in ENDED_BY_NODE
    assert untouched.state in ("queued", "running")


def test_a_full_disk_on_this_machine_is_a_rejection(make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", no_space)

    with pytest.raises(RefusedError, match="No space left on device"):
        LocalExecutor().submit(make_batch("pass"))
