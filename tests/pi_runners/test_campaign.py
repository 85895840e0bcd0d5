"""Blocks of campaigns: with recorded processes, and on real NumPy environments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.report.measurements import block_record, block_table
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Scalar
from knowledge.domain.stack import PackageVersion, make_stack
from pi_runners.execution.campaign import Block, measured_cells, run_block
from pi_runners.execution.environment import BuiltEnvironment, StackLock, locked_stack
from pi_runners.execution.subprocess_runner import Ending, ProcessEnd, ProcessRequest
from pi_runners.execution.telemetry import Reading
from pi_runners.plan.matrix import Arm, plan_arms
from tests.conftest import Advisor
from tests.pi_runners.campaigns import NoProcesses, Sink, block_of, cases, lock

Stack = tuple[StackLock, dict[str, Scalar]]


def arms_of(*requested: str, control: bool = False) -> tuple[Arm, ...]:
    stacks: list[Stack] = [(lock(text), {}) for text in requested]
    return plan_arms(stacks, cases("matmul"), device="cpu", control=control)


def test_the_first_stack_of_each_framework_is_its_reference() -> None:
    arms = arms_of("numpy==2.0.0", "torch==2.13.0", "numpy==1.26.4", control=True)

    assert [(s.number, s.framework, s.reference) for s in arms] == [
        (0, "numpy", True),
        (1, "torch", True),
        (2, "numpy", False),
        (3, "numpy", False),
        (4, "torch", False),
    ]


def test_only_indicators_and_devices_that_a_backend_supports_are_planned() -> None:
    stacks: list[Stack] = [(lock("numpy==2.0.0"), {}), (lock("tensorflow-cpu==2.18.0"), {})]

    arms = plan_arms(stacks, cases("matmul", "training_step"), device="cuda", control=False)

    assert [[(r.name, r.device) for r in s.indicators] for s in arms] == [
        [("matmul", "cpu")],
        [("matmul", "cuda"), ("training_step", "cuda")],
    ]


def test_a_stack_without_a_framework_is_refused() -> None:
    with pytest.raises(InputError, match="contains no framework"):
        arms_of("six==1.0")


def test_settings_that_a_backend_does_not_support_add_no_arm() -> None:
    locks = lock("numpy==2.0.0"), lock("tensorflow-cpu==2.18.0")
    values: tuple[dict[str, Scalar], ...] = ({}, {"xla": "on"})
    stacks = [(stack, settings) for stack in locks for settings in values]

    arms = plan_arms(stacks, cases("matmul"), device="cpu", control=False)

    assert [(s.framework, dict(s.settings), s.reference) for s in arms] == [
        ("numpy", {}, True),
        ("tensorflow-cpu", {}, True),
        ("tensorflow-cpu", {"xla": "on"}, False),
    ]


def test_a_stack_that_cannot_be_installed_is_a_stored_observation(tmp_path: Path) -> None:
    sink = Sink()

    count = run_block(
        block_of(arms_of("numpy==2.0.0"), rounds=2), sink=sink.add, runner=NoProcesses(), environments=tmp_path
    )

    assert count == 2
    assert {o.status for o in sink.observations} == {"not-installed"}
    assert "numpy" in sink.observations[0].failure
    assert [p.suffix for p in tmp_path.iterdir()] == [".pyz"]


def test_a_cell_that_is_not_missing_is_not_run_again(tmp_path: Path) -> None:
    block = block_of(arms_of("numpy==2.0.0"), rounds=3)
    sink = Sink()

    run_block(
        block, sink=sink.add, runner=NoProcesses(), environments=tmp_path, is_missing=lambda number, arm: number == 1
    )

    assert [o.round for o in sink.observations] == [1]


def test_a_block_started_with_other_stacks_is_refused(tmp_path: Path) -> None:
    sink = Sink()
    run_block(block_of(arms_of("numpy==2.0.0")), sink=sink.add, runner=NoProcesses(), environments=tmp_path)

    assert measured_cells(block_of(arms_of("numpy==2.0.0")), sink.observations) == {(0, 0)}
    with pytest.raises(InputError, match="started with other stacks"):
        measured_cells(block_of(arms_of("numpy==2.1.0")), sink.observations)


class CrashingProcesses:
    """A runner whose framework crashes in one indicator, in every process."""

    def __init__(self, crashing: str) -> None:
        self.crashing = crashing
        self.requests: list[list[str]] = []

    def run(self, job: ProcessRequest) -> ProcessEnd:
        names = [entry["name"] for entry in job.content["indicators"]]
        self.requests.append(names)
        before = names[: names.index(self.crashing)] if self.crashing in names else names
        results = tuple(
            {"number": i, "status": "ok", "samples": [1.0, 1.0], "started": 0.0, "seconds": 1.0, "clock_jump": 0.0}
            for i, _ in enumerate(before)
        )
        return ProcessEnd(
            results=results, exit_status=-11 if self.crashing in names else 0, error_tail="segmentation fault"
        )


class MeteredProcesses:
    """A runner whose process takes samples from second 12 to second 22, while a counter counts 40 J a second."""

    def __init__(self, clock_jump: float) -> None:
        self._clock_jump = clock_jump

    def run(self, job: ProcessRequest) -> ProcessEnd:
        window = {"started": 12.0, "seconds": 10.0, "timed_seconds": 9.9, "stretches": 4}
        result = {"number": 0, "status": "ok", "samples": [0.025] * 4, "loops": 100, "window": window}
        readings = (Reading(time=t, figures={"cpu_percent": 90.0}, joules={"cpu": 40.0 * t}) for t in range(31))
        return ProcessEnd(
            results=({**result, "started": 10.0, "seconds": 15.0, "clock_jump": self._clock_jump},),
            exit_status=0,
            readings=tuple(readings),
        )


@pytest.mark.parametrize(
    ("clock_jump", "energy"),
    # If the clock is changed, readings and window are at unknown times.
    [(0.0, {"cpu_energy_joules": 400.0, "cpu_joules_per_call": 1.0, "energy_window_seconds": 10.0}), (60.0, {})],
)
def test_an_observation_contains_the_energy_of_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock_jump: float, energy: dict[str, float]
) -> None:
    arms = arms_of("numpy==2.0.0")
    monkeypatch.setattr(
        "pi_runners.execution.campaign.build_environment",
        lambda *_: BuiltEnvironment(python=Path("python"), stack=locked_stack(arms[0].lock, "3.11.7")),
    )
    sink = Sink()

    run_block(block_of(arms), sink=sink.add, runner=MeteredProcesses(clock_jump), environments=tmp_path)

    [o] = sink.observations
    assert o.telemetry == {"cpu_percent_mean": 90.0, "cpu_percent_max": 90.0, **energy}
    assert ("energy of a call: `numpy 2.0.0`: processors 1 J (over 10 s)" in block_table([o])) is bool(energy)
    [row] = block_record([o])["rows"]
    assert row["energy"] == ({"joules_per_call": {"cpu": 1.0}, "seconds": 10.0} if energy else None)


def test_indicators_after_a_crash_run_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = plan_arms([(lock("numpy==2.0.0"), {})], cases("matmul", "sort", "fft"), device="cpu", control=False)
    stack = locked_stack(arms[0].lock, "3.11.7")
    monkeypatch.setattr(
        "pi_runners.execution.campaign.build_environment",
        lambda *_: BuiltEnvironment(python=Path("python"), stack=stack),
    )
    runner, sink = CrashingProcesses("sort"), Sink()

    run_block(block_of(arms), sink=sink.add, runner=runner, environments=tmp_path)

    assert runner.requests == [["matmul", "sort", "fft"], ["fft"]]
    assert [(o.indicator.name, o.status) for o in sink.observations] == [
        ("matmul", "ok"),
        ("sort", "crashed"),
        ("fft", "ok"),
    ]
    assert "segmentation fault" in sink.observations[1].failure


def test_an_environment_is_given_up_after_two_processes_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(CrashingProcesses):
        def run(self, job: ProcessRequest) -> ProcessEnd:
            self.requests.append([entry["name"] for entry in job.content["indicators"]])
            return ProcessEnd(results=(), exit_status=-11)

    arms = plan_arms([(lock("numpy==2.0.0"), {})], cases("matmul", "sort", "fft"), device="cpu", control=False)
    stack = locked_stack(arms[0].lock, "3.11.7")
    monkeypatch.setattr(
        "pi_runners.execution.campaign.build_environment",
        lambda *_: BuiltEnvironment(python=Path("python"), stack=stack),
    )
    runner, sink = Silent(""), Sink()

    run_block(block_of(arms), sink=sink.add, runner=runner, environments=tmp_path)

    assert runner.requests == [["matmul", "sort", "fft"], ["sort", "fft"]]
    assert [o.status for o in sink.observations] == ["crashed"] * 3


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_real_numpy_stacks_are_measured_stored_and_resumed(advisor: Advisor, tmp_path: Path) -> None:
    command = ["pi", "run", "sort", "reduction", "--stack", "numpy<2.4", "--stack", "numpy<2", "--rounds", "2"]
    options = ["--samples", "3", "--min-time", "0.002", "-o", "block.jsonl"]

    first = advisor(*command, *options)
    assert first.returncode == 0, first.stderr
    block = first.stderr.partition("block `")[2].partition("`")[0]
    resumed = advisor(*command, *options, "--resume", block)

    records = [json.loads(line) for line in (tmp_path / "block.jsonl").read_text().splitlines()]
    observations = [r["record"] for r in records if r["kind"] == "observation"]
    stacks = [r["record"]["packages"] for r in records if r["kind"] == "stack"]
    assert resumed.returncode == 0, resumed.stderr
    assert len(observations) == 2 * 3 * 3
    assert {o["status"] for o in observations} == {"ok"}
    assert {o["round"] for o in observations} == {0, 1}
    assert len(stacks) == 2
    assert all([p["name"] for p in packages] == ["numpy"] for packages in stacks)
    assert "A/A" in first.stdout
    document = json.loads(advisor("pi", "show", block, "--format", "json").stdout)
    assert len(document["rows"]) == 3 * 3
    assert {row["speedup"]["control"] for row in document["rows"] if row["arm"] == 2} == {True}
    assert all(row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"] for row in document["rows"])


@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_an_environment_with_changed_packages_is_not_measured(advisor: Advisor, tmp_path: Path) -> None:
    command = ["pi", "run", "matmul", "--stack", "numpy<2", "--rounds", "1", "--samples", "2", "--no-aa"]
    assert advisor(*command).returncode == 0
    installed = next((tmp_path / "home" / "cache" / "environments").rglob("numpy-*.dist-info"))
    # The file is replaced, because uv links the files of an environment to those of its cache.
    (installed / "METADATA").unlink()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9.9\n")

    advisor(*command, "-o", "block.jsonl")

    records = [json.loads(line) for line in (tmp_path / "block.jsonl").read_text().splitlines()]
    failed = [r["record"] for r in records if r["kind"] == "observation"]
    assert {o["status"] for o in failed} == {"not-installed"}
    assert "numpy is 9.9 instead of" in failed[0]["failure"]


@pytest.mark.parametrize(("device", "cuda", "cudnn"), [("cuda", "12.8", "9.8.0.87"), ("cpu", None, None)])
def test_the_cuda_of_the_system_is_part_of_a_stack_without_cuda_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, cuda: str | None, cudnn: str | None
) -> None:
    arms = plan_arms([(lock("torch==2.8.0"), {})], cases("matmul"), device=device, control=False)
    stack = locked_stack(arms[0].lock, "3.11.7")
    monkeypatch.setattr(
        "pi_runners.execution.campaign.build_environment",
        lambda *_: BuiltEnvironment(python=Path("python"), stack=stack),
    )
    # NVIDIA's container images set these variables.
    monkeypatch.setenv("CUDA_VERSION", "12.8.1")
    monkeypatch.setenv("NV_CUDNN_VERSION", "9.8.0.87-1")
    sink = Sink()

    run_block(block_of(arms), sink=sink.add, runner=CrashingProcesses(""), environments=tmp_path)

    assert {(o.stack.cuda, o.stack.cudnn) for o in sink.observations} == {(cuda, cudnn)}


class OneAtATime:
    """A runner that returns the result of the first indicator only, and a configured ending."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.requests: list[list[str]] = []

    def run(self, job: ProcessRequest) -> ProcessEnd:
        names = [entry["name"] for entry in job.content["indicators"]]
        self.requests.append(names)
        first = {"number": 0, "status": "ok", "samples": [1.0], "started": 0.0, "seconds": 1.0, "clock_jump": 0.0}
        return ProcessEnd(results=(first,), exit_status=-9, ending=self.ending)


