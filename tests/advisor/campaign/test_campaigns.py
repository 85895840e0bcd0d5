"""Whole campaigns on every engine, with failures while they run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells
from tests.advisor.campaign.plans import workers
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.slurm.cluster import Cluster


@pytest.fixture(params=["local", "slurm", "kubernetes"])
def engine(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options that select an engine."""
    if request.param == "slurm":
        request.getfixturevalue("slurm")
        return ("-e", "slurm", "--engine", f"scratch={request.getfixturevalue('tmp_path')}/scratch")
    if request.param == "kubernetes":
        cluster: KubernetesDouble = request.getfixturevalue("kubernetes")
        return ("-e", "kubernetes", "--engine", "image=here", "--engine", f"kubeconfig={cluster.kubeconfig()}")
    return ()


LOCAL_FIRST = pytest.mark.parametrize(
    "engine",
    ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("slurm", "kubernetes"))],
    indirect=True,
)
"""Marks slow repetitions: the conformance suite tests these cases on the executor of every engine."""


@LOCAL_FIRST
def test_a_campaign_gives_the_same_result_on_every_engine(bench: Bench, engine: tuple[str, ...]) -> None:
    bench.matrix(REFUSES, REFUSES)

    result = bench.campaign(*engine)
    again = bench.campaign(*engine)

    assert result.returncode == again.returncode == 0, result.stdout + result.stderr
    assert bench.cells == all_cells(2, 3)
    assert {o.status for o in bench.observations} == {"import-error"}
    status = bench.status()
    assert status["state"] == "complete"
    assert status["cells"] == {"queued": 0, "running": 0, "done": 0, "failed": 6, "not run": 0}
    assert {row["stack"]: row["failed"] for row in status["stacks"]} == {"numpy==2.1.0": 4, "numpy==2.0.0": 2}
    assert sum(row["failed"] for row in status["nodes"]) == 6
    assert "round" not in again.stderr.replace("rounds", "")


@pytest.mark.slow
@LOCAL_FIRST
def test_no_result_is_lost_if_a_worker_is_killed(bench: Bench, engine: tuple[str, ...]) -> None:
    bench.matrix(bench.waiting_code, REFUSES)
    process = bench.start(*engine)

    bench.wait(lambda: bench.has_started and bool(workers(bench)))
    for worker in (victims := workers(bench)):
        # A worker that is the parent of another one ends with it.
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    bench.release()

    assert victims
    assert process.wait(300) == 0
    assert bench.cells == all_cells(2, 3)


