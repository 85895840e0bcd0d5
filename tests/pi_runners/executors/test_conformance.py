"""The contract of executors, on every one of them."""

from __future__ import annotations

import copy
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pi_runners.executors.base import Batch, Executor, TaskStatus
from pi_runners.executors.kubernetes import KubernetesExecutor
from pi_runners.executors.local import LocalExecutor
from pi_runners.executors.manifests import KubernetesOptions
from pi_runners.executors.slurm import SlurmExecutor, SlurmOptions
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.slurm.cluster import Cluster

MakeBatch = Callable[..., Batch]


@pytest.fixture(params=["local", "slurm", "kubernetes"])
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "local":
        return LocalExecutor()
    if request.param == "slurm":
        request.getfixturevalue("slurm")
        return SlurmExecutor(SlurmOptions(exclusive=False))
    return on_kubernetes(request.getfixturevalue("kubernetes"))


def on_kubernetes(cluster: KubernetesDouble) -> KubernetesExecutor:
    return KubernetesExecutor(KubernetesOptions(image="here", kubeconfig=str(cluster.kubeconfig()), retries=0))


@pytest.fixture
def batch(tmp_path: Path) -> MakeBatch:
    """Make a batch that runs a line of Python for each task, in which ``task`` is its number."""

    def make(
        code: str, tasks: tuple[int, ...] = (0,), *, seconds: float | None = None, memory_bytes: float | None = None
    ) -> Batch:
        name = f"test-{uuid.uuid4().hex[:12]}"
        return Batch(
            name=name,
            command=(sys.executable, "-c", f"import os, sys, time; task = int(sys.argv[1]); {code}", "{task}"),
            tasks=tasks,
            folder=tmp_path / name,
            home=tmp_path,
            seconds=seconds,
            memory_bytes=memory_bytes,
        )

    return make


def wait(
    executor: Executor, batch: Batch, handle: str, until: Callable[[TaskStatus], bool], seconds: float = 90
) -> tuple[TaskStatus, ...]:
    deadline = time.monotonic() + seconds
    statuses = executor.poll(batch, handle)
    while not all(map(until, statuses)):
        assert time.monotonic() < deadline, statuses
        time.sleep(0.1)
        statuses = executor.poll(batch, handle)
    return statuses


def finished(executor: Executor, batch: Batch, handle: str, seconds: float = 90) -> dict[int, TaskStatus]:
    return {status.task: status for status in wait(executor, batch, handle, lambda s: s.final, seconds)}