def installed_block(tmp_path: Path, *names: str, rounds: int = 1) -> Block:
    """Return a block on an existing interpreter, whose arms contain no packages to install."""
    stack = make_stack(
        [PackageVersion(name="numpy", version="2.0.0")], python="3.12.3", platform="manylinux_2_39_x86_64"
    )
    environment = BuiltEnvironment(python=tmp_path / "python", stack=stack)
    empty_lock = StackLock(requested=("numpy==2.0.0",), packages=(), python="python", platform=stack.platform)
    arms = plan_arms([(empty_lock, {})], cases(*names), device="cpu", control=True)
    return replace(block_of(arms, rounds=rounds), environment=environment)


def test_an_existing_interpreter_is_measured_without_building_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("an existing interpreter must not be built or removed")

    monkeypatch.setattr("pi_runners.execution.campaign.build_environment", fail)
    monkeypatch.setattr("pi_runners.execution.campaign.remove_environment", fail)
    block, sink = installed_block(tmp_path, "matmul"), Sink()

    run_block(block, sink=sink.add, runner=CrashingProcesses(""), environments=tmp_path, keep_environments=False)

    assert [o.status for o in sink.observations] == ["ok", "ok"]
    assert {o.stack for o in sink.observations} == {block.environment.stack if block.environment else None}
    assert measured_cells(block, sink.observations) == {(0, 0), (0, 1)}


def test_the_results_of_a_stopped_process_are_stored_and_nothing_for_the_other_indicators(tmp_path: Path) -> None:
    runner, sink = OneAtATime("stopped"), Sink()

    count = run_block(
        installed_block(tmp_path, "matmul", "sort", "fft", rounds=3),
        sink=sink.add,
        runner=runner,
        environments=tmp_path,
    )

    assert count == 1
    assert [(o.indicator.name, o.status) for o in sink.observations] == [("matmul", "ok")]
    assert runner.requests == [["matmul", "sort", "fft"]]


def test_an_indicator_times_out_only_if_it_was_the_first_of_its_process(tmp_path: Path) -> None:
    runner, sink = OneAtATime("time"), Sink()
    block = installed_block(tmp_path, "matmul", "sort", "fft")

    run_block(replace(block, arms=block.arms[:1]), sink=sink.add, runner=runner, environments=tmp_path)

    assert runner.requests == [["matmul", "sort", "fft"], ["sort", "fft"], ["fft"]]
    assert [o.status for o in sink.observations] == ["ok"] * 3
