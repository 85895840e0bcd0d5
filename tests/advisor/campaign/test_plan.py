"""Plans of campaigns: blocks from a matrix, replaced cuDNN, required CUDA, estimates of time and size."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.campaign.directory import CampaignPlan
from advisor.campaign.plan import CampaignTarget, check_disk, estimate, locked_file, plan_campaign, run_seconds_by_label
from advisor.campaign.stack_lock import StackLocker
from advisor.index.cache import DiskCache
from advisor.index.client import IndexClient
from advisor.index.configuration import IndexConfiguration
from advisor.resolve.candidates.problem import NoStackError
from knowledge.domain.errors import InputError
from knowledge.hardware.detect import detect
from pi_runners.execution.environment import FullDiskError
from pi_runners.plan.matrix_file import read_matrix
from tests.knowledge.samples import observation
from tests.package_index import PackageIndex

HARDWARE = detect()


@pytest.fixture
def client(index: PackageIndex, tmp_path: Path) -> IndexClient:
    """A client of an index with PyTorch builds that require CUDA and cuDNN, like the real wheels."""
    for version, cuda, cudnn in (("2.8.0", "12.8.90", "9.10.2.21"), ("2.7.0", "12.6.77", "9.5.1.17")):
        index.add("torch", version, [f"nvidia-cuda-runtime-cu12=={cuda}", f"nvidia-cudnn-cu12=={cudnn}"])
        index.add("nvidia-cuda-runtime-cu12", cuda)
        index.add("nvidia-cudnn-cu12", cudnn)
    index.add("nvidia-cudnn-cu12", "9.8.0.87")
    index.add("nvidia-cudnn-cu12", "8.9.7.29")
    index.add("numpy", "2.0.0")
    configuration = IndexConfiguration(default=index.url)
    return IndexClient(configuration, cache=DiskCache(tmp_path / "cache"))


TARGET = CampaignTarget(hardware=HARDWARE, python=sys.executable)


def plan_matrix(client: IndexClient, tmp_path: Path, text: str) -> CampaignPlan:
    path = tmp_path / "matrix.toml"
    path.write_text('name = "m"\nindicators = ["sort"]\nrounds = 3\n' + text)
    return plan_campaign(read_matrix(path), TARGET, client=client, max_runs=100)


def test_cudnn_is_replaced_within_its_major_version(client: IndexClient) -> None:
    locker = StackLocker(client, HARDWARE)

    lock = locker.lock(["torch==2.7.0"], sys.executable, cudnn="9.8")

    versions = {p.package.name: p.package.version for p in lock.packages}
    assert versions["nvidia-cudnn-cu12"] == "9.8.0.87"
    with pytest.raises(NoStackError, match="has another major version"):
        locker.lock(["torch==2.7.0"], sys.executable, cudnn="8.9")
    with pytest.raises(NoStackError, match="contains no cuDNN"):
        locker.lock(["numpy"], sys.executable, cudnn="9.8")


def test_a_stack_with_another_cuda_runtime_is_dropped_with_the_reason(client: IndexClient, tmp_path: Path) -> None:
    campaign = plan_matrix(client, tmp_path, '[[stack]]\nframework = "torch"\ncuda = ["12.6"]\n')

    assert [arm.lock.label for arm in campaign.blocks[0].arms] == ["torch==2.7.0", "torch==2.7.0"]
    assert [d.reason for d in campaign.dropped] == ["`torch==2.8.0` contains CUDA 12.8, not 12.6"]


def test_a_stack_without_a_version_in_the_index_is_dropped_with_the_reason(client: IndexClient, tmp_path: Path) -> None:
    text = '[[stack]]\nframework = "numpy==99.0"\nwith = ["six"]\n[[stack]]\nframework = "numpy"\n'
    text += '[[stack]]\nframework = "torch>=99"\n[[exclude]]\nframework = "torch"\n'

    campaign = plan_matrix(client, tmp_path, text)

    assert [arm.lock.label for arm in campaign.blocks[0].arms] == ["numpy==2.0.0", "numpy==2.0.0"]
    assert [dropped.label for dropped in campaign.dropped] == ["numpy==99.0 six"]
    assert "stack `numpy==99.0 six` cannot be resolved for Python" in campaign.dropped[0].reason


def test_each_backend_has_a_block_with_a_reference_and_a_control(client: IndexClient, tmp_path: Path) -> None:
    campaign = plan_matrix(client, tmp_path, '[[stack]]\nframework = "torch"\n[[stack]]\nframework = "numpy"\n')

    assert [[(s.lock.label, s.reference) for s in b.arms] for b in campaign.blocks] == [
        [("torch==2.8.0", True), ("torch==2.7.0", False), ("torch==2.8.0", False)],
        [("numpy==2.0.0", True), ("numpy==2.0.0", False)],
    ]
    assert len({b.name for b in campaign.blocks}) == 2


def test_only_a_repetition_of_a_matrix_has_other_names(client: IndexClient, tmp_path: Path) -> None:
    text = '[[stack]]\nframework = "numpy"\n'
    first, again = plan_matrix(client, tmp_path, text), plan_matrix(client, tmp_path, text)
    other = plan_campaign(
        read_matrix(tmp_path / "matrix.toml"), replace(TARGET, repetition=2), client=client, max_runs=100
    )

    assert first.blocks[0].name == again.blocks[0].name
    assert other.blocks[0].name != first.blocks[0].name


def test_estimates_add_up_and_use_measured_durations(client: IndexClient, tmp_path: Path) -> None:
    block = plan_matrix(client, tmp_path, '[[stack]]\nframework = "numpy"\n').blocks[0]
    run = block.arms[0].indicators[0]
    slow = replace(observation(seconds=1.0), indicator=run, loops=100)

    fresh = estimate(block, client, {})
    measured = estimate(block, client, run_seconds_by_label([slow]))

    assert (fresh.processes, fresh.runs) == (6, 6)
    assert fresh.disk_bytes == client.unpacked_size(locked_file(block.arms[0].lock.packages[0]))
    assert measured.seconds - fresh.seconds == pytest.approx(6 * 300, rel=0.1)


def test_a_campaign_that_does_not_fit_on_the_disk_is_rejected(client: IndexClient, tmp_path: Path) -> None:
    block = plan_matrix(client, tmp_path, '[[stack]]\nframework = "numpy"\n').blocks[0]
    requirements = estimate(block, client, {})

    check_disk([requirements], tmp_path / "not" / "there", budget_bytes=1e9)
    with pytest.raises(InputError, match="the budget is"):
        check_disk([requirements], tmp_path, budget_bytes=10.0)
    with pytest.raises(FullDiskError, match="GB left"):
        check_disk([replace(requirements, disk_bytes=1e18)], tmp_path, budget_bytes=None)
