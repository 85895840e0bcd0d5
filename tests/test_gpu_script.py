"""`benchmarks/gpu.sh` on an interpreter with few packages, and its plan for a machine with a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu_suite import ROUNDS, PlannedBlock, plan_blocks
from benchmarks.observation_folder import ObservationFolder
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations
from pi_runners.execution.environment import BuiltEnvironment
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessEnd, ProcessRequest
from tests.conftest import Advisor
from tests.pi_runners.machines import WITH_GPU, stack_of

ROOT = Path(__file__).parent.parent
REQUIRED_PACKAGES = ("packaging", "psutil")


@pytest.fixture(scope="module")
def minimal_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an interpreter with the packages NumPy, packaging and psutil only."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in (*REQUIRED_PACKAGES, "numpy"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        folder = Path(str(distribution(name).locate_file("")))
        for source in (package, *package.parent.glob(f"{name}.libs"), *folder.glob(f"{name}-*.dist-info")):
            (site / source.name).symlink_to(source)
    return home / "bin" / "python"


def start(python: Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.Popen(
        [str(ROOT / "benchmarks" / "gpu.sh"), *arguments],
        env={**variables, "PYTHON": str(python)},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def observations(folder: Path) -> list[Observation]:
    return [
        o
        for file in sorted(folder.glob("*.jsonl"))
        for o in read_observations(file.read_text(encoding="utf-8").splitlines(), where=file.name)
    ]


def test_a_minimal_interpreter_measures_numpy_and_its_observations_can_be_imported(
    minimal_python: Path, tmp_path: Path, advisor_here: Advisor
) -> None:
    arguments = (str(tmp_path / "out"), "--only", "numpy-system", "--rounds", "1")

    first = start(minimal_python, *arguments).communicate()[0]
    repeated = start(minimal_python, *arguments)
    second = repeated.communicate()[0]
    (file,) = (tmp_path / "out").glob("*.jsonl")
    imported = advisor_here("knowledge", "import", str(file))
    twice = advisor_here("knowledge", "import", str(file))

    measured = observations(tmp_path / "out")
    assert "no NVIDIA GPU: only the CPU part is measured" in first
    assert "unknown: microarchitecture: `archspec` is not installed" in first
    assert [(o.indicator.name, o.arm, o.status) for o in measured] == [("startup", 0, "ok"), ("startup", 1, "ok")]
    assert [p.name for p in measured[0].stack.packages] == ["numpy", *REQUIRED_PACKAGES]
    # A run of less than a second may end before the machine is read for the first time.
    assert all(o.telemetry.get("memory_bytes_max", 1.0) > 0 for o in measured)
    assert "this piece: nothing; 2 of 2 runs are measured" in second
    assert repeated.returncode == 0
    assert "2 added, 0 already stored" in imported.stdout
    assert "0 added, 2 already stored" in twice.stdout


def test_a_terminated_measurement_keeps_its_observations_and_is_continued(minimal_python: Path, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "out"), "--only", "numpy-system", "--rounds", "1")
    process = start(minimal_python, *arguments)
    while process.poll() is None and not list((tmp_path / "out").glob("*.jsonl")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait()
    before = [o.identity for o in observations(tmp_path / "out")]

    last = start(minimal_python, *arguments)
    last.communicate()

    after = observations(tmp_path / "out")
    assert process.returncode == gpu.MORE_TO_MEASURE
    assert last.returncode == 0
    assert [o.identity for o in after][: len(before)] == before
    assert 0 < len(before) < len(after)
    assert [(o.round, o.arm) for o in after] == [(0, 0), (0, 1)]
    assert {o.status for o in after} == {"ok"}
    assert len({o.block for o in after}) == 1


def test_a_piece_of_zero_minutes_measures_nothing(minimal_python: Path, tmp_path: Path) -> None:
    process = start(minimal_python, str(tmp_path / "out"), "--only", "numpy-system", "--minutes", "0")
    output = process.communicate()[0]

    assert process.returncode == gpu.MORE_TO_MEASURE
    assert "0 of 8 runs are measured" in output
    assert observations(tmp_path / "out") == []


def test_a_name_that_no_block_contains_is_an_error(minimal_python: Path, tmp_path: Path) -> None:
    process = start(minimal_python, str(tmp_path / "out"), "--only", "no-such-block")
    output = process.communicate()[0]

    assert process.returncode == 2
    assert "no block has `no-such-block` in its name" in output
    assert not (tmp_path / "out").exists()


def test_a_missing_required_package_is_an_error(minimal_python: Path, tmp_path: Path) -> None:
    program = (
        "import sys, benchmarks.gpu as g; sys.modules['psutil'] = None; g.find_spec = lambda n: n != 'psutil' or None"
    )
    completed = subprocess.run(
        [str(minimal_python), "-c", f"{program}; sys.exit(g.main([{str(tmp_path)!r}]))"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 2
    assert "lacks psutil" in completed.stderr


class LimitedProcesses(FreshProcesses):
    """A runner that is stopped after a number of indicators."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.remaining = limit
        self.entries: list[dict[str, Any]] = []

    def run(self, request: ProcessRequest) -> ProcessEnd:
        entries = request.content["indicators"][: self.remaining]
        self.remaining -= len(entries)
        self.stopped = not self.remaining
        self.entries += entries
        results = tuple(
            {"number": i, "status": "ok", "samples": [1.0], "started": 1.8e9, "seconds": 1.0, "clock_jump": 0.0}
            for i, _ in enumerate(entries)
        )
        return ProcessEnd(results=results, exit_status=0, ending="stopped" if self.stopped else "exit")


