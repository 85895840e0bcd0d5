"""Campaigns: in memory where the environment does not matter, and on real NumPy environments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.domain.stack import PackageVersion
from pi_runners.campaign import Block, run_block
from pi_runners.environment import LockedPackage, StackLock
from pi_runners.executors.base import Job, JobEnd
from pi_runners.matrix import plan_slots
from tests.conftest import Advisor
from tests.knowledge.samples import MACHINE


def lock(*requested: str) -> StackLock:
    packages = tuple(
        LockedPackage(
            package=PackageVersion(name=text.partition("==")[0], version=text.partition("==")[2]),
            url=f"file:///nowhere/{text}.whl",
            sha256="0" * 64,
        )
        for text in requested
    )
    return StackLock(requested=requested, packages=packages, python="3.11", platform="manylinux_2_28_x86_64")


class Sink:
    """Keeps observations in memory."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def add(self, observations: Iterable[Observation]) -> None:
        self.observations += observations


class NoExecutor:
    """Must not be asked for anything."""

    def run(self, job: Job) -> JobEnd:
        raise AssertionError(job)


def test_the_first_stack_of_each_framework_is_its_reference() -> None:
    locks = (lock("numpy==2.0.0"), lock("torch==2.13.0"), lock("numpy==1.26.4"))

    slots = plan_slots(locks, ("matmul",), size="small", dtype="float32", device="cpu", again=True)

    assert [(s.framework, s.reference) for s in slots] == [
        ("numpy", True),
        ("torch", True),
        ("numpy", False),
        ("numpy", False),
        ("torch", False),
    ]


def test_only_what_a_backend_can_run_is_planned() -> None:
    slots = plan_slots(
        (lock("numpy==2.0.0"), lock("tensorflow-cpu==2.18.0")),
        ("matmul", "training_step"),
        size="small",
        dtype="float32",
        device="cuda",
        again=False,
    )

    assert [[(r.name, r.device) for r in s.indicators] for s in slots] == [
        [("matmul", "cpu")],
        [("matmul", "cuda"), ("training_step", "cuda")],
    ]


def test_a_stack_without_a_framework_is_refused() -> None:
    with pytest.raises(InputError, match="names no framework"):
        plan_slots((lock("six==1.0"),), ("matmul",), size="small", dtype="float32", device="cpu", again=False)


def test_a_stack_that_cannot_be_installed_is_a_stored_observation(tmp_path: Path) -> None:
    slots = plan_slots((lock("numpy==2.0.0"),), ("matmul",), size="small", dtype="float32", device="cpu", again=False)
    block = Block(name="b", slots=slots, rounds=2, hardware=MACHINE, settings={})
    sink = Sink()

    taken = run_block(block, sink=sink, executor=NoExecutor(), environments=tmp_path)

    assert taken == 2
    assert {o.status for o in sink.observations} == {"not-installed"}
    assert "numpy" in sink.observations[0].failure
    assert [p.name for p in tmp_path.iterdir()] == ["harness.pyz"]


def test_what_was_observed_before_is_not_run_again(tmp_path: Path) -> None:
    slots = plan_slots((lock("numpy==2.0.0"),), ("matmul",), size="small", dtype="float32", device="cpu", again=False)
    block = Block(name="b", slots=slots, rounds=3, hardware=MACHINE, settings={})
    sink = Sink()

    run_block(block, sink=sink, executor=NoExecutor(), environments=tmp_path, done=frozenset({(0, 0), (2, 0)}))

    assert [o.round for o in sink.observations] == [1]


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_real_numpy_stacks_are_measured_remembered_and_resumed(advisor: Advisor, tmp_path: Path) -> None:
    asked = ["pi", "run", "matmul", "conv2d", "--stack", "numpy<2.4", "--stack", "numpy<2", "--rounds", "2"]
    quick = ["--samples", "3", "--min-time", "0.002", "-o", "block.jsonl"]

    first = advisor(*asked, *quick)
    assert first.returncode == 0, first.stderr
    block = first.stderr.partition("block `")[2].partition("`")[0]
    again = advisor(*asked, *quick, "--resume", block)

    records = [json.loads(line) for line in (tmp_path / "block.jsonl").read_text().splitlines()]
    observations = [r["record"] for r in records if r["kind"] == "observation"]
    stacks = [r["record"]["packages"] for r in records if r["kind"] == "stack"]
    assert again.returncode == 0, again.stderr
    assert len(observations) == 2 * 2 * 3
    assert {o["status"] for o in observations} == {"ok"}
    assert {o["round"] for o in observations} == {0, 1}
    assert len(stacks) == 2
    assert all([p["name"] for p in packages] == ["numpy"] for packages in stacks)
    assert "A/A" in first.stdout


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_an_environment_that_was_tampered_with_is_not_measured(advisor: Advisor, tmp_path: Path) -> None:
    asked = ["pi", "run", "matmul", "--stack", "numpy<2", "--rounds", "1", "--samples", "2", "--no-aa"]
    assert advisor(*asked).returncode == 0
    installed = next((tmp_path / "home" / "cache" / "environments").rglob("numpy-*.dist-info"))
    # Replaced, not written into: uv links the files of an environment to those of its cache.
    (installed / "METADATA").unlink()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9.9\n")

    advisor(*asked, "-o", "block.jsonl")

    records = [json.loads(line) for line in (tmp_path / "block.jsonl").read_text().splitlines()]
    failed = [r["record"] for r in records if r["kind"] == "observation"]
    assert [o["status"] for o in failed] == ["not-installed"]
    assert "numpy is 9.9 instead of" in failed[0]["failure"]
