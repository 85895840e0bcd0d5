"""The estimate of the memory that a run takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import frameworks
from pi_runners.execution.program_archive import write_program
from pi_runners.harness.contract import Parameters
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.indicator import Operation
from pi_runners.plan.matrix import IndicatorCase, backends_of, check_fit
from tests.knowledge.samples import MACHINE

_FREE_BYTES = 8 * 2**30
_SECONDS = 1200
_CHILD = """
import json, resource, sys
from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import SamplingPlan, Unsupported
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.programs import inference

backend, name, parameters, archive = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
# LoadGen only repeats computations that were checked before it starts.
inference.run_scenario = lambda *_: {"seconds": 1.0}
plan = SamplingPlan(samples=1, min_seconds=1e-6, max_warmup_seconds=1e-6, archive=archive)
try:
    measured = INDICATORS[name].measure(make_backend(backend, "cpu", "float32", {}), parameters, plan)
except Unsupported as error:
    measured = {"status": "unsupported", "failure": str(error)}
# Not `ru_maxrss` of this process: it contains the peak of the process that started it.
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
peak = 1024 * max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(json.dumps({"status": measured["status"], "failure": measured.get("failure"), "peak": peak}))
"""


def estimate(name: str, case: Parameters, backend: str) -> float:
    indicator = INDICATORS[name]
    complete = indicator.complete(case)
    return indicator.memory(complete, "float32") + indicator.extra_memory(complete, "float32", frameworks()[backend])


def backend_for(name: str, case: Parameters) -> str:
    """Return NumPy for the operations that it supports, and PyTorch for other operations and models."""
    indicator = INDICATORS[name]
    return "numpy" if isinstance(indicator, Operation) and indicator.supports(case, frameworks()["numpy"]) else "torch"


LARGE = [
    (name, case)
    for name, indicator in INDICATORS.items()
    if "cpu" in indicator.devices
    for case in indicator.sets["large"]
    if estimate(name, case, backend_for(name, case)) <= _FREE_BYTES
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), LARGE)
def test_the_memory_of_a_large_case_agrees_with_the_estimate(name: str, case: Parameters, tmp_path: Path) -> None:
    backend = backend_for(name, case)
    pytest.importorskip(backend)

    completed = subprocess.run(
        [sys.executable, "-c", _CHILD, backend, name, json.dumps(case), str(write_program(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=_SECONDS,
    )

    measured = json.loads(completed.stdout.splitlines()[-1])
    estimated = estimate(name, case, backend)
    if measured["status"] == "unsupported":
        pytest.skip(measured["failure"])
    assert measured["status"] == "ok", measured
    assert measured["peak"] <= estimated * 1.2
    # The peak of several processes is that of the largest process.
    if isinstance(INDICATORS[name], Operation) and not case.get("workers"):
        assert measured["peak"] >= estimated / 3


@pytest.mark.parametrize("name", INDICATORS)
def test_every_case_has_a_positive_memory_estimate(name: str) -> None:
    for cases in INDICATORS[name].sets.values():
        for case in cases:
            assert estimate(name, case, "numpy") > 0


def test_a_case_that_does_not_fit_into_free_memory_is_refused() -> None:
    case = IndicatorCase(name="memory", parameters={"kernel": "add", "elements": 2**28})

    check_fit([case], ["float32"], MACHINE, device="cpu", free_bytes=64e9)
    with pytest.raises(InputError, match="free memory is 1.0 GB"):
        check_fit([case], ["float32"], MACHINE, device="cpu", free_bytes=1e9)


def test_the_memory_of_im2col_is_added_for_numpy_only() -> None:
    case = IndicatorCase(name="conv3d", parameters=INDICATORS["conv3d"].sets["large"][0])

    check_fit([case], ["float32"], MACHINE, device="cpu", backends=["torch"], free_bytes=16e9)
    with pytest.raises(InputError, match="needs about"):
        check_fit([case], ["float32"], MACHINE, device="cpu", backends=["numpy", "torch"], free_bytes=16e9)


def test_the_backends_of_stacks_are_read_from_their_requirements() -> None:
    assert backends_of(["numpy==2.0", "torch numpy", "six", "numpy>>1"]) == ("numpy", "torch")


@pytest.mark.parametrize(
    ("name", "case", "backend", "arrays"),
    [
        # Scores of (batch, heads, length, length), scaled, and their exponentials.
        ("attention", {"batch": 2, "heads": 4, "length": 128, "width": 64}, "numpy", 3 * 2 * 4 * 128 * 128),
        ("attention", {"batch": 2, "heads": 4, "length": 128, "width": 64}, "torch", 0),
        # Views of (batch, channels, kernel) at every pixel.
        ("conv1d", {"batch": 2, "channels": 3, "filters": 4, "size": 8, "kernel": 5}, "numpy", 2 * 3 * 5 * 8),
        ("conv1d", {"batch": 2, "channels": 3, "filters": 4, "size": 8, "kernel": 5}, "torch", 0),
    ],
)
def test_the_additional_memory_of_a_backend_is_estimated(
    name: str, case: Parameters, backend: str, arrays: int
) -> None:
    indicator = INDICATORS[name]

    assert indicator.extra_memory(indicator.complete(case), "float32", frameworks()[backend]) == 4 * arrays
