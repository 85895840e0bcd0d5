"""The indicators on the real frameworks: every small case is correct or reported as unsupported."""

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
ROUNDING = ("matmul_precision=medium", "fpmath=bfloat16")
"""Settings that PyTorch applies only on processors which multiply bfloat16 fast; all with AMX do."""
QUICK_OPTIONS = ("--rounds", "1", "--samples", "2", "--min-time", "0.001", "--no-aa", "-o", "block.jsonl")


def measure(advisor: Advisor, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    completed = advisor("pi", "run", *arguments, *QUICK_OPTIONS)
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(line) for line in (folder / "block.jsonl").read_text().splitlines()]
    observations = [r["record"] for r in records if r["kind"] == "observation"]
    assert observations
    return observations


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
def test_every_small_case_succeeds_or_is_unsupported(advisor: Advisor, tmp_path: Path, stack: str) -> None:
    training = () if stack == "onnxruntime" else ("training_step", "time_to_quality")

    observations = measure(advisor, tmp_path, *OPERATIONS, *training, "memory", "startup", "--stack", stack)

    assert failures(observations) == []
    assert [o["indicator"] for o in observations if o["status"] == "unsupported"] == []


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("stack", ["torch==2.13.0", "tensorflow-cpu", "jax", "onnxruntime"])
def test_other_element_types_succeed_or_are_unsupported(advisor: Advisor, tmp_path: Path, stack: str) -> None:
    types = [word for dtype in ("float64", "float16", "bfloat16", "int8") for word in ("--dtype", dtype)]

    observations = measure(advisor, tmp_path, *OPERATIONS, "--stack", stack, *types)

    assert failures(observations) == []
    measured = {(o["indicator"]["name"], o["indicator"]["dtype"]) for o in observations if o["status"] == "ok"}
    assert {("matmul", dtype) for dtype in ("float64", "float16", "int8")} <= measured


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_every_communication_pattern_is_measured(advisor: Advisor, tmp_path: Path) -> None:
    observations = measure(advisor, tmp_path, "communication", "--stack", "torch==2.13.0")

    assert failures(observations) == []
    assert {o["indicator"]["parameters"]["pattern"] for o in observations} == {
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
def test_results_are_correct_under_every_setting(
    advisor: Advisor, tmp_path: Path, stack: str, settings: tuple[str, ...]
) -> None:
    for setting in settings:
        observations = measure(
            advisor, tmp_path, "matmul", "conv2d", "--stack", stack, "--settings", setting, "--samples", "3"
        )

        name, _, value = setting.partition("=")
        assert failures(observations) == []
        assert {str(o["settings"].get(name)) for o in observations} == {"None", value}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    ("stack", "mode", "applied", "refused"),
    [
        (
            "torch==2.13.0",
            "inference",
            (
                *("amp=bfloat16", "memory_format=channels_last", "grad_mode=inference_mode", "interop_threads=1"),
                *("matmul_precision=medium", "fpmath=bfloat16", "flush_denormal=on", "binding=close", "compile=on"),
            ),
            ("sdpa=math",),
        ),
        ("torch==2.13.0", "training", ("amp=bfloat16", "compile=on"), ("grad_mode=no_grad",)),
        ("tensorflow-cpu", "inference", ("amp=bfloat16", "xla=on", "xla=auto", "interop_threads=1"), ()),
        ("tensorflow-cpu==2.12.1", "training", ("amp=bfloat16",), ()),
        ("tensorflow-cpu", "training", ("amp=bfloat16",), ()),
        ("jax", "inference", ("multi_thread_eigen=off", "fast_math=on"), ("cpu_scheduler=memory",)),
        (
            "onnxruntime",
            "inference",
            ("graph_optimisation=basic", "execution_mode=parallel", "spinning=off", "flush_denormal=on"),
            ("interop_threads=1", "execution_provider=openvino"),
        ),
    ],
)
def test_a_model_is_correct_under_settings_and_those_without_effect_are_unsupported(
    advisor: Advisor, tmp_path: Path, stack: str, mode: str, applied: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    case = f"block=inverted_residual_block,mode={mode},batch=2,size=8,width=96"
    for setting in (*applied, *refused):
        observations = measure(
            advisor, tmp_path, "block", "--parameters", case, "--stack", stack, "--settings", setting
        )

        name, _, value = setting.partition("=")
        [status] = [o["status"] for o in observations if str(o["settings"].get(name)) == value]
        assert failures(observations) == []
        if setting not in ROUNDING or "amx_bf16" in Path("/proc/cpuinfo").read_text():
            assert status == ("ok" if setting in applied else "unsupported"), setting


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.usefixtures("network")
def test_loadgen_sends_the_queries_of_inference(advisor: Advisor, tmp_path: Path) -> None:
    observations = measure(advisor, tmp_path, "inference", "--stack", "onnxruntime", "--stack", "jax")

    assert failures(observations) == []
    assert all(o["metrics"]["loadgen"] == 1.0 for o in observations)
    assert len(observations) == 16