@pytest.fixture
def planned_blocks() -> tuple[PlannedBlock, ...]:
    stack = stack_of(torch="2.11.0", jax="0.11.2", onnxruntime="1.30.0", numpy="2.5.2")
    environment = BuiltEnvironment(python=Path("python"), stack=stack)
    return plan_blocks(environment, WITH_GPU, sizes=("large", "small"), devices=("cuda", "cpu"))[0]


def measure(planned_blocks: Sequence[PlannedBlock], folder: Path, session: str, limit: int) -> LimitedProcesses:
    runner = LimitedProcesses(limit)
    gpu.measure_piece(planned_blocks, ObservationFolder(folder, session=session), runner, session=session)
    return runner


def test_pieces_add_up_to_the_plan_and_nothing_is_measured_twice(
    planned_blocks: tuple[PlannedBlock, ...], tmp_path: Path
) -> None:
    blocks = [p for p in planned_blocks if "system" in p.name or p.name == "jax-training-cuda-large"]
    pieces = 0

    while measure(blocks, tmp_path, "s", 37).stopped:
        pieces += 1

    counts = Counter((o.block, o.round, o.arm, o.indicator.label) for o in observations(tmp_path))
    assert pieces > 3
    assert set(counts.values()) == {1}
    assert len(counts) == ROUNDS * sum(len(s.indicators) for p in blocks for s in p.block.arms)
    assert gpu.count_missing(blocks, ObservationFolder(tmp_path, session="s"), session="s") == (0, len(counts))
    assert all(o.reference == (o.arm == 0) for o in observations(tmp_path))


def test_a_new_session_begins_after_a_pause(tmp_path: Path) -> None:
    def name(seconds: float) -> str:
        return gpu.session_name(tmp_path, now=datetime.fromtimestamp(seconds, UTC))

    first = name(1000)
    file = tmp_path / f"observations-{first}-000.jsonl"
    file.touch()
    os.utime(file, (1000, 1000))

    assert name(1300) == first
    assert name(2000) != first
    # The file of the later session determines the name, although that of the first one exists.
    later = tmp_path / f"observations-{name(2000)}-000.jsonl"
    later.touch()
    os.utime(later, (2000, 2000))
    assert name(2300) == later.stem.split("-")[1] != first