@pytest.mark.slow
@LOCAL_FIRST
def test_no_result_is_lost_if_the_coordinator_is_killed(bench: Bench, engine: tuple[str, ...]) -> None:
    bench.matrix(bench.waiting_code, REFUSES)
    process = bench.start(*engine)

    bench.wait(lambda: any(bench.folder.glob("campaigns/*/batches/001/handle")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    bench.release()
    result = bench.campaign(*engine)

    assert result.returncode == 0, result.stderr
    assert bench.cells == all_cells(2, 3)
    assert len(list(bench.directory.glob("batches/*"))) == 1


@LOCAL_FIRST
def test_a_cancelled_campaign_keeps_its_results_and_can_continue(bench: Bench, engine: tuple[str, ...]) -> None:
    bench.matrix(bench.waiting_code, rounds=3)
    process = bench.start(*engine)
    bench.wait(lambda: bench.has_started)

    result = bench.run("pi", "cancel")

    assert result.returncode == 0, result.stderr
    assert process.wait(300) == 4
    assert bench.status()["state"] == "cancelled"
    assert not workers(bench)
    bench.release()
    assert bench.campaign(*engine).returncode == 0
    assert bench.cells == all_cells(3, 2)


@LOCAL_FIRST
def test_a_detached_campaign_is_collected_later(bench: Bench, engine: tuple[str, ...]) -> None:
    bench.matrix(REFUSES)

    submitted = bench.campaign(*engine, "--detach")
    bench.wait(lambda: all(t["state"] in ("done", "failed", "lost") for t in bench.status()["tasks"]), every=0.5)
    collected = bench.run("pi", "collect")

    assert submitted.returncode == collected.returncode == 0, submitted.stderr + collected.stderr
    assert bench.cells == all_cells(2, 2)
    assert bench.status()["state"] == "complete"


def test_a_stack_that_kills_its_worker_is_given_up_and_the_others_are_measured(bench: Bench) -> None:
    bench.matrix("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", REFUSES, rounds=1)

    result = bench.campaign()

    assert result.returncode == 0, result.stderr
    status = {o.arm: (o.status, o.failure) for o in bench.observations}
    assert [status for _, (status, _) in sorted(status.items())] == ["import-error", "crashed", "import-error"]
    assert "its worker was killed 2 times while it ran" in status[1][1]


def test_a_second_coordinator_of_a_campaign_is_refused(bench: Bench) -> None:
    bench.matrix(bench.waiting_code)
    process = bench.start()
    bench.wait(lambda: any(bench.folder.glob("campaigns/*/batches/001/handle")))

    refused = bench.campaign()
    bench.release()

    assert refused.returncode == 2
    assert "another process coordinates the campaign" in refused.stderr
    assert process.wait(120) == 0


def test_an_interrupted_local_campaign_leaves_no_process(bench: Bench) -> None:
    bench.matrix(f"import time; time.sleep(600); {REFUSES}")
    process = bench.start()
    bench.wait(lambda: bench.has_started)

    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 130
    assert not workers(bench)
    # A stack is not given up because its worker was ended on purpose.
    (task,) = [json.loads(path.read_text()) for path in bench.folder.rglob("tasks/*.json")]
    assert task["begun"] == 0


def test_a_campaign_whose_processes_were_all_killed_does_not_run(bench: Bench) -> None:
    bench.matrix(bench.waiting_code)
    process = bench.start()
    bench.wait(lambda: bench.has_started)
    running = bench.run("pi", "status")

    tree = psutil.Process(process.pid)
    for victim in (tree, *tree.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    process.wait()
    bench.wait(lambda: not workers(bench))
    listed = bench.run("pi", "status")
    status = bench.status()

    assert ": running, " in running.stdout
    assert ": incomplete, " in listed.stdout
    assert status["state"] == "incomplete"
    assert status["cells"]["running"] == 0
    assert "lost: its supervisor has ended without reporting a result" in status["remarks"][0]


@pytest.mark.slow
def test_a_task_without_new_results_is_given_up_and_retried_on_request(bench: Bench, tmp_path: Path) -> None:
    bench.matrix(REFUSES)
    offline = {"UV_CACHE_DIR": str(tmp_path / "uv"), "UV_OFFLINE": "1"}

    failed = bench.campaign("--attempts", "2", **offline)
    idle = bench.run("pi", "retry", "--attempts", "2", **offline)
    retried = bench.run("pi", "retry", "--failed")

    assert (failed.returncode, idle.returncode, retried.returncode) == (4, 4, 0), retried.stderr
    reason = "given up after 2 attempts without a new result: exit status 4: uv could not download the wheels"
    assert reason in failed.stdout
    assert len(list(bench.directory.glob("batches/*"))) == 3
    assert bench.cells == all_cells(2, 2)


def test_campaigns_are_selected_by_a_prefix_of_their_name(bench: Bench) -> None:
    bench.matrix(REFUSES, rounds=1)
    none = bench.run("pi", "status")
    bench.campaign()
    bench.campaign("--repetition", "2")

    listed = bench.run("pi", "status")
    ambiguous = bench.run("pi", "status", "small")
    unknown = bench.run("pi", "cancel", "large")
    one = bench.run("pi", "status", listed.stdout.split(":")[0])

    assert "there are no campaigns" in none.stdout
    assert listed.stdout.count("complete, 2 of 2 measured") == 2
    assert ambiguous.returncode == unknown.returncode == 2
    assert "`small` matches small-" in ambiguous.stderr
    assert "there is no campaign `large`" in unknown.stderr
    assert "numpy==2.0.0" in one.stdout


def test_results_planned_for_other_hardware_are_counted(bench: Bench) -> None:
    bench.matrix(REFUSES, rounds=1)
    first = bench.campaign("--hardware", "cpu-zen4")
    shutil.rmtree(bench.folder / "campaigns")

    again = bench.campaign("--hardware", "cpu-zen4")

    assert first.returncode == again.returncode == 0, again.stderr
    assert bench.cells == all_cells(1, 2)
    assert list(bench.directory.glob("batches/*")) == []


def test_another_matrix_in_a_campaigns_directory_is_refused(bench: Bench) -> None:
    bench.matrix(REFUSES, rounds=1)
    assert bench.campaign("--home", "here").returncode == 0
    bench.matrix(REFUSES, rounds=2)

    refused = bench.campaign("--home", "here")

    assert refused.returncode == 2
    assert "holds the campaign" in refused.stderr


@pytest.mark.slow
def test_the_task_of_a_lost_kubernetes_node_runs_again(bench: Bench, kubernetes: KubernetesDouble) -> None:
    bench.matrix(bench.waiting_code, rounds=2)
    process = bench.start(
        "-e", "kubernetes", "--engine", "image=x", "--engine", f"kubeconfig={kubernetes.kubeconfig()}"
    )
    bench.wait(lambda: bench.has_started and bool(workers(bench)))

    kubernetes.lose_node("node-a")
    bench.release()

    assert process.wait(120) == 0
    assert bench.cells == all_cells(2, 2)
    assert len(list(bench.directory.glob("batches/*"))) == 1


def test_results_are_collected_from_saved_output(bench: Bench, kubernetes: KubernetesDouble, tmp_path: Path) -> None:
    bench.matrix(REFUSES)
    options = ("-e", "kubernetes", "--engine", "image=x")
    rendered = bench.campaign(*options, "--render", "its manifests")
    plan = bench.directory / "campaign.json.gz"
    log = tmp_path / "output.log"
    with log.open("w") as file:
        for task in (0, 1):
            command = bench.command(
                "pi", "work", str(tmp_path / f"pod{task}"), str(task), "--plan", str(plan), "--print"
            )
            result = bench.run(*command[3:])
            file.write("noise\n" + result.stdout + result.stdout)

    collected = bench.run("pi", "collect", "--logs", str(log))

    assert rendered.returncode == 0, rendered.stderr
    assert "kubectl apply -k 'its manifests'\n" in rendered.stdout
    assert collected.returncode == 0, collected.stderr
    assert bench.cells == all_cells(2, 2)


def test_workers_push_results_to_a_service(bench: Bench, kubernetes: KubernetesDouble) -> None:
    from knowledge.store.engine import open_knowledge_base
    from tests.knowledge.service.conftest import serving

    bench.matrix(REFUSES)
    with open_knowledge_base(str(bench.folder / "shared.sqlite"), shipped=False) as store:
        kubernetes.secrets["push-token"] = store.create_token(role="runner", source="cluster-a")[0]
        with serving(store) as address:
            options = ("image=x", f"kubeconfig={kubernetes.kubeconfig()}", f"push={address}", "token-secret=push-token")
            result = bench.campaign("-e", "kubernetes", *(word for o in options for word in ("--engine", o)))
        shared = sorted((o.round, o.arm) for o in store.observations())
        sources = {block.source for block in store.blocks()}

    assert result.returncode == 0, result.stderr + result.stdout
    assert shared == bench.cells == all_cells(2, 2)
    assert sources == {"cluster-a"}


def test_status_watch_ends_with_the_campaign(bench: Bench) -> None:
    bench.matrix(bench.waiting_code, rounds=1)
    bench.campaign("--detach")

    with bench.watch("pi", "status", "small", "--watch", "--format", "json") as watched:
        assert watched.stdout is not None
        first = json.loads(watched.stdout.readline())
        bench.release()
        *_, last = map(json.loads, watched.stdout)

    assert first["state"] == "running"
    assert last["cells"]["failed"] == 2
    assert os.path.exists(bench.directory / "kept")


@pytest.mark.slow
def test_slurm_options_are_submitted_and_nodes_are_reported(bench: Bench, slurm: Cluster) -> None:
    bench.matrix(REFUSES, rounds=4)

    result = bench.campaign("-e", "slurm", "--engine", "exclusive=true", "--engine", "at-most=2")

    assert result.returncode == 0, result.stderr
    status = bench.status()
    assert {row["node"] for row in status["nodes"]} == {"n1", "n2"}
    options = json.loads((bench.directory / "batches/001/engine/sbatch.json").read_text())
    assert {"--exclusive", "--array=0,1,2,3%2", "--requeue"} <= set(options)
