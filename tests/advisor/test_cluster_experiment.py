"""`advisor advise --measure` on clusters: a real Slurm, and the double of the API of Kubernetes."""

from __future__ import annotations

import json
import platform
import re
import secrets
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.api.measurements.experiment import open_experiment
from advisor.api.measurements.options import ExperimentOptions
from advisor.api.options import IndexOptions, ProjectOptions, ResolutionOptions
from advisor.campaign.directory import Cell
from advisor.project.workload.file import write_workload
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from knowledge.exchange.files import observation_file
from knowledge.store.engine import open_knowledge_base
from tests.advisor.measured_project import NOISE, PROGRAM, error_of, make_project
from tests.conftest import Advisor
from tests.knowledge.samples import MACHINE, observation
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.package_index import PackageIndex
from tests.processes import start
from tests.slurm.cluster import Cluster

LINKED = PROGRAM + "assert open('link.txt').read() == 'in the data'\n"
# A round on the third pod of a batch kills its worker, as a lost node does.
LOSS = """
import os, signal
if os.environ.get("JOB_COMPLETION_INDEX") == "2":
    os.kill(int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1]), signal.SIGKILL)
"""
# The older release waits for a file.
WAITING = """
import importlib.metadata, os, time
while importlib.metadata.version("lib") == "1.0" and not os.path.exists({!r}):
    time.sleep(0.05)
"""
NUMPY_PROJECT = """
[project]
name = "demo"
version = "1"
dependencies = ["numpy~=2.2.5"]
"""


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A project with two releases of a package, of which the older one is faster."""
    index.add("lib", "1.0", code=NOISE.format(1.0 / 1.15))
    index.add("lib", "1.1", code=NOISE.format(1.0))
    folder = make_project(tmp_path / "project", program=LINKED)
    (folder / "data").mkdir()
    (folder / "data" / "numbers.txt").write_text("in the data")
    (folder / "link.txt").symlink_to("data/numbers.txt")
    return folder


def options(cluster: KubernetesDouble | Cluster, index: PackageIndex, *engine: str) -> tuple[str, ...]:
    """Return the options of an experiment on a cluster."""
    arguments = ("--max-load", "100", "--index-url", index.url, "--executor")
    if isinstance(cluster, Cluster):
        return (*arguments, "slurm")
    return (*arguments, "kubernetes", *engine_options(cluster, *engine))


def engine_options(cluster: KubernetesDouble, *engine: str) -> list[str]:
    """Return the options of the executor `kubernetes` for a cluster."""
    words = ("image=here", f"kubeconfig={cluster.kubeconfig()}", "retries=0", *engine)
    return [word for value in words for word in ("--engine", value)]


def has_tasks(cluster: KubernetesDouble | Cluster) -> bool:
    """Whether a cluster has tasks that run or wait."""
    if isinstance(cluster, KubernetesDouble):
        return any(pod.process is not None and pod.process.poll() is None for pod in cluster.pods)
    return bool(subprocess.run(["squeue", "--noheader"], capture_output=True, check=True).stdout.strip())


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; the time limit only ends a test that hangs."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_project_is_measured_in_pods_although_one_of_them_is_lost(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path, tmp_path: Path
) -> None:
    (project / "bench.py").write_text(LOSS + LINKED)

    completed = advisor("advise", "--measure", "10m", *options(kubernetes, index), cwd=project)

    assert completed.returncode == 0, completed.stderr
    text = " ".join(completed.stdout.split())
    assert re.search(r"lib==1\.0: 1\.\d\d times as fast", text)
    certificate = tomllib.loads((project / "pylock.toml").read_text())["tool"]["advisor"]["certificate"]
    assert certificate["is-certain"] is True
    # Three of the four rounds of each batch have ended.
    plans = [json.loads(path.read_text()) for path in (tmp_path / "home" / "campaigns").rglob("campaign.json")]
    assert certificate["rounds"] == 3 * len(plans)
    assert not [*(tmp_path / "home" / "campaigns").glob("project-*")]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["slurm", "kubernetes"])
def test_an_interrupted_experiment_cancels_its_tasks_and_the_next_one_continues(
    request: pytest.FixtureRequest,
    index: PackageIndex,
    project: Path,
    tmp_path: Path,
    knowledge_file: Path,
    executor: str,
) -> None:
    cluster: KubernetesDouble | Cluster = request.getfixturevalue(executor)
    (project / "bench.py").write_text(WAITING.format(str(tmp_path / "released")) + LINKED)
    command = ("advise", "--measure", "10m", *options(cluster, index))

    def has_result() -> bool:
        logs = [path.read_text() for path in tmp_path.glob("cluster/pod-*/log")]
        return any("seshat-cell" in log for log in logs) or any(tmp_path.glob("campaigns/*/batch-1/kept/*.jsonl"))

    with start(*command, cwd=project, knowledge=knowledge_file) as process:
        wait_until(has_result)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)

    assert process.returncode == 130, errors
    assert "nothing (interrupted)" in output
    assert not (project / "pylock.toml").exists()
    wait_until(lambda: not has_tasks(cluster))
    (tmp_path / "released").touch()
    with start(*command, cwd=project, knowledge=knowledge_file) as process:
        _, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    certificate = tomllib.loads((project / "pylock.toml").read_text())["tool"]["advisor"]["certificate"]
    with open_knowledge_base(str(knowledge_file), shipped=False) as store:
        rounds = {(o.block, o.round) for o in store.observations() if o.status == "ok" and o.reference}
    assert len({block.partition("-")[0] for block, _ in rounds}) == 2
    assert certificate["rounds"] >= len(rounds)


def test_a_cluster_without_a_machine_for_the_tasks_is_one_clear_error(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    words = options(kubernetes, index, "image=absent/image")
    # Long enough for one look at the tasks, also on a busy machine.
    completed = advisor("advise", "--measure", "6s", *words, cwd=project)

    assert completed.returncode == 4
    expected = (
        "error: no run has ended in the budget: tasks 0, 1, 2, 3 waiting: ImagePullBackOff: Back-off pulling image"
    )
    assert error_of(completed).startswith(expected)
    assert all(job["spec"]["suspend"] for job in kubernetes.jobs.values())


@pytest.mark.slow
def test_batches_whose_tasks_all_fail_end_the_experiment(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    completed = advisor("advise", "--measure", "5m", "--python", "3.16", *options(kubernetes, index), cwd=project)

    assert completed.returncode == 4
    assert "error: none of the last 3 batches was of use: tasks 0" in error_of(completed)
    assert len(kubernetes.jobs) == 3


def test_a_project_that_is_too_large_for_a_pod_is_refused(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    (project / "data" / "large.bin").write_bytes(secrets.token_bytes(700_000))
    completed = advisor("advise", "--measure", "5m", *options(kubernetes, index), cwd=project)

    assert completed.returncode == 2
    expected = "error: the project has 701 kB when compressed, and Kubernetes can pass at most 600 kB to a pod"
    assert error_of(completed) == expected
    assert kubernetes.jobs == {}


def test_an_interpreter_of_this_machine_is_refused_for_pods(
    kubernetes: KubernetesDouble, advisor: Advisor, index: PackageIndex, project: Path
) -> None:
    own = ("--python", sys.executable)
    completed = advisor("advise", "--measure", "5m", *own, *options(kubernetes, index), cwd=project)

    assert completed.returncode == 2
    assert "is an interpreter of this machine, not of the image" in error_of(completed)
    assert "--python 3.12" in completed.stderr
    assert kubernetes.jobs == {}


@pytest.mark.slow
def test_the_parts_of_a_profiled_workload_are_measured_in_pods(
    network: None, kubernetes: KubernetesDouble, advisor: Advisor, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(NUMPY_PROJECT)
    sizes = ({"rows": 64, "columns": 64}, {"rows": 16, "columns": 256})
    parts = tuple(WorkloadPart(indicator="sort", share=0.5, parameters=size) for size in sizes)
    write_workload(tmp_path, ProfiledWorkload(name="step", framework="numpy", parts=parts, unattributed=0.0))
    words = ("--max-load", "100", "--executor", "kubernetes", *engine_options(kubernetes))

    completed = advisor("advise", "--measure", "60s", *words)

    assert completed.returncode == 0, completed.stderr
    assert "measuring 2 parts of the profiled workload `step`" in completed.stderr
    [certificate] = re.findall(r"(\d+) arms ran, (\d+) rounds", completed.stdout)
    assert int(certificate[0]) >= 2
    assert int(certificate[1]) >= 4


def test_runs_on_machines_of_another_kind_do_not_count_and_earlier_runs_on_the_same_kind_do(
    kubernetes: KubernetesDouble, index: PackageIndex, project: Path, tmp_path: Path, knowledge_file: Path
) -> None:
    options = ProjectOptions.of(
        project,
        None,
        IndexOptions(index_url=index.url, cache_directory=tmp_path / "cache"),
        ResolutionOptions(knowledge=f"sqlite:///{knowledge_file}"),
    )
    engine = {"image": "here", "kubeconfig": str(kubernetes.kubeconfig())}
    limits = ExperimentOptions(budget_seconds=60, max_load=100, executor="kubernetes", engine=engine)
    usual, other = MACHINE, replace(MACHINE, cpu=replace(MACHINE.cpu, microarchitecture="zen2"))
    with open_experiment(options, limits) as experiment:
        laboratory = experiment.laboratory
        [run] = laboratory.locked_arm(0).indicators

        def observed(block: str, round_: int, arm: int, hardware: HardwareProfile) -> Observation:
            lib = PackageVersion(name="lib", version=f"1.{1 - arm}")
            stack = make_stack([lib], python=platform.python_version(), platform="manylinux_2_28_x86_64")
            sample = observation(round=round_, arm=arm, reference=arm == 0, block=block, hardware=hardware)
            return replace(sample, indicator=run, framework="lib", stack=stack)

        laboratory.earlier = [[observed("earlier", 0, arm, hardware) for arm in (0, 1)] for hardware in (other, usual)]
        # What the pods of a batch would have measured.
        spool = tmp_path / "campaigns" / laboratory.block.name.lower() / "batch-1" / "spool"
        spool.mkdir(parents=True)
        for round_, hardware in enumerate((other, usual, usual, usual)):
            for arm in (0, 1):
                machine = hardware.identity[:8]
                block = f"{laboratory.block.name.lower()}-1-{machine}"
                cell = Cell(block=0, round=round_, arm=arm, machine=machine)
                (spool / cell.filename).write_bytes(observation_file([observed(block, round_, arm, hardware)]))

        runs = [*laboratory.run_rounds(range(4), [0, 1])]

    assert laboratory.hardware.identity == usual.identity
    assert [(number, arm) for number, arm, _ in runs] == [(-1, 0), (-1, 1)] + [(n, a) for n in range(4) for a in (0, 1)]
    disturbed = {number for number, _, run in runs if run.disturbance == "it ran on a machine of another kind"}
    assert disturbed == {0}
    assert kubernetes.jobs == {}
