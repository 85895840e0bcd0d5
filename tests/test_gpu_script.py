"""`benchmarks/gpu.sh`: on an interpreter that has almost nothing, and its plan for a machine with a GPU."""

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
from benchmarks.gpu_suite import ROUNDS, Planned, plan_blocks
from knowledge.domain.observation import Observation
from knowledge.exchange.files import read_observations
from knowledge.exchange.folder import ObservationFolder
from pi_runners.environment import BuiltEnvironment
from pi_runners.subprocess_runner import FreshProcesses, ProcessEnd, ProcessRequest
from tests.conftest import Advisor
from tests.pi_runners.test_installed import WITH_GPU, stack_of

ROOT = Path(__file__).parent.parent
NEEDED = ("packaging", "psutil")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with NumPy, packaging and psutil, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in (*NEEDED, "numpy"):
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


def test_a_bare_interpreter_measures_its_packages_and_the_results_can_be_imported(
    bare: Path, tmp_path: Path, advisor_here: Advisor
) -> None:
    arguments = (str(tmp_path / "out"), "--only", "numpy-system", "--rounds", "1")

    first = start(bare, *arguments).communicate()[0]
    again = start(bare, *arguments)
    second = again.communicate()[0]
    (file,) = (tmp_path / "out").glob("*.jsonl")
    imported = advisor_here("knowledge", "import", str(file))
    twice = advisor_here("knowledge", "import", str(file))

    stored = observations(tmp_path / "out")
    assert "no NVIDIA GPU: only the CPU part is measured" in first
    assert "not known: accelerators: `nvidia-ml-py` is not installed" in first
    assert "not known: microarchitecture: `archspec` is not installed" in first
    assert [(o.indicator.name, o.arm, o.status) for o in stored] == [("startup", 0, "ok"), ("startup", 1, "ok")]
    assert [p.name for p in stored[0].stack.packages] == ["numpy", *NEEDED]
    # A run of less than a second may end before the machine is read for the first time.
    assert all(o.telemetry.get("memory_bytes_max", 1.0) > 0 for o in stored)
    assert "this piece: nothing; 2 of 2 runs are measured" in second
    assert again.returncode == 0
    assert "2 added, 0 already stored" in imported.stdout
    assert "0 added, 2 already stored" in twice.stdout


