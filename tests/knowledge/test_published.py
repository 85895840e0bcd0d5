"""Rows of published measurements: what they become."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from knowledge.domain.hardware import Driver
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.exchange.admission import implausibilities
from knowledge.exchange.published.columns import OPTIONAL, REQUIRED
from knowledge.exchange.published.names import read_task, read_word, task_names
from knowledge.exchange.published.observations import (
    read_published_content,
)
from knowledge.exchange.published.units import read_unit
from pi_runners.catalogue import Indicators
from tests.knowledge.published_tables import ROW, TODAY, reason, table, written


def only(**changes: str) -> Observation:
    """Return the observation of one row."""
    (observation,) = table({**ROW, **changes}).observations
    return observation


def test_a_row_is_one_observation_with_everything_that_it_says() -> None:
    o = only()

    assert (o.indicator.name, o.indicator.version, o.indicator.backend) == (PUBLISHED, 1, "torch")
    assert (o.indicator.device, o.indicator.dtype) == ("cuda", "as-published")
    assert o.indicator.parameters == {
        "task": "resnet50", "mode": "training", "batch": 256, "gpus": 1, "unit": "images", "data": "syn",
    }  # fmt: skip
    assert o.settings == {"precision": "amp", "channels_last": "on"}
    assert o.samples == (1 / 2500,)
    assert (o.loops, o.steady, o.round, o.arm, o.reference) == (1, True, 0, 0, False)
    assert o.block == "published/someone/benchmarks"
    assert o.metrics == {"value": 2500.0, "runs": 3.0}
    assert o.started_at == "2023-05-06T00:00:00+00:00"
    assert (o.stack.version_of("torch"), o.stack.cuda, o.stack.cudnn) == ("2.0.1", "11.8", "8.7.0")
    assert o.hardware.accelerators[0].model == "NVIDIA A100-SXM4-80GB"
    assert o.hardware.driver == Driver(version="525.85.12")
    assert o.hardware.cpu.model == "AMD EPYC 7742"
    assert o.environment["source"] == f"https://github.com/someone/benchmarks/blob/{'0' * 40}/results/table.csv"


def test_json_lines_and_gzip_give_the_same_observations() -> None:
    expected = table(ROW).observations
    lines = json.dumps({**ROW, "value": 2500, "gpus": 1, "batch": 256}).encode()

    assert read_published_content(lines, where="t.jsonl", today=TODAY).observations == expected
    assert read_published_content(gzip.compress(lines), where="t.jsonl.gz", today=TODAY).observations == expected
    assert read_published_content(gzip.compress(written(ROW)), where="t.csv.gz", today=TODAY).observations == expected


def test_only_the_required_columns_are_necessary() -> None:
    (o,) = table(ROW, columns=REQUIRED).observations

    assert o.stack.packages == ()
    assert o.environment["source"] == "https://github.com/someone/benchmarks"
    assert set(ROW) <= {*REQUIRED, *OPTIONAL}


def test_a_container_adds_the_versions_that_the_row_lacks() -> None:
    o = only(container="20.12", framework_version="", cuda="", cudnn="")

    assert {p.name: (p.version, p.index) for p in o.stack.packages} == {
        "cublas": ("11.3.0", "ngc"),
        "nccl": ("2.8.3", "ngc"),
        "tensorrt": ("7.2.2", "ngc"),
        "torch": ("1.8.0a0+1606899", "ngc"),
    }
    assert (o.stack.cuda, o.stack.cudnn, o.stack.python) == ("11.1.1", "8.0.5", "3.8")


def test_a_build_of_nvidia_belongs_to_its_container() -> None:
    assert only(framework_version="2.3.0a0+40ec155e58.nv24.03").environment["container"] == "24.03"
    assert only(framework_version="1.10.0a0+ecc3718", cudnn="..").environment["container"] == "21.07"
    # Two releases contain this build: which of them ran is unknown.
    ambiguous = only(framework_version="1.4.0a0+a5b4d78")
    assert "container" not in ambiguous.environment
    assert ambiguous.stack.packages[0].index == "ngc"


def test_the_folder_says_whether_a_container_of_tensorflow_holds_version_1_or_2() -> None:
    row = {"framework": "tensorflow", "framework_version": "", "container": "21.07"}

    assert only(**row, path="TensorFlow/A/README.md").stack.version_of("tensorflow") == "1.15.5"
    assert only(**row, path="TensorFlow2/A/README.md").stack.version_of("tensorflow") == "2.5.0"


def test_the_table_may_say_which_variant_of_a_gpu_ran() -> None:
    hardware = only(gpu="A100", settings="table=Training performance: NVIDIA DGX A100 (8x A100 80GB)").hardware

    assert hardware.accelerators[0].memory_bytes == 80 * 2**30
    assert only(gpu="A100", settings="").hardware.accelerators[0].memory_bytes is None
    # A table of another GPU says nothing.
    other = only(gpu="A100", settings="table=Training performance: NVIDIA DGX-1 (8x V100 16GB)").hardware
    assert other.accelerators[0].memory_bytes is None


def test_an_unknown_gpu_keeps_its_name_with_the_nearest_names_as_a_hint() -> None:
    result = table({**ROW, "gpu": "NVIDIA A1000-SXM9"})

    assert result.observations[0].hardware.accelerators[0].model == "NVIDIA A1000-SXM9"
    assert result.warnings[0].message == "the GPU `NVIDIA A1000-SXM9` is unknown and keeps its name"
    assert "`a100" in result.warnings[0].hint


def test_an_unknown_task_keeps_its_name_with_a_warning() -> None:
    result = table({**ROW, "task": "ResNeXt 2000"})

    assert result.observations[0].indicator.parameters["task"] == "resnext-2000"
    assert "the task `resnext-2000` is unknown" in result.warnings[0].message


@pytest.mark.parametrize(
    ("text", "name", "variant"),
    [
        ("Classification/ConvNets/resnet50v1.5", "resnet50", "v1.5"),
        ("resnet50", "resnet50", ""),
        ("SSD", "ssd300", ""),
        ("bert_large_squad", "bert_large", "squad"),
        ("transformerxlbase", "transformer_xl", "base"),
        ("LanguageModeling/Transformer-XL", "transformer_xl", ""),
        ("Translation/Transformer", "transformer", ""),
        ("Segmentation/UNet_3D_Medical", "unet3d", ""),
        ("SpeechSynthesis/HiFi-GAN", "hifigan", ""),
        ("SpeechSynthesis/HiFiGAN", "hifigan", ""),
        ("Forecasting/TFT/TemporalFusionTransformers/tft_pyt", "tft", ""),
        ("DrugDiscovery/SE3Transformer", "se3_transformer", ""),
    ],
)
def test_tasks_have_one_name(text: str, name: str, variant: str) -> None:
    task = read_task(text)

    assert (task.name, task.variant, task.listed) == (name, variant, True)


def test_tasks_are_named_as_this_program_names_them() -> None:
    from pi_runners.models import NETWORKS

    shared = {"resnet50", "bert_base", "mobilenet_v2", "unet", "gpt2", "dlrm"}

    assert shared <= set(task_names()) & set(NETWORKS)


@pytest.mark.parametrize(
    ("text", "name", "factor", "lower"),
    [
        ("images/s", "images", 1.0, False),
        ("Throughput TF32 mol/ms", "molecules", 1000.0, False),
        ("Throughput (samples / s)", "samples", 1.0, False),
        ("Throughput Mixed precision (tok/s)", "tokens", 1.0, False),
        ("Throughput samples/sAMP", "samples", 1.0, False),
        ("TensorRT FP16 Throughput (sequences/seco", "sequences", 1.0, False),
        ("Frames/s with mixed precision", "frames", 1.0, False),
        ("AMP items/sec", "items", 1.0, False),
        ("Throughput mixed precisionASP", "items", 1.0, False),
        ("Throughput FP32 (BS40)", "items", 1.0, False),
        ("Msamples/s", "samples", 1e6, False),
        ("k tokens per second", "tokens", 1e3, False),
        ("images/s/GPU", "images per device", 1.0, False),
        ("tokens/s per GPU", "tokens per device", 1.0, False),
        ("ktokens/device/sec", "tokens per device", 1e3, False),
        ("throughput per card", "items per device", 1.0, False),
        ("tokens/s/user", "tokens per user", 1.0, False),
        ("latency per user (ms)", "latency", 1e-3, True),
        ("latency (ms)", "latency", 1e-3, True),
        ("average latency, seconds", "latency", 1.0, True),
        ("ms", "latency", 1e-3, True),
    ],
)
def test_units_are_normalised(text: str, name: str, factor: float, lower: bool) -> None:
    unit = read_unit(text)

    assert (unit.name, unit.lower) == (name, lower)
    assert unit.factor == pytest.approx(factor)


def test_a_rate_of_each_gpu_becomes_that_of_all_where_their_number_is_stated() -> None:
    result = table(*({**ROW, "gpus": n, "unit": "images/s/GPU"} for n in ("1", "8", "16")))
    (unstated,) = table({**ROW, "gpus": "", "unit": "images/s/GPU"}).observations

    assert [o.indicator.parameters["unit"] for o in result.observations] == ["images"] * 3
    assert [o.samples[0] for o in result.observations] == [0.0004, 0.0004 / 8, 0.0004 / 16]
    assert result.skipped == ()
    assert (unstated.indicator.parameters["unit"], unstated.samples) == ("images per device", (0.0004,))


def test_rates_of_each_gpu_and_of_all_in_one_table_are_converted_where_the_number_is_stated() -> None:
    of_each = {**ROW, "unit": "images/s/GPU", "value": "2400"}

    result = table(ROW, {**of_each, "gpus": "4"}, {**of_each, "gpus": ""})

    assert [(o.indicator.parameters["unit"], o.samples) for o in result.observations] == [
        ("images", (0.0004,)),
        ("images", (pytest.approx(1 / 9600, rel=1e-5),)),
    ]
    (skipped,) = result.skipped
    assert skipped.number == 4
    assert "does not state the number of devices" in skipped.reason


def test_a_rate_of_each_gpu_and_the_same_rate_of_all_are_duplicates() -> None:
    result = table({**ROW, "gpus": "8", "value": "8000"}, {**ROW, "gpus": "8", "value": "1000", "unit": "images/s/GPU"})

    assert [o.metrics["value"] for o in result.observations] == [8000.0]
    assert result.duplicates == (3,)


def test_rates_of_each_user_and_of_all_in_one_table_are_converted_where_the_number_is_stated() -> None:
    rate = {**ROW, "task": "gpt2", "phase": "inference", "unit": "tokens/s"}
    of_each = {**rate, "unit": "tokens/s/user", "value": "50"}

    result = table(rate, {**of_each, "settings": "concurrency=40"}, of_each)

    assert [o.indicator.parameters["unit"] for o in result.observations] == ["tokens", "tokens"]
    assert result.observations[1].samples == (0.0005,)
    assert "does not state the number of users" in result.skipped[0].reason


def test_a_latency_is_that_of_its_batch() -> None:
    o = only(value="20", unit="latency (ms)", better="lower", batch="8")

    assert o.samples == (0.0025,)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("TF32", "tf32"),
        ("mixed precision", "amp"),
        ("AMP", "amp"),
        ("fp16", "fp16"),
        ("float32", "fp32"),
        ("BF16", "bf16"),
    ],
)
def test_precisions_have_one_name(text: str, name: str) -> None:
    assert read_word("precision", text) == name


def test_frameworks_and_phases_have_one_name() -> None:
    assert [read_word("framework", text) for text in ("PyTorch", "TensorFlow 2", "MXNet")] == [
        "torch",
        "tensorflow",
        "mxnet",
    ]
    assert [read_word("phase", text) for text in ("Train", "inference")] == ["training", "inference"]


def test_the_unit_quotes_the_head_of_the_table_and_counts_more_than_the_column() -> None:
    result = table({**ROW, "unit": "Throughput FP32 (img/s)", "precision": "amp"})

    assert result.observations[0].settings["precision"] == "fp32"
    assert "names another precision than their column" in result.warnings[0].message


@pytest.mark.parametrize(
    ("batch", "precision", "expected"),
    [
        ("131,072", "amp", 131072),
        ("10@FP16, 4@FP32", "fp32", 4),
        ("10@FP16, 4@FP32", "amp", 10),
        ("128 (FP32) / 256 (AMP)", "amp", 256),
        ("10240/5120", "amp", "10240/5120"),
        ("10 , 4", "amp", "10 , 4"),
        ("64k", "amp", "64k"),
        ("256.0", "amp", 256),
        ("1,000,000", "amp", 1_000_000),
    ],
)
def test_the_batch_of_the_precision_counts(batch: str, precision: str, expected: int | str) -> None:
    assert only(batch=batch, precision=precision).indicator.parameters["batch"] == expected


def test_nodes_of_a_table_are_machines_with_their_own_gpus() -> None:
    settings = "num nodes=4;table=Multi-node on NVIDIA DGX-2H V100 (16x V100 32GB)"
    hardware = only(gpu="V100", gpus="", settings=settings).hardware

    assert (hardware.nodes, hardware.accelerators[0].count) == (4, 16)


def test_paths_say_what_the_columns_of_a_repository_lack() -> None:
    row = {
        "repository": "lambdal/deeplearning-benchmark",
        "path": "pytorch/results/8xA100_p4",
        "runs": "1",
        "value": "18000",
    }
    tensorflow = {
        "repository": "lambdal/lambda-tensorflow-benchmark",
        "path": "logs/7742-A100*/real-replicated-fp16-2gpus-distortions-inference/resnet50-256",
    }

    assert only(**row).indicator.parameters["gpus"] == 8
    assert only(**row).environment["licence"] == "none stated; numbers cited as facts"
    assert only(**tensorflow).indicator.parameters["mode"] == "inference"
    assert only(**tensorflow).indicator.parameters["distortions"] == "distortions"
    assert str(only(**tensorflow).environment["source"]).endswith("/logs")
    assert "which of them ran is unknown" in reason(**{**row, "path": "pytorch/results/4xV100"})
    assert "its value may be a median of `8xA100_p4` and of hosts with other" in reason(**{**row, "runs": "4"})
    # The log of one process says how fast one GPU was.
    ssd = only(**row, task="SSD", settings="config=config_v0")
    assert ssd.metrics["value"] == 18000
    assert ssd.samples[0] == pytest.approx(1 / (8 * 18000), rel=1e-5)


def test_published_measurements_are_plausible_by_rules_of_their_own() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    sound = only()
    changed: list[tuple[Callable[[Observation], Observation], str]] = [
        (lambda o: _replace(o, samples=(1e-9,)), "times the peak of its hardware"),
        (lambda o: _replace(o, settings={}), "it does not say its `precision`"),
        (lambda o: _replace(o, environment={}), "`source`"),
        (lambda o: _replace(o, metrics={}), "a published measurement is one value"),
        (lambda o: _replace(o, started_at="2030-01-01T00:00:00+00:00"), "in the future"),
    ]

    assert list(implausibilities(sound, Indicators(), now=now)) == []
    for change, text in changed:
        assert any(text in line for line in implausibilities(change(sound), Indicators(), now=now)), text


def _replace(o: Observation, **changes: object) -> Observation:
    from dataclasses import replace

    return replace(o, **changes)  # type: ignore[arg-type]
