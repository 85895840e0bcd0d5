"""Descriptions of systems in all their spellings, and numbers that no database stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.exchange.files import observation_file, read_lines, read_observations
from knowledge.exchange.mlperf.descriptions import read_description
from knowledge.exchange.mlperf.systems import System, make_system
from knowledge.exchange.mlperf.tree import read_results
from knowledge.store.engine import open_knowledge_base

HUGE = 10**30
GPU: dict[str, object] = {
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
    "number_of_nodes": 2,
}


def system_of(fields: dict[str, object], *, benchmark: str = "bert") -> System:
    return make_system("box", read_description(json.dumps(fields)), benchmark=benchmark)


STACKS = {
    "mapping": {"cuda_version": "12.4.1", "cudnn_version": "9.1.0", "nccl_version": "2.21.5"},
    "list of a mapping": [{"cuda_version": "12.4.1", "cudnn_version": "9.1.0", "nccl_version": "2.21.5"}],
    "list of mappings": [{"cuda_version": "12.4.1"}, {"cudnn_version": "9.1.0"}, {"nccl_version": "2.21.5"}],
    "list of texts": ["CUDA 12.4.1", "cuDNN 9.1.0", "NCCL 2.21.5"],
    "table": [
        {"name": "CUDA", "version": "12.4.1"},
        {"name": "cuDNN", "version": "9.1.0"},
        {"name": "NCCL", "version": "2.21.5"},
    ],
    "rows": [["CUDA", "12.4.1"], ["cuDNN", "9.1.0"], ["NCCL", "2.21.5"]],
    "mapping of mappings": {
        "CUDA": {"version": "12.4.1"},
        "cuDNN": {"version": "9.1.0"},
        "NCCL": {"version": "2.21.5"},
    },
    "bare names": {"CUDA": "12.4.1", "cudnn_version": "9.1.0", "nccl_version": "2.21.5-1+cuda12.4"},
    "text": "CUDA 12.4.1, cuDNN v9.1.0; nccl_version: 2.21.5",
    "literal": "{'cuda_version': '12.4.1', 'cudnn_version': '9.1 .0', 'nccl_version': '2.21.5'}",
    "literal of a list": "[{'cuda_version': '12.4.1', 'cudnn_version': '9.1.0', 'nccl_version': '2.21.5'}]",
}


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_a_software_stack_is_read_in_every_form(stack: object) -> None:
    system = system_of({"framework": "PyTorch 2.3.0", "other_software_stack": stack, **GPU})

    assert (system.stack.cuda, system.stack.cudnn, system.stack.version_of("nccl")) == ("12.4.1", "9.1.0", "2.21.5")
    assert (system.software.framework, system.stack.version_of("torch")) == ("torch", "2.3.0")
    assert system.warnings == ()


@pytest.mark.parametrize(
    ("framework", "benchmark", "name", "version", "container"),
    [
        ("PyTorch NVIDIA Release 24.04", "bert", "torch", "2.3.0a0+6ddf5cf85e", "24.04"),
        ("NGC MXNet 24.04, NGC Pytorch 24.04", "resnet", "mxnet", "24.4", "24.04"),
        ("NVIDIA Release 24.09 MxNet, pytorch, dgl and 23.09 pytorch", "resnet", "mxnet", "24.9", "24.09"),
        ("NVIDIA Release 24.09 MxNet, pytorch, dgl and 23.09 pytorch", "bert", "torch", None, ""),
        ("DGL, Merlin HugeCTR NVIDIA Release 25.03; PyTorch NVIDIA Release 25.04", "rgat", "dgl", "25.3", "25.03"),
        ("PyTorch, NeMo, HugeCTR, DGL NVIDIA Release 24.09", "llama2_70b_lora", "nemo-toolkit", "24.9", "24.09"),
        ("TensorRT 8.4.2, CUDA 11.6", "bert-99", "tensorrt", "8.4.2", ""),
        ("PyTorch 2.6.0a0+gitfc899bf", "bert", "torch", "2.6.0a0+gitfc899bf", ""),
        ("TFLite v2.7.1 (ruy)", "resnet50", "tflite-runtime", "2.7.1", ""),
        ("ONNX runtime v1.12 with GPU support", "bert-99", "onnxruntime", "1.12", ""),
        ("Sapphire SDK v0.52", "bert-99", "sapphire-sdk", "0.52", ""),
        ("ROCm 6.4.0-47", "bert", "unknown", None, ""),
        ("NGC MLPerf v4.0", "bert", "unknown", None, ""),
    ],
)
def test_the_framework_of_a_benchmark_is_read_with_its_version(
    framework: str, benchmark: str, name: str, version: str | None, container: str
) -> None:
    system = system_of({"framework": framework, **GPU}, benchmark=benchmark)

    assert (system.software.framework, system.stack.version_of(name), system.software.container) == (
        name,
        version,
        container,
    )


def test_the_contents_of_a_container_complete_a_description() -> None:
    system = system_of(
        {"framework": "PyTorch NVIDIA Release 24.04", "other_software_stack": {"cuda_version": "12.5"}, **GPU}
    )

    assert (system.stack.cuda, system.stack.cudnn) == ("12.5", "9.1.0.70")
    assert "cudnn" in system.software.expanded
    assert "cuda" not in system.software.expanded


def test_the_installed_driver_is_not_that_of_the_container() -> None:
    stack = {"cuda_driver_version": "550.54.15", "nvidia_kernel_driver": "535.129.03"}
    both, one = (
        system_of({"framework": "PyTorch", "other_software_stack": s, **GPU})
        for s in (stack, {"nvidia_kernel_driver": "535.129.03"})
    )

    assert both.stack.version_of("nvidia-driver") == "550.54.15"
    assert both.stack.version_of("nvidia-kernel-driver") == "535.129.3"
    assert one.stack.version_of("nvidia-driver") == "535.129.3"


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"cuda_version": "12.2; 12.4"}, "`cuda_version` is `12.2; 12.4`: several versions"),
        ({"cuda_version": "122"}, "`cuda_version` is `122`: not a version"),
        ({"accelerators_per_node": "many"}, "`accelerators_per_node` is `many`: not a count"),
        ({"accelerators_per_node": HUGE}, "not a count"),
        ({"framework": "PyTorch NVIDIA Release 22.09 or 22.04"}, "several releases of torch"),
        ({"accelerator_model_name": "Warp Drive 9"}, "accelerator `Warp Drive 9` is not in the catalogue"),
        ({"accelerator_model_name": "NVIDIA H1000"}, "similar: "),
    ],
)
def test_what_is_not_understood_is_a_warning(fields: dict[str, object], warning: str) -> None:
    system = system_of({"framework": "PyTorch", **GPU, **fields})

    assert any(warning in text for text in system.warnings), system.warnings


def test_an_accelerator_that_nobody_knows_keeps_its_name_and_is_not_the_cpu() -> None:
    system = system_of({"accelerators_per_node": "4", "accelerator_model_name": "Warp Drive 9", "framework": "PyTorch"})

    (accelerator,) = system.hardware.accelerators
    assert (accelerator.model, accelerator.count, system.device) == ("Warp Drive 9", 4, "accelerator")


@pytest.mark.parametrize(
    ("name", "model", "partition"),
    [
        ("NVIDIA A100-SXM-80GB (7x1g.10gb MIG)", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "mig"),
        ("NVIDIA GRID T4-16Q", "Tesla T4", "vgpu"),
        ("NVIDIA A100-PCIe-40GB", "NVIDIA A100-PCIE-40GB", ""),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", ""),
    ],
)
def test_parts_and_variants_of_a_gpu_are_told_apart(name: str, model: str, partition: str) -> None:
    system = system_of({"accelerators_per_node": 1, "accelerator_model_name": name, "framework": "TensorRT 8.0.1"})

    (accelerator,) = system.hardware.accelerators
    assert (accelerator.model, accelerator.partition) == (model, partition)


def test_a_machine_of_arm_is_no_x86_machine() -> None:
    system = system_of({"host_processor_model_name": "Neoverse-V2", "framework": "PyTorch", **GPU})

    assert (system.hardware.cpu.architecture, system.stack.platform) == ("aarch64", "linux_aarch64")


_NUMBERS = st.one_of(
    st.integers(min_value=-(10**40), max_value=10**40),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(),
    st.text(max_size=20),
)


@given(values=st.fixed_dictionaries(dict.fromkeys(("seed", "quality", "epoch", "start", "stop", "count"), _NUMBERS)))
def test_no_number_ends_an_import_with_a_traceback(
    values: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    records = [
        {"time_ms": values["start"], "key": "run_start", "value": None, "metadata": {}},
        {"time_ms": 1_700_000_000_000, "key": "run_start", "value": None, "metadata": {}},
        {"time_ms": 1_700_000_000_000, "key": "seed", "value": values["seed"], "metadata": {}},
        {"key": "eval_accuracy", "value": values["quality"], "time_ms": 1, "metadata": {"epoch_num": values["epoch"]}},
        {"time_ms": values["stop"], "key": "run_stop", "value": None, "metadata": {"status": "success"}},
        {"time_ms": 1_700_000_100_000, "key": "run_stop", "value": None, "metadata": {"status": "success"}},
    ]
    log = "".join(f":::MLLOG {json.dumps(record)}\n" for record in records)
    fields = {**GPU, "framework": "PyTorch 2.0", "number_of_nodes": values["count"], "host_processors_per_node": HUGE}
    for name, text in (("systems/box.json", json.dumps(fields)), ("results/box/bert/result_0.txt", log)):
        path = folder / "v4.0" / "us" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)

    results = read_results(folder / "v4.0")

    assert len(results.observations) + len(results.skipped) >= 1
    content = observation_file(results.observations)
    assert tuple(read_observations(read_lines(content, where="f"), where="f")) == results.observations
    with open_knowledge_base("sqlite://", shipped=False) as store:
        store.add(results.observations)


@pytest.mark.parametrize("number", [2**31, HUGE])
def test_a_run_with_a_number_of_many_digits_is_listed(tmp_path: Path, number: int) -> None:
    path = tmp_path / "v4.0" / "us" / "results" / "box" / "bert" / f"result_{number}.txt"
    path.parent.mkdir(parents=True)
    path.write_text(':::MLLOG {"time_ms": 1000, "key": "run_start"}\n:::MLLOG {"time_ms": 2000, "key": "run_stop"}\n')

    (skipped,) = read_results(tmp_path).skipped

    assert skipped.reason == "it cannot be read: the number of the run has more than 9 digits"