def test_the_measurement_ends_even_if_every_session_is_shorter_than_a_round(
    planned_blocks: tuple[PlannedBlock, ...], tmp_path: Path
) -> None:
    blocks = [p for p in planned_blocks if p.name == "jax-training-cuda-large"]

    sessions = 0
    while measure(blocks, tmp_path, f"session{sessions}", 10).stopped:
        sessions += 1
        assert sessions < 40

    counts = Counter((o.round, o.arm, o.indicator.label) for o in observations(tmp_path))
    assert set(counts.values()) == {1}
    # One round was abandoned after its first session.
    assert len({number for number, _, _ in counts}) == ROUNDS + 1


def test_each_machine_that_writes_to_a_folder_has_its_own_blocks(
    planned_blocks: tuple[PlannedBlock, ...], tmp_path: Path
) -> None:
    first = next(p for p in planned_blocks if p.name == "jax-system-cuda-large")
    second = replace(first, block=replace(first.block, hardware=replace(WITH_GPU, memory_bytes=1)))
    for block in (first, second):
        measure([block], tmp_path, "s", 1000)

    blocks = {o.block: o.hardware.memory_bytes for o in observations(tmp_path)}
    assert sorted(blocks.values(), key=str) == [1, WITH_GPU.memory_bytes]


def runs(planned_blocks: tuple[PlannedBlock, ...]) -> Iterator[tuple[str, str, str, str, frozenset[tuple[str, Any]]]]:
    for p in planned_blocks:
        for arm in p.block.arms:
            for run in arm.indicators:
                yield arm.backend, run.device, run.name, run.dtype, frozenset(arm.settings.items())


def test_the_plan_for_a_gpu_begins_with_the_models_and_kernels_of_torch_and_jax(
    planned_blocks: tuple[PlannedBlock, ...],
) -> None:
    planned_runs = set(runs(planned_blocks))
    names = [p.name for p in planned_blocks]

    assert names[:4] == [
        "torch-models-cuda-large",
        "jax-models-cuda-large",
        "torch-kernels-cuda-large",
        "jax-kernels-cuda-large",
    ]
    assert [n for n in names if "cpu" in n] == names[names.index("torch-models-cpu-small") :]
    for settings in ({}, {"tf32": "on"}, {"tf32": "off"}, {"amp": "bfloat16"}, {"amp": "float16"}, {"compile": "on"}):
        assert ("torch", "cuda", "training_step", "float32", frozenset(settings.items())) in planned_runs
    for dtype in ("float16", "bfloat16"):
        assert ("torch", "cuda", "matmul", dtype, frozenset()) in planned_runs
        assert ("jax", "cuda", "training_step", dtype, frozenset()) in planned_runs
    for settings in ({}, {"compile": "on"}):
        assert ("torch", "cuda", "model", "bfloat16", frozenset(settings.items())) in planned_runs
    assert ("torch", "cuda", "transfer", "float32", frozenset()) in planned_runs
    # The package `onnxruntime` supports the CPU only.
    assert {device for backend, device, *_ in planned_runs if backend in ("onnxruntime", "numpy")} == {"cpu"}
    assert all(p.block.arms[0].reference and not p.block.arms[0].settings for p in planned_blocks)
    assert all([s.number for s in p.block.arms] == list(range(len(p.block.arms))) for p in planned_blocks)


def test_the_plan_contains_every_indicator(planned_blocks: tuple[PlannedBlock, ...]) -> None:
    from pi_runners.indicators import INDICATORS

    assert {name for _, _, name, _, _ in runs(planned_blocks)} == set(INDICATORS)


def test_the_script_imports_required_packages_only(minimal_python: Path, tmp_path: Path) -> None:
    program = (
        # A distribution's Python can import a `sitecustomize` of its own.
        "import json, sys; own = {*sys.modules, *sys.stdlib_module_names}; import benchmarks.gpu as g\n"
        f"g.main([{str(tmp_path / 'out')!r}, '--only', 'numpy-system', '--minutes', '0'])\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules} - own)))"
    )
    completed = subprocess.run(
        [str(minimal_python), "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )

    imported = {name for name in json.loads(completed.stdout.splitlines()[-1]) if not name.startswith("_")}
    assert imported == {"benchmarks", "knowledge", "pi_runners", *REQUIRED_PACKAGES}