def test_a_terminated_run_keeps_its_observations_and_can_continue(bare: Path, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "out"), "--only", "numpy-system", "--rounds", "1")
    process = start(bare, *arguments)
    while process.poll() is None and not list((tmp_path / "out").glob("*.jsonl")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait()
    before = [o.identity for o in observations(tmp_path / "out")]

    last = start(bare, *arguments)
    last.communicate()

    stored = observations(tmp_path / "out")
    assert process.returncode == gpu.MORE_TO_MEASURE
    assert last.returncode == 0
    assert [o.identity for o in stored][: len(before)] == before
    assert 0 < len(before) < len(stored)
    assert [(o.round, o.arm) for o in stored] == [(0, 0), (0, 1)]
    assert {o.status for o in stored} == {"ok"}
    assert len({o.block for o in stored}) == 1


def test_a_session_without_time_measures_nothing(bare: Path, tmp_path: Path) -> None:
    process = start(bare, str(tmp_path / "out"), "--only", "numpy-system", "--minutes", "0")
    output = process.communicate()[0]

    assert process.returncode == gpu.MORE_TO_MEASURE
    assert "0 of 8 runs are measured" in output
    assert observations(tmp_path / "out") == []


def test_a_selection_without_a_block_is_refused(bare: Path, tmp_path: Path) -> None:
    process = start(bare, str(tmp_path / "out"), "--only", "no-such-block")
    output = process.communicate()[0]

    assert process.returncode == 2
    assert "no block has `no-such-block` in its name" in output
    assert not (tmp_path / "out").exists()


def test_missing_packages_of_an_interpreter_are_reported(bare: Path, tmp_path: Path) -> None:
    program = (
        "import sys, benchmarks.gpu as g; sys.modules['psutil'] = None; g.find_spec = lambda n: n != 'psutil' or None"
    )
    completed = subprocess.run(
        [str(bare), "-c", f"{program}; sys.exit(g.main([{str(tmp_path)!r}]))"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 2
    assert "lacks psutil" in completed.stderr


class Pieces(FreshProcesses):
    """Reports some indicators of each process, then is stopped."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.patience = patience
        self.entries: list[dict[str, Any]] = []

    def run(self, request: ProcessRequest) -> ProcessEnd:
        entries = request.content["indicators"][: self.patience]
        self.patience -= len(entries)
        self.stopped = not self.patience
        self.entries += entries
        results = tuple(
            {"number": i, "status": "ok", "samples": [1.0], "started": 1.8e9, "seconds": 1.0, "clock_jump": 0.0}
            for i, _ in enumerate(entries)
        )
        return ProcessEnd(results=results, exit_status=0, ending="stopped" if self.stopped else "exit")


@pytest.fixture
def planned() -> tuple[Planned, ...]:
    stack = stack_of(torch="2.11.0", jax="0.11.2", onnxruntime="1.30.0", numpy="2.5.2")
    environment = BuiltEnvironment(python=Path("python"), stack=stack)
    return plan_blocks(environment, WITH_GPU, sizes=("large", "small"), devices=("cuda", "cpu"))[0]


def measure(planned: Sequence[Planned], folder: Path, session: str, patience: int) -> Pieces:
    runner = Pieces(patience)
    gpu.measure_piece(planned, ObservationFolder(folder, session=session), runner, session=session)
    return runner


def test_sessions_add_up_to_the_plan_and_no_run_is_repeated(planned: tuple[Planned, ...], tmp_path: Path) -> None:
    some = [p for p in planned if "system" in p.name or p.name == "jax-training-cuda-large"]
    pieces = 0

    while measure(some, tmp_path, "s", 37).stopped:
        pieces += 1

    counts = Counter((o.block, o.round, o.arm, o.indicator.label) for o in observations(tmp_path))
    assert pieces > 3
    assert set(counts.values()) == {1}
    assert len(counts) == ROUNDS * sum(len(s.indicators) for p in some for s in p.block.arms)
    assert gpu.count_missing(some, ObservationFolder(tmp_path, session="s"), session="s") == (0, len(counts))
    assert all(o.reference == (o.arm == 0) for o in observations(tmp_path))


def test_after_a_pause_another_session_starts(tmp_path: Path) -> None:
    def name(seconds: float) -> str:
        return gpu.session_name(tmp_path, now=datetime.fromtimestamp(seconds, UTC))

    first = name(1000)
    file = tmp_path / f"observations-{first}-000.jsonl"
    file.touch()
    os.utime(file, (1000, 1000))

    assert name(1300) == first
    assert name(2000) != first
    # The file of the later session counts, though the first one's is there.
    later = tmp_path / f"observations-{name(2000)}-000.jsonl"
    later.touch()
    os.utime(later, (2000, 2000))
    assert name(2300) == later.stem.split("-")[1] != first


def test_the_measurement_completes_although_every_session_is_shorter_than_a_round(
    planned: tuple[Planned, ...], tmp_path: Path
) -> None:
    some = [p for p in planned if p.name == "jax-training-cuda-large"]

    sessions = 0
    while measure(some, tmp_path, f"session{sessions}", 10).stopped:
        sessions += 1
        assert sessions < 40

    counts = Counter((o.round, o.arm, o.indicator.label) for o in observations(tmp_path))
    assert set(counts.values()) == {1}
    # One round was given up after its first session.
    assert len({number for number, _, _ in counts}) == ROUNDS + 1


def test_another_machine_in_the_same_folder_has_other_blocks(planned: tuple[Planned, ...], tmp_path: Path) -> None:
    one = next(p for p in planned if p.name == "jax-system-cuda-large")
    other = replace(one, block=replace(one.block, hardware=replace(WITH_GPU, memory_bytes=1)))
    for each in (one, other):
        measure([each], tmp_path, "s", 1000)

    blocks = {o.block: o.hardware.memory_bytes for o in observations(tmp_path)}
    assert sorted(blocks.values(), key=str) == [1, WITH_GPU.memory_bytes]


def runs(planned: tuple[Planned, ...]) -> Iterator[tuple[str, str, str, str, frozenset[tuple[str, Any]]]]:
    for p in planned:
        for arm in p.block.arms:
            for run in arm.indicators:
                yield arm.backend, run.device, run.name, run.dtype, frozenset(arm.settings.items())


def test_the_plan_for_a_gpu_has_the_most_important_cases(planned: tuple[Planned, ...]) -> None:
    cases = set(runs(planned))
    names = [p.name for p in planned]

    assert names[:4] == [
        "torch-kernels-cuda-large",
        "jax-kernels-cuda-large",
        "torch-training-cuda-large",
        "jax-training-cuda-large",
    ]
    assert [n for n in names if "cpu" in n] == names[names.index("torch-kernels-cpu-small") :]
    for settings in ({}, {"tf32": "on"}, {"tf32": "off"}, {"amp": "bfloat16"}, {"amp": "float16"}, {"compile": "on"}):
        assert ("torch", "cuda", "training_step", "float32", frozenset(settings.items())) in cases
    for dtype in ("float16", "bfloat16"):
        assert ("torch", "cuda", "matmul", dtype, frozenset()) in cases
        assert ("jax", "cuda", "training_step", dtype, frozenset()) in cases
    assert ("torch", "cuda", "transfer", "float32", frozenset()) in cases
    # The package `onnxruntime` computes on the CPU only.
    assert {device for backend, device, *_ in cases if backend in ("onnxruntime", "numpy")} == {"cpu"}
    assert all(p.block.arms[0].reference and not p.block.arms[0].settings for p in planned)
    assert all([s.number for s in p.block.arms] == list(range(len(p.block.arms))) for p in planned)


def test_every_indicator_is_measured(planned: tuple[Planned, ...]) -> None:
    from pi_runners.indicators import INDICATORS

    assert {name for _, _, name, _, _ in runs(planned)} == set(INDICATORS)


def test_a_measurement_imports_only_the_documented_packages(bare: Path, tmp_path: Path) -> None:
    program = (
        "import json, sys, benchmarks.gpu as g\n"
        f"g.main([{str(tmp_path / 'out')!r}, '--only', 'numpy-system', '--minutes', '0'])\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names)))"
    )
    result = subprocess.run([str(bare), "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)

    imported = {name for name in json.loads(result.stdout.splitlines()[-1]) if not name.startswith("_")}
    assert imported == {"benchmarks", "knowledge", "pi_runners", *NEEDED}
