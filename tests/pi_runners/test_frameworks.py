"""The suite on the real frameworks: every small case is right, or the backend says that it lacks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Advisor

OPERATIONS = (
    *("matmul", "conv1d", "conv2d", "conv3d", "recurrent", "attention", "embedding", "elementwise", "reduction"),
    *("softmax", "normalisation", "fft", "sort"),
)
QUICK = ("--rounds", "1", "--samples", "2", "--min-time", "0.001", "--no-aa", "-o", "block.jsonl")


def measure(advisor: Advisor, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    completed = advisor("pi", "run", *arguments, *QUICK)
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(line) for line in (folder / "block.jsonl").read_text().splitlines()]
    measured = [r["record"] for r in records if r["kind"] == "observation"]
    assert measured
    return measured


def failures(observations: list[dict[str, Any]]) -> list[str]:
    return [
        f"{o['indicator']['name']} {o['indicator']['dtype']} {o['indicator']['parameters']}: {o['status']}: "
        f"{o['failure'][-300:]}"
        for o in observations
        if o["status"] not in ("ok", "unsupported")
    ]


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("stack", ["torch==2.13.0", "tensorflow-cpu", "tensorflow-cpu==2.12.1", "jax", "onnxruntime"])
def test_every_small_case_runs_or_is_reported_as_unsupported(advisor: Advisor, tmp_path: Path, stack: str) -> None:
    rest = () if stack == "onnxruntime" else ("training_step", "time_to_quality")

    measured = measure(advisor, tmp_path, *OPERATIONS, *rest, "memory", "startup", "--stack", stack)

    assert failures(measured) == []
    # STREAM's copy is optimised away by two of them.
    assert {o["indicator"]["name"] for o in measured if o["status"] == "unsupported"} <= {"memory"}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("stack", ["torch==2.13.0", "tensorflow-cpu", "jax", "onnxruntime"])
def test_other_element_types_run_or_are_reported_as_unsupported(advisor: Advisor, tmp_path: Path, stack: str) -> None:
    types = [word for dtype in ("float64", "float16", "bfloat16", "int8") for word in ("--dtype", dtype)]

    measured = measure(advisor, tmp_path, *OPERATIONS, "--stack", stack, *types)

    assert failures(measured) == []
    ran = {o["indicator"]["dtype"] for o in measured if o["status"] == "ok" and o["indicator"]["name"] == "matmul"}
    assert {"float64", "float16", "int8"} <= ran


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_processes_communicate_and_training_scales(advisor: Advisor, tmp_path: Path) -> None:
    measured = measure(advisor, tmp_path, "communication", "--stack", "torch==2.13.0")

    assert failures(measured) == []
    assert {o["indicator"]["parameters"]["pattern"] for o in measured} == {
        *("all_reduce", "broadcast", "latency", "bandwidth", "parameter_server", "scaling"),
    }


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    ("stack", "settings"),
    [
        ("torch==2.13.0", ("onednn=off", "compile=on", "amp=bfloat16", "memory_format=channels_last", "isa=avx2")),
        ("tensorflow-cpu", ("onednn=off", "xla=on", "amp=bfloat16", "isa=avx2", "numa=0")),
        ("jax", ("threads=1", "isa=avx2")),
    ],
)
def test_settings_change_the_run_and_not_the_result(
    advisor: Advisor, tmp_path: Path, stack: str, settings: tuple[str, ...]
) -> None:
    for setting in settings:
        measured = measure(
            advisor, tmp_path, "matmul", "conv2d", "--stack", stack, "--settings", setting, "--samples", "3"
        )

        name, _, value = setting.partition("=")
        assert failures(measured) == []
        assert {str(o["settings"].get(name)) for o in measured} == {"None", value}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_queries_are_sent_by_loadgen(advisor: Advisor, tmp_path: Path) -> None:
    measured = measure(advisor, tmp_path, "inference", "--stack", "onnxruntime", "--stack", "jax")

    assert failures(measured) == []
    assert all(o["metrics"]["loadgen"] == 1.0 for o in measured)
    assert len(measured) == 16
