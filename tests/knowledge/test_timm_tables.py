"""Tables of timm's benchmark: what their rows become."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.estimate.compared_settings import ComparedSetting, setting_change
from knowledge.evidence.block_evidence import evidence_of
from knowledge.exchange.admission import implausibilities
from knowledge.exchange.published.observations import read_published, read_published_content
from knowledge.exchange.published.timm import read_name
from pi_runners.catalogue import Indicators
from tests.knowledge.timm_files import REAL, TABLES

HEADER = b"model,train_img_size,train_batch_size,train_samples_per_sec,train_gmacs,train_macts,param_count\n"


def rows_of(name: str) -> Mapping[tuple[str, int], Observation]:
    """Return the observations of a table, by model and image size."""
    table = read_published(TABLES / f"benchmark-{name}.csv")
    return {
        (str(o.indicator.parameters["task"]), int(o.indicator.parameters["image_size"])): o for o in table.observations
    }


def test_a_row_has_what_the_name_of_its_file_states() -> None:
    o = rows_of("infer-amp-nchw-pt291-cu130-5090-dynamo")["timm/resnet50", 224]

    assert (o.indicator.name, o.indicator.backend, o.indicator.device) == (PUBLISHED, "torch", "cuda")
    assert o.indicator.parameters == {
        "task": "timm/resnet50", "mode": "inference", "batch": 1024, "gpus": 1, "unit": "images", "image_size": 224,
    }  # fmt: skip
    assert o.settings == {"precision": "amp", "compile": "on"}
    assert (o.stack.version_of("torch"), o.stack.cuda) == ("2.9.1", "13.0")
    assert o.hardware.accelerators[0].model == "NVIDIA GeForce RTX 5090"
    assert o.block == "published/huggingface/pytorch-image-models"
    assert o.environment["licence"] == "Apache-2.0"
    assert o.flops == pytest.approx(2 * 4.11e9)
    assert o.bytes == pytest.approx(4e6 * (25.56 / 1024 + 4 * 11.11), rel=1e-4)
    assert list(implausibilities(o, Indicators(), now=datetime(2026, 11, 1, tzinfo=UTC))) == []


def test_a_training_step_counts_three_times_and_a_row_without_counts_has_none() -> None:
    content = HEADER + b"resnet50,224,256,826.06,4.11,11.11,25.56\n"

    (counted,) = read_published_content(content, where="benchmark-train-amp-nhwc-pt240-cu124-rtx3090.csv").observations
    plain = rows_of("train-amp-nhwc-pt112-cu113-rtx3090")["timm/resnet50", 224]

    assert counted.indicator.parameters["mode"] == "training"
    assert counted.flops == pytest.approx(6 * 4.11e9)
    assert (plain.indicator.parameters["mode"], plain.flops, plain.bytes) == ("training", 0.0, 0.0)
    assert plain.settings == {"precision": "amp", "channels_last": "on"}


def test_a_processor_has_its_microarchitecture_and_is_no_other_one() -> None:
    (o, *_) = rows_of("infer-fp32-nchw-pt221-cpu-i9_10940x-dynamo").values()

    assert (o.hardware.cpu.model, o.hardware.cpu.microarchitecture) == ("Intel Core i9-10940X", "cascadelake")
    assert (o.indicator.device, o.hardware.name) == ("cpu", "Intel Core i9-10940X")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("infer-amp-nchw-pt113-cu117-rtx3090", ("1.13", "11.7", "amp", "rtx3090")),
        ("infer-amp_bf16-nchw-pt291-cu130-pro6000maxq", ("2.9.1", "13.0", "amp bf16", "pro6000maxq")),
        ("infer-float32-nchw-pt2100-cu130-h100", ("2.10.0", "13.0", "float32", "h100")),
        ("train-bf16-nhwc-pt201-cpu-epyc_9654", ("2.0.1", "", "bf16", "cpu")),
    ],
)
def test_versions_in_names_of_files_are_read(name: str, expected: tuple[str, ...]) -> None:
    stated = read_name(f"results/benchmark-{name}.csv.gz")

    assert tuple(stated[column] for column in ("framework_version", "cuda", "precision", "gpu")) == expected


@pytest.mark.parametrize("name", ["table.csv", "benchmark-infer-amp-nchw-cu117-rtx3090.csv", "results-imagenet.csv"])
def test_a_table_whose_name_says_nothing_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copy(TABLES / "benchmark-infer-amp-nchw-pt291-cu130-5090.csv", path)

    with pytest.raises(InputError, match=f"`{name}` is a table of timm, but") as error:
        read_published(path)

    assert "benchmark-infer-amp-nchw-pt240-cu124-rtx3090-dynamo.csv" in error.value.hint


def test_rows_without_a_rate_are_skipped_and_named() -> None:
    table = read_published(TABLES / "benchmark-infer-amp-nchw-pt210-cu121-rtx3090.csv")

    (skipped,) = table.skipped
    assert "`value`" in skipped.reason
    assert len(table.observations) == table.rows - 1
    assert table.warnings == ()


def test_tables_that_differ_in_one_thing_are_compared_with_the_names_of_the_catalogue() -> None:
    names = (
        *("infer-amp-nchw-pt210-cu121-rtx3090", "infer-amp-nhwc-pt210-cu121-rtx3090"),
        *("infer-amp-nchw-pt240-cu124-rtx3090", "infer-amp-nchw-pt291-cu130-5090"),
        *("infer-amp-nchw-pt291-cu130-5090-dynamo", "infer-amp-nchw-pt291-cu130-pro6000maxq-dynamo"),
        *("infer-amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo", "infer-fp32-nchw-pt221-cpu-i9_10940x-dynamo"),
        "infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo",
    )

    contrasts = evidence_of(o for name in names for o in rows_of(name).values()).contrasts
    own = [c for c in contrasts if "image_size=224" in c.label and "task=timm/resnet50," in c.label]

    assert {(c.machine.name, setting_change(c) or (c.reference.version, c.side.version)) for c in own} == {
        ("NVIDIA GeForce RTX 3090", ("memory_format", "channels_last", "")),
        ("NVIDIA GeForce RTX 3090", ("2.1.0", "2.4.0")),
        ("NVIDIA GeForce RTX 5090", ("compile", "on", "")),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", ("precision", "amp_bf16", "amp")),
        ("cascadelake", ("2.2.1", "2.4.0")),
    }
    assert {c.flops for c in own} == {2 * 4.11e9 * 1024, 2 * 4.11e9 * 2048, 2 * 4.11e9}
    assert all(c.bytes > 0 for c in own)
    bf16 = next(c for c in own if "amp_bf16" in c.side.settings.values())
    assert ComparedSetting(change=setting_change(bf16) or ("", "", ""), contrasts=()).value == ("amp", "bfloat16")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the tables are not there")
def test_real_tables_are_read_whole() -> None:
    tables = [read_published(path) for path in sorted(REAL.glob("*.csv.gz"))]

    assert len(tables) == 19
    assert sum(len(table.skipped) for table in tables) == 1
    assert sum(len(table.observations) for table in tables) == sum(table.rows for table in tables) - 1
