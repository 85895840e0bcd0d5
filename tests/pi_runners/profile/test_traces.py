"""Recorded traces of the real frameworks give the operations of their programs, with their shapes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from pi_runners.indicators import INDICATORS
from pi_runners.profile.read import read_trace
from pi_runners.profile.summary import workload_of

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


def workload(path: Path, *, steps: int = 0) -> ProfiledWorkload:
    """Return the workload of a trace."""
    return workload_of(read_trace(path, steps=steps), name="w", source=path.name)


def unpacked(name: str, folder: Path) -> Path:
    """Return a recorded trace without its compression."""
    path = folder / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((TRACES / name).read_bytes()))
    return path


def part(workload: ProfiledWorkload, indicator: str, direction: str = "forward", **parameters: Any) -> WorkloadPart:
    """Return the only part with these parameters; others may be present, too."""
    matches = [
        p
        for p in workload.parts
        if (p.indicator, p.direction) == (indicator, direction) and p.parameters.items() >= parameters.items()
    ]
    assert len(matches) == 1, [p.label for p in workload.parts]
    return matches[0]


def test_a_trace_of_torch_has_every_convolution_in_both_directions() -> None:
    result = workload(TRACES / "torch-cnn.json.gz")

    assert (result.framework, result.device, result.steps) == ("torch", "cpu", 2)
    for direction in ("forward", "backward"):
        first = part(result, "conv2d", direction, channels=3)
        assert first.parameters.items() >= {"batch": 4, "channels": 3, "filters": 32, "size": 32, "kernel": 3}.items()
        assert (first.dtype, first.calls) == ("float32", 1)
        part(result, "conv2d", direction, channels=32, filters=64, kernel=3, size=32, stride=2)
        part(result, "conv2d", direction, channels=32, filters=64, kernel=1, size=32, stride=2)
        part(result, "conv2d", direction, channels=128, filters=128, kernel=3, size=8)
    claims = read_trace(TRACES / "torch-cnn.json.gz").division.claims
    norms = [c for c in claims if c.indicator == "normalisation" and dict(c.parameters)["rows"] == 4 * 16 * 16]
    assert {c.direction for c in norms} == {"forward", "backward"}
    assert result.layers["DNN library"] > result.layers["BLAS"]
    assert 0 < result.layers["input pipeline"] < 0.2
    kernels = [kernel.name for kernel in result.kernels[:2]]
    assert sorted(kernels) == ["aten::convolution_backward", "aten::mkldnn_convolution"]


def test_a_profile_of_onnxruntime_has_the_operators_of_the_model() -> None:
    result = workload(TRACES / "onnxruntime-cnn.json.gz")

    assert (result.framework, result.steps) == ("onnxruntime", 4)
    conv = part(result, "conv2d", channels=32)
    assert dict(conv.parameters) == {
        "batch": 2, "channels": 32, "filters": 64, "kernel": 3, "size": 32, "stride": 2,
    }  # fmt: skip
    part(result, "conv2d", channels=3, filters=32, size=32)
    # The weights of the product are packed, and not among its inputs.
    assert dict(part(result, "matmul").parameters) == {"m": 2, "n": 10, "k": 128}
    assert result.layers["Python"] > 0.1


def test_a_trace_of_jax_has_the_shapes_of_the_compiled_module(tmp_path: Path) -> None:
    result = workload(unpacked("jax-step.xplane.pb.gz", tmp_path), steps=2)

    assert (result.framework, result.framework_version) == ("jax", "0.10.2")
    products = [dict(p.parameters) for p in result.parts if p.indicator == "matmul"]
    assert {"m": 8, "n": 2048, "k": 256} in products
    assert {"m": 8, "n": 32, "k": 512} in products
    assert {"m": 256, "n": 2048, "k": 8, "transpose_a": "yes"} in products
    forward = part(result, "conv2d")
    assert forward.parameters.items() >= {"batch": 8, "channels": 16, "filters": 16, "kernel": 3, "stride": 2}.items()
    assert part(result, "conv2d", "backward").parameters == {}


def test_a_trace_of_jax_in_chromes_format_has_no_shapes() -> None:
    result = workload(TRACES / "jax-step.trace.json.gz", steps=2)

    assert result.framework == "jax"
    assert part(result, "conv2d").parameters == {}
    assert part(result, "matmul").parameters == {}


def test_a_directory_of_traces_is_read(tmp_path: Path) -> None:
    older, newer = (tmp_path / "plugins" / "profile" / day for day in ("2026_01_01", "2026_01_02"))
    for folder in (older, newer):
        folder.mkdir(parents=True)
    (older / "a.xplane.pb").write_bytes(b"")
    unpacked("jax-step.xplane.pb.gz", newer)

    assert workload(tmp_path).framework == "jax"


def test_a_trace_of_keras_has_the_kinds_of_operations(tmp_path: Path) -> None:
    result = workload(unpacked("keras-text.xplane.pb.gz", tmp_path), steps=2)

    assert (result.framework, result.steps) == ("tensorflow", 2)
    assert {"matmul", "elementwise", "softmax", "embedding", "reduction"} <= {p.indicator for p in result.parts}
    assert result.layers["BLAS"] > 0.05


def test_the_graphs_of_a_program_give_the_shapes_of_tensorflows_operations(tmp_path: Path) -> None:
    profile = tmp_path / "plugins" / "profile" / "2026_01_01"
    profile.mkdir(parents=True)
    unpacked("keras-text.xplane.pb.gz", profile)
    unpacked("keras-text.graphs.json.gz", tmp_path).rename(tmp_path / "graphs.json")

    claims = read_trace(tmp_path, steps=2).division.claims

    products = [dict(c.parameters) for c in claims if c.indicator == "matmul"]
    length, width, heads, batch = 128, 128, 4, 8
    assert {"m": batch * length, "n": 512, "k": width} in products
    assert {"m": batch * length, "n": width, "k": 512, "transpose_b": "yes"} in products
    # Queries and keys are multiplied by an `einsum`, with the heads as a batch.
    assert {"batch": batch * heads, "m": length, "n": length, "k": width // heads} in products
    # The last layer is fused with its bias: a `_MklNativeFusedMatMul` with the name of the `BiasAdd`.
    assert {"m": batch, "n": 4, "k": 512} in products
    softmax = [dict(c.parameters) for c in claims if c.indicator == "softmax"]
    assert {"rows": batch * heads * length, "columns": length} in softmax
    embeddings = {c.direction: dict(c.parameters) for c in claims if c.indicator == "embedding" and c.parameters}
    assert embeddings["backward"] == {"rows": 20_000, "width": width, "lookups": batch * length}


@pytest.mark.parametrize(
    "name",
    ["torch-cnn.json.gz", "onnxruntime-cnn.json.gz", "jax-step.xplane.pb.gz", "keras-text.xplane.pb.gz"],
)
def test_every_part_can_be_measured_and_the_shares_add_up(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path) if ".pb" in name else TRACES / name

    result = workload(path, steps=2)

    assert sum(p.share for p in result.parts) + result.unattributed == pytest.approx(1)
    assert sum(result.layers.values()) == pytest.approx(1)
    for p in result.parts:
        assert not p.parameters or INDICATORS[p.indicator].complaints(dict(p.parameters)) == []


def events_of_a_gpu() -> list[dict[str, Any]]:
    """Return a step as torch.profiler writes it with CUDA: launches and kernels share a correlation."""
    cpu: dict[str, Any] = {"ph": "X", "pid": 1, "tid": 1}
    gpu = {"ph": "X", "pid": 0, "tid": 7}
    product = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::Half", "c10::Half"]}
    return [
        {**cpu, "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0, "dur": 100},
        {**cpu, "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 20, "args": {**product, "External id": 1}},
        {**cpu, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10, "dur": 5, "args": {"correlation": 9}},
        {**cpu, "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": 30, "dur": 60, "args": {}},
        {**gpu, "cat": "kernel", "name": "ampere_fp16_s16816gemm", "ts": 20, "dur": 50, "args": {"correlation": 9}},
        {**gpu, "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 70, "dur": 10, "args": {"correlation": 4}},
        {**gpu, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 80, "dur": 5, "args": {"correlation": 5}},
    ]


def test_kernels_of_a_gpu_count_for_the_operation_that_started_them(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}
    path.write_text(json.dumps({**device, "traceEvents": events_of_a_gpu()}))

    result = workload(path)

    assert (result.device, result.hardware, result.steps) == ("cuda", "NVIDIA H100", 1)
    product = part(result, "matmul", m=64, n=16, k=32)
    assert product.share == pytest.approx(0.65)  # 15 us before the kernel, and 50 us in it.
    assert product.dtype == "float16"
    assert result.layers["communication"] == pytest.approx(0.1)
    assert result.layers["memory copies"] == pytest.approx(0.05)


def changed(change: Callable[[dict[str, Any]], None], folder: Path) -> Path:
    """Return the recorded trace of torch with changed events."""
    document = json.loads(gzip.decompress((TRACES / "torch-cnn.json.gz").read_bytes()))
    for event in document["traceEvents"]:
        change(event)
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    return path


def test_without_shapes_the_parts_have_no_parameters(tmp_path: Path) -> None:
    def without_shapes(event: dict[str, Any]) -> None:
        for key in ("Input Dims", "Input type", "Concrete Inputs"):
            event.get("args", {}).pop(key, None)

    summary = read_trace(changed(without_shapes, tmp_path))

    assert all(claim.parameters == () for claim in summary.division.claims)
    assert summary.warnings == ("the trace has operations without shapes: record it with `record_shapes=True`",)


def test_without_steps_the_whole_trace_counts(tmp_path: Path) -> None:
    def without_steps(event: dict[str, Any]) -> None:
        if event["name"].startswith("ProfilerStep"):
            event["name"] = "mine"

    summary = read_trace(changed(without_steps, tmp_path))

    assert summary.steps == 0
    assert summary.seconds > 0


def test_a_trace_is_read_without_the_readers_of_other_frameworks() -> None:
    program = (
        "import sys; from pathlib import Path; from pi_runners.profile.read import read_trace\n"
        "read_trace(Path(sys.argv[1]))\n"
        "print(*(m for m in sys.modules if m.startswith('google') or '.profile.trace' in m))"
    )
    command = [sys.executable, "-c", program, str(TRACES / "torch-cnn.json.gz")]

    result = subprocess.run(command, capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["pi_runners.frameworks.torch.profile.trace"]
