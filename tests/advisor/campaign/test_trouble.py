"""Errors of campaigns: invalid input, engines that refuse, and the hints of their messages."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor.campaign.coordinator import Coordinator
from advisor.campaign.directory import (
    CampaignDirectory,
    CampaignDirectoryError,
    Cell,
    cell_files,
    plan_document,
    read_plan,
)
from advisor.campaign.status import campaign_status
from advisor.campaign.worker import UnsuitableNodeError, cell_line, cells_in, check_node
from knowledge.domain.errors import InputError
from knowledge.domain.hardware import Accelerator, Driver, HardwareProfile
from knowledge.exchange.files import observation_file
from knowledge.store.base import KnowledgeBaseError
from tests.advisor.campaign.conftest import REFUSES, Bench, all_cells
from tests.advisor.campaign.plans import build_plan
from tests.conftest import Advisor
from tests.knowledge.samples import MACHINE, observation
from tests.kubernetes_double.cluster import KubernetesDouble
from tests.slurm.cluster import Cluster

H200 = replace(
    MACHINE,
    accelerators=(Accelerator(vendor="nvidia", model="NVIDIA H200", compute_capability="9.0"),),
    driver=Driver(version="550.54", newest_cuda="12.4"),
)


class MemorySink:
    """A sink in memory that can be made to fail."""

    def __init__(self) -> None:
        self.fails = False
        self.stored: list[str] = []

    def add(self, observations: object) -> None:
        identities = [o.identity for o in observations]  # type: ignore[attr-defined]
        if self.fails:
            raise KnowledgeBaseError("the knowledge base `x` could not be written: gone", hint="check it")
        self.stored += identities


@pytest.fixture
def directory(tmp_path: Path) -> CampaignDirectory:
    campaign_directory = CampaignDirectory(tmp_path / "home")
    campaign_directory.create(build_plan())
    return campaign_directory


def test_a_written_plan_is_read_back_unchanged() -> None:
    campaign_plan = build_plan(H200, "cuda", rounds=3)

    assert read_plan(plan_document(campaign_plan), where="plan") == campaign_plan
    assert len(campaign_plan.tasks) == 3


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 99, "plan": {}}', b'{"format": 2, "plan": {"name": 1}}'])
def test_a_damaged_plan_is_an_error(content: bytes) -> None:
    with pytest.raises(InputError, match="is not the plan of a campaign"):
        read_plan(content, where="plan")


def test_the_first_result_of_a_cell_is_stored(directory: CampaignDirectory) -> None:
    cell = Cell(block=0, round=0, arm=0, machine="0" * 8)

    assert directory.put(cell, b"first")
    assert not directory.put(cell, b"second")
    directory.mark_stored(cell)
    assert not directory.put(cell, b"third")
    assert directory.cells()[cell].read_bytes() == b"first"


def test_cells_are_read_from_output_without_truncated_lines() -> None:
    cell = Cell(block=1, round=2, arm=3, machine="abcdef01")
    line = cell_line(cell, b"content")

    assert list(cells_in(f"noise\n{line}\nseshat-cell x\n{line[:-9]}\n{line}")) == [(cell, b"content")] * 2


def test_results_are_stored_when_the_knowledge_base_is_available_again(directory: CampaignDirectory) -> None:
    sink, warnings = MemorySink(), []
    coordinator = Coordinator(
        directory, directory.plan(), sink=sink.add, warn=lambda message, _: warnings.append(message)
    )
    stored = observation(block=f"b-{MACHINE.identity[:8]}")
    ((cell, content),) = cell_files(directory.plan(), [stored])
    directory.put(cell, content)
    sink.fails = True

    assert coordinator.collect() == coordinator.collect() == 0
    assert len(warnings) == 1
    assert "1 cell not stored yet, in" in warnings[0]
    sink.fails = False
    assert coordinator.collect() == 1
    assert sink.stored == [stored.identity]
    assert (directory.cells(directory.spool), list(directory.cells(directory.stored))) == ({}, [cell])


def test_a_damaged_cell_is_renamed_and_measured_again(directory: CampaignDirectory) -> None:
    warnings: list[str] = []
    coordinator = Coordinator(
        directory, directory.plan(), sink=MemorySink().add, warn=lambda message, _: warnings.append(message)
    )
    cell = Cell(block=0, round=0, arm=0, machine=MACHINE.identity[:8])
    directory.put(cell, observation_file([observation()])[:-40])
    assert coordinator.states()[0].state == "done"

    coordinator.collect()

    assert "it was renamed to" in warnings[0]
    assert coordinator.states()[0].state == "waiting"


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(CampaignDirectoryError, match="cannot be written"):
        CampaignDirectory(tmp_path / "file" / "home").create(build_plan())


def test_submissions_that_cannot_be_read_are_an_error(
    directory: CampaignDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(directory, directory.plan(), sink=MemorySink().add)
    for function in ("scandir", "listdir"):  # Root may read every directory.
        monkeypatch.setattr(os, function, Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))

    with pytest.raises(CampaignDirectoryError, match="cannot be read: Permission denied"):
        coordinator.submissions()


def test_clock_differences_are_reported(directory: CampaignDirectory) -> None:
    coordinator = Coordinator(directory, directory.plan(), sink=MemorySink().add)
    submission = directory.batches / "001"
    submission.mkdir()
    (submission / "submission.json").write_text('{"tasks": [0], "at": 2000000000.0, "engine": "local"}')
    directory.write_progress(0, {"node": "n7", "clock": 2000000000.0 - 90})
    (behind,) = campaign_status(coordinator).remarks
    directory.write_progress(0, {"node": "n7", "clock": 4000000000.0})
    (ahead,) = campaign_status(coordinator).remarks

    assert "the clock of node `n7` is 90 s behind" in behind
    assert "s ahead" in ahead


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        (MACHINE, "has no NVIDIA GPU with a driver"),
        (replace(MACHINE, unknown=("accelerators: the driver is not loaded",)), "the driver is not loaded"),
        (
            replace(H200, accelerators=(replace(H200.accelerators[0], model="T4", compute_capability="7.5"),)),
            "has a GPU of compute capability 7.5",
        ),
        (replace(H200, driver=Driver(version="525", newest_cuda="12.0")), "a driver that supports CUDA 12.0 at most"),
        (
            replace(H200, cpu=replace(H200.cpu, architecture="aarch64")),
            "is aarch64, the campaign was planned for x86_64",
        ),
    ],
)
def test_an_unsuitable_node_is_reported(hardware: HardwareProfile, reason: str) -> None:
    with pytest.raises(UnsuitableNodeError, match=reason):
        check_node(build_plan(H200, "cuda").blocks[0], hardware)


def test_a_suitable_node_is_accepted() -> None:
    check_node(build_plan(H200, "cuda").blocks[0], H200)
    check_node(build_plan(MACHINE).blocks[0], replace(MACHINE, memory_bytes=1))


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("-e", "lsf"), 2, "there is no executor `lsf`"),
        (("-e", "slurm", "--engine", "partion=x"), 2, "did you mean `partition`?"),
        (("-e", "slurm", "--engine", "cpus=many"), 2, "option `cpus`"),
        (("-e", "slurm", "--engine", "gres"), 2, "has no value"),
        (("-e", "kubernetes"), 2, "needs an image"),
        (("-e", "kubernetes", "--engine", "image=x", "--python", "/usr/bin/python3"), 2, "not of the image"),
        (("--render", "out"), 2, "only Kubernetes has manifests"),
        (("--hardware", "no-such"), 2, "there is no hardware profile"),
    ],
)
def test_wrong_options_are_errors(bench: Bench, arguments: tuple[str, ...], code: int, reason: str) -> None:
    bench.matrix(REFUSES)

    result = bench.campaign(*arguments)

    assert (result.returncode, reason in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_without_slurm_a_campaign_is_an_error_and_leaves_no_files(bench: Bench) -> None:
    bench.matrix(REFUSES)
    nowhere = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not Path(p, "sbatch").exists())

    result = bench.campaign("-e", "slurm", PATH=nowhere)

    assert result.returncode == 4
    assert "Slurm is not installed on this machine: `sbatch` was not found" in result.stderr
    assert not (bench.folder / "campaigns").exists(), "a campaign that cannot run leaves nothing"
    assert bench.campaign().returncode == 0
    assert bench.cells == all_cells(2, 2)


def test_a_cluster_that_does_not_answer_is_an_error_and_leaves_no_files(bench: Bench, tmp_path: Path) -> None:
    bench.matrix(REFUSES)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sbatch", "sinfo"):
        (programs / name).write_text("#!/bin/sh\necho 'error: no controller' >&2\nexit 1\n")
        (programs / name).chmod(0o755)

    result = bench.campaign("-e", "slurm", PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")

    assert (result.returncode, "no controller" in result.stderr) == (4, True), result.stderr
    assert not (tmp_path / "campaigns").exists()


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("partition=none", "invalid partition specified: none"),
        ("gres=gpu:8", "Invalid generic resource (gres) specification"),
        ("constraint=h200", "Invalid feature specification"),
        ("memory=9T", "Memory specification can not be satisfied"),
        ("container-image=x", "unrecognized option"),
    ],
)
def test_a_rejection_by_slurm_is_reported_and_the_campaign_can_continue(bench: Bench, option: str, reason: str) -> None:
    bench.matrix(REFUSES, rounds=1)

    result = bench.campaign("-e", "slurm", "--engine", option)

    if option.startswith("container"):
        # srun reports the error on the node.
        assert (result.returncode, reason in result.stdout) == (4, True), result.stdout + result.stderr
    else:
        assert (result.returncode, reason in result.stderr) == (4, True), result.stderr
        assert "hint" in result.stderr
        assert list(bench.directory.glob("batches/*/submission.json")) == []


@pytest.mark.slow
def test_a_campaign_waits_for_an_unavailable_controller(bench: Bench, slurm: Cluster) -> None:
    bench.matrix(bench.waiting_code)
    process = bench.start("-e", "slurm")
    bench.wait(lambda: bench.has_started)

    slurm.kill_controller()
    status = bench.run("pi", "status", "small")
    slurm.start_controller()
    bench.release()

    assert "Slurm's controller cannot be reached" in status.stderr
    assert "submitted tasks continue" in status.stderr
    assert process.wait(200) == 0
    assert bench.cells == all_cells(2, 2)


@pytest.mark.slow
def test_tasks_lost_by_a_controller_are_submitted_again_and_measured_once(bench: Bench, slurm: Cluster) -> None:
    bench.matrix(bench.waiting_code, rounds=1)
    process = bench.start("-e", "slurm")
    bench.wait(lambda: bench.has_started)

    slurm.kill_controller()
    slurm.forget_jobs()
    slurm.start_controller()
    bench.wait(lambda: len(list(bench.directory.glob("batches/*/handle"))) == 2)
    bench.release()

    assert process.wait(200) == 0
    assert bench.cells == all_cells(1, 2)


@pytest.mark.parametrize(
    ("option", "code", "reason"),
    [
        ("namespace=forbidden", 4, "ask for rights on jobs, pods and configmaps"),
        ("namespace=elsewhere", 4, 'namespaces "elsewhere" not found'),
        ("kubeconfig=none", 4, "no cluster is configured"),
    ],
)
def test_a_rejection_by_kubernetes_is_reported(
    bench: Bench, kubernetes: KubernetesDouble, option: str, code: int, reason: str
) -> None:
    bench.matrix(REFUSES, rounds=1)
    options = ["image=x", f"kubeconfig={kubernetes.kubeconfig()}", option]

    result = bench.campaign("-e", "kubernetes", *(word for o in options for word in ("--engine", o)))

    assert (result.returncode, reason in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_a_quota_an_expired_token_and_an_unavailable_api_are_reported(
    bench: Bench, kubernetes: KubernetesDouble
) -> None:
    bench.matrix(REFUSES)
    options = ("-e", "kubernetes", "--engine", "image=x")
    good, wrong = kubernetes.kubeconfig(), kubernetes.kubeconfig(token="expired")

    kubernetes.quota = 1
    quota = bench.campaign(*options, "--engine", f"kubeconfig={good}")
    token = bench.campaign(*options, "--engine", f"kubeconfig={wrong}")
    kubernetes.quota = 0
    assert bench.campaign(*options, "--engine", f"kubeconfig={good}", "--detach").returncode == 0
    kubernetes.down = True
    down = bench.run("pi", "status", "small")
    kubernetes.down = False
    result = bench.campaign(*options, "--engine", f"kubeconfig={good}")

    assert (quota.returncode, "the namespace's quota is exceeded" in quota.stderr) == (4, True)
    assert (token.returncode, "sign in again" in token.stderr) == (4, True)
    assert "the cluster's API cannot be reached" in down.stderr
    assert result.returncode == 0, result.stderr
    assert bench.cells == all_cells(2, 2)


def test_an_image_that_cannot_be_pulled_is_reported_while_the_task_waits(
    bench: Bench, kubernetes: KubernetesDouble
) -> None:
    bench.matrix(REFUSES, rounds=1)
    options = ("--engine", "image=absent/image", "--engine", f"kubeconfig={kubernetes.kubeconfig()}")
    assert bench.campaign("-e", "kubernetes", *options, "--detach").returncode == 0

    bench.wait(lambda: bool(bench.status()["remarks"]), every=0.5)
    (remark,) = bench.status()["remarks"]
    bench.run("pi", "cancel")
    good = ("--engine", "image=here", "--engine", f"kubeconfig={kubernetes.kubeconfig()}")

    assert "task 0 waiting: ImagePullBackOff: Back-off pulling image" in remark
    assert bench.campaign("-e", "kubernetes", *good).returncode == 0
    assert bench.cells == all_cells(1, 2)


def test_a_task_number_outside_the_plan_is_refused(advisor_here: Advisor, tmp_path: Path) -> None:
    CampaignDirectory(tmp_path / "home").create(build_plan())

    beyond = advisor_here("pi", "work", "home", "7")
    nothing = advisor_here("pi", "work", "elsewhere", "0")

    assert (beyond.returncode, "has no task 7" in beyond.stderr) == (2, True)
    assert (nothing.returncode, "is not the directory of a campaign" in nothing.stderr) == (2, True)