def test_successful_tasks_are_done_and_their_output_is_stored(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("print('task', task)", (3, 7))
    handle = executor.submit(task_batch)

    statuses = finished(executor, task_batch, handle)

    assert {task: status.state for task, status in statuses.items()} == {3: "done", 7: "done"}
    assert all(status.node for status in statuses.values())
    assert [executor.output(task_batch, handle, task).split() for task in (3, 7)] == [["task", "3"], ["task", "7"]]


def test_a_command_reaches_the_task_unchanged(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("print('''$HOME `id` \"q\" \\\\ {x}''')")
    handle = executor.submit(task_batch)

    finished(executor, task_batch, handle)

    assert executor.output(task_batch, handle, 0).strip() == '$HOME `id` "q" \\ {x}'


def test_a_crashed_task_fails_with_a_reason_and_other_tasks_succeed(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("task == 1 and sys.exit(3)", (0, 1, 2))
    handle = executor.submit(task_batch)

    statuses = finished(executor, task_batch, handle)

    assert [statuses[task].state for task in (0, 1, 2)] == ["done", "failed", "done"]
    assert statuses[1].reason


def test_a_killed_task_fails(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("os.kill(os.getpid(), 9)")

    statuses = finished(executor, task_batch, executor.submit(task_batch))

    assert statuses[0].state == "failed"


def test_a_task_that_exceeds_its_time_is_terminated(batch: MakeBatch, kubernetes: KubernetesDouble) -> None:
    _beyond_its_time(LocalExecutor(), batch)
    _beyond_its_time(on_kubernetes(kubernetes), batch)


def test_a_task_that_exceeds_its_memory_is_terminated(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("held = b'x' * 300_000_000; time.sleep(60)", memory_bytes=150e6)

    statuses = finished(executor, task_batch, executor.submit(task_batch))

    assert statuses[0].state == "out-of-memory"
    assert "memory" in statuses[0].reason or "bytes" in statuses[0].reason


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_a_task_that_exceeds_its_time_is_terminated_by_slurm(batch: MakeBatch) -> None:
    # Slurm counts whole minutes, and looks twice a minute.
    _beyond_its_time(SlurmExecutor(), batch)


def _beyond_its_time(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("time.sleep(600)", seconds=1)
    statuses = finished(executor, task_batch, executor.submit(task_batch), seconds=180)
    assert statuses[0].state == "timed-out"


def test_running_tasks_are_cancelled_and_finished_tasks_keep_their_state(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("task == 0 or time.sleep(600)", (0, 1, 2, 3))
    handle = executor.submit(task_batch)
    wait(executor, task_batch, handle, lambda s: s.final if s.task == 0 else s.task > 1 or s.state == "running")

    executor.cancel(task_batch, handle)
    executor.cancel(task_batch, handle)
    statuses = finished(executor, task_batch, handle)

    assert [statuses[task].state for task in (0, 1, 2, 3)] == ["done", "cancelled", "cancelled", "cancelled"]


def test_submitting_twice_runs_once(executor: Executor, batch: MakeBatch, tmp_path: Path) -> None:
    task_batch = batch(f"open(r'{tmp_path}/ran', 'a').write('x'); time.sleep(1)")

    first = executor.submit(task_batch)
    again = executor.submit(task_batch)
    finished(executor, task_batch, first)
    at_last = executor.submit(task_batch)

    assert first == again == at_last
    time.sleep(1)
    assert (tmp_path / "ran").read_text() == "x"


def test_another_process_can_monitor_a_submitted_batch(executor: Executor, batch: MakeBatch) -> None:
    task_batch = batch("time.sleep(1)", (0, 1))
    handle = executor.submit(task_batch)

    another = copy.copy(executor)
    statuses = finished(another, task_batch, handle)

    assert [status.state for status in statuses.values()] == ["done", "done"]
    assert finished(another, task_batch, handle) == statuses


def _processes_of(batch: Batch) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if str(batch.folder) in " ".join(process.cmdline()):
                yield process
        except psutil.Error:
            continue


def test_the_tasks_of_a_machine_that_stops_are_lost(batch: MakeBatch) -> None:
    executor = LocalExecutor()
    task_batch = batch("task == 0 or time.sleep(600)", (0, 1, 2))
    handle = executor.submit(task_batch)
    wait(executor, task_batch, handle, lambda s: s.final if s.task == 0 else s.task == 2 or s.state == "running")

    for process in list(_processes_of(task_batch)):
        for victim in (*process.children(recursive=True), process):
            victim.send_signal(signal.SIGKILL)
    statuses = finished(executor, task_batch, handle)

    assert [statuses[task].state for task in (0, 1, 2)] == ["done", "lost", "lost"]


def test_a_task_whose_supervisor_died_is_running_until_it_ends(batch: MakeBatch, tmp_path: Path) -> None:
    executor = LocalExecutor()
    task_batch = batch(f"time.sleep(3); open(r'{tmp_path}/ended', 'w').close()")
    handle = executor.submit(task_batch)
    wait(executor, task_batch, handle, lambda s: s.state == "running")

    for process in _processes_of(task_batch):
        process.send_signal(signal.SIGKILL)
    time.sleep(0.3)
    then = executor.poll(task_batch, handle)
    statuses = finished(executor, task_batch, handle)

    assert then[0].state == "running"
    assert statuses[0].state == "lost"
    assert (tmp_path / "ended").exists()


def test_the_task_of_a_lost_node_runs_again(slurm: Cluster, batch: MakeBatch, tmp_path: Path) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    task_batch = batch(f"f = open(r'{tmp_path}/ran', 'a'); f.write('x'); f.close(); time.sleep(3)")
    handle = executor.submit(task_batch)
    (running,) = wait(executor, task_batch, handle, lambda s: s.state == "running")
    while not (tmp_path / "ran").exists():
        time.sleep(0.1)

    slurm.kill_node(running.node)
    slurm.start_node(running.node)
    statuses = finished(executor, task_batch, handle)

    assert statuses[0].state == "done"
    assert (tmp_path / "ran").read_text() == "xx"


def test_states_that_the_cluster_no_longer_has_are_read_from_files_of_tasks(slurm: Cluster, batch: MakeBatch) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    task_batch = batch("sys.exit(task)", (0, 1))
    finished(executor, task_batch, executor.submit(task_batch))

    statuses = executor.poll(task_batch, "4000000")

    assert [(s.state, s.node != "") for s in statuses] == [("done", True), ("failed", True)]


# A node ends what its controller does not know; the script of the job may still note that it was killed.
ENDED_BY_ITS_NODE = ("lost", "failed")


def _until_allowed(tmp_path: Path) -> str:
    """Return code of a task that notes its start, and waits for a file before it ends."""
    started, allowed = tmp_path / "started", tmp_path / "allowed"
    return (
        f"f = open(r'{started}', 'a'); f.write('x'); f.close()\nwhile not os.path.exists(r'{allowed}'): time.sleep(0.1)"
    )


def test_a_restarted_controller_knows_the_jobs_that_it_had_saved(
    slurm: Cluster, batch: MakeBatch, tmp_path: Path
) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    task_batch = batch(_until_allowed(tmp_path))
    handle = executor.submit(task_batch)
    wait(executor, task_batch, handle, lambda s: s.state == "running")
    slurm.wait_until_saved(handle)

    slurm.kill_controller()
    slurm.start_controller()
    (then,) = executor.poll(task_batch, handle)
    again = executor.submit(task_batch)
    (tmp_path / "allowed").touch()
    statuses = finished(executor, task_batch, handle)

    assert then.state == "running"
    assert again == handle
    assert statuses[0].state == "done"
    assert (tmp_path / "started").read_text() == "x"


def test_a_job_that_a_killed_controller_had_not_saved_does_not_count_as_done(
    slurm: Cluster, batch: MakeBatch, tmp_path: Path
) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    task_batch = batch(_until_allowed(tmp_path))
    handle = executor.submit(task_batch)
    wait(executor, task_batch, handle, lambda s: s.state == "running")

    slurm.kill_controller()
    slurm.forget_jobs()
    slurm.start_controller()
    statuses = finished(executor, task_batch, handle)

    assert statuses[0].state in ENDED_BY_ITS_NODE
    assert executor.find(task_batch) is None


def test_a_job_of_another_batch_with_the_same_number_is_not_changed(slurm: Cluster, batch: MakeBatch) -> None:
    executor = SlurmExecutor(SlurmOptions(exclusive=False))
    lost, other = batch("time.sleep(600)"), batch("time.sleep(600)")
    first = executor.submit(lost)
    wait(executor, lost, first, lambda s: s.state == "running")
    slurm.kill_controller()
    slurm.forget_jobs()
    slurm.start_controller()
    # A controller that has forgotten its jobs counts from one again.
    numbers = [executor.submit(other)]
    while int(numbers[-1]) < int(first):
        numbers.append(executor.submit(other := batch("time.sleep(600)")))

    (status,) = executor.poll(lost, first)
    executor.cancel(lost, first)
    (untouched,) = executor.poll(other, numbers[-1])
    executor.cancel(other, numbers[-1])

    assert numbers[-1] == first
    assert status.state in ENDED_BY_ITS_NODE
    assert untouched.state in ("queued", "running")
