"""DAWNBench's entries as records: what is read, what is left out, and that no estimate uses them."""

from __future__ import annotations

import importlib.resources
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.dawnbench import order_cells
from docs.dawnbench import TARGET
from knowledge.domain.errors import InputError
from knowledge.domain.observation import DAWNBENCH, Observation
from knowledge.evidence.accelerator_rows import accelerator_rows
from knowledge.evidence.block_evidence import evidence_of
from knowledge.exchange.admission import implausibilities
from knowledge.exchange.dawnbench.machines import read_machine
from knowledge.exchange.dawnbench.observations import read_framework
from knowledge.exchange.dawnbench.tree import read_entries
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.mlperf.results import ImportResult
from knowledge.hardware.accelerators import model_of
from pi_runners.catalogue import Indicators
from tests.conftest import Advisor

COMMIT = "7e1d64cc134dc7ace53616bc5618f3befece7736"
TRAINING = {
    "version": "v1.0",
    "author": "Andrew Shaw, Yaroslav Bulatov, Jeremy Howard",
    "authorEmail": "",
    "framework": "ncluster / Pytorch 0.5.0a0+0e8088d",
    "codeURL": "https://github.com/diux-dev/imagenet18",
    "model": "Resnet 50",
    "hardware": "32 * V100 (4 machines - AWS p3.16xlarge)",
    "costPerHour": 97.92,
    "timestamp": "2018-09-07",
    "misc": {"CUDA version": "9.2", "CuDNN version": "7.5.1_10.1"},
}
PROGRESS = "epoch\thours\ttop1\ttop5\n27\t0.46090\t\t75.648\t\t92.966\n28\t0.49509\t\t75.716\t\t93.008\n"
INFERENCE = {**TRAINING, "hardware": "Baidu Cloud Tesla V100*1/60 GB/12 CPU", "costPerHour": None, "latency": 0.683}


def tree(folder: Path, **files: str | dict[str, object]) -> Path:
    """Write files by their paths, with ``__`` instead of ``/`` and without ``.json``; return the checkout."""
    checkout = folder / f"dawn-bench-entries-{COMMIT}"
    for name, content in files.items():
        suffix = ".json" if isinstance(content, dict) or content.startswith("{") else ".tsv"
        path = checkout / f"{name.replace('__', '/')}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((json.dumps(content) if isinstance(content, dict) else content).encode())
    return checkout


def training(
    folder: Path, progress: str, fields: dict[str, object] | None = None, task: str = "ImageNet"
) -> ImportResult:
    """Return the result of reading a checkout with one training."""
    path = tree(folder, **{f"{task}__train__run": TRAINING | (fields or {})})
    (path / task / "train" / "run.tsv").write_bytes(progress.encode())
    return read_entries([path])


def test_a_training_is_a_record_with_its_time_price_cost_and_machines(tmp_path: Path) -> None:
    (o,) = training(tmp_path, PROGRESS).observations

    assert list(o.samples) == pytest.approx([0.49509 * 3600])
    assert dict(o.metrics) == {"quality": 93.008, "epochs": 28, "usd_per_hour": 97.92, "usd": 48.4792128}
    assert dict(o.indicator.parameters) == {"task": "imagenet", "mode": "training", "model": "resnet50", "target": 93}
    assert (o.hardware.nodes, o.hardware.accelerators[0].count, o.environment["instance"]) == (4, 8, "p3.16xlarge")
    assert (o.framework, o.stack.version_of("torch"), o.stack.cuda, o.stack.cudnn) == (
        *("torch", "0.5.0a0+0e8088d"),
        *("9.2", None),
    )
    assert o.environment["source"] == (
        f"https://github.com/stanford-futuredata/dawn-bench-entries/blob/{COMMIT}/ImageNet/train/run.json"
    )


@pytest.mark.parametrize(
    ("progress", "hours", "note"),
    [
        # KRes34_1GTX1080Ti_pytorch.tsv has ends of lines of old Macs, and a blank in its first line.
        ("epoch\thours \ttop1Accuracy\r54\t0.582607\t93.65\r55\t0.593383\t94.05", 0.593383, ""),
        # diux_cifar_g3.tsv names its first two columns in the wrong order.
        ("hours\tepoch\ttop1Accuracy\n88\t3.27\t93.9\n89\t3.31361\t94.08\n", 3.31361, "exchanged"),
        # dawn_resnet164_nb_16vCPUs-gc_tensorflow.tsv counts epochs in fractions.
        ("epoch\thours\ttop1Accuracy\n161.15456\t94.163003\t94.02000000000001\n", 94.163003, ""),
    ],
)
def test_tables_of_all_kinds_give_the_hours_to_the_target(
    tmp_path: Path, progress: str, hours: float, note: str
) -> None:
    (o,) = training(tmp_path, progress, task="CIFAR10").observations

    assert o.samples[0] == pytest.approx(hours * 3600)
    assert note in str(o.environment.get("note", ""))


@pytest.mark.parametrize(
    ("progress", "fields", "reason"),
    [
        # Intel_Resnet50_ec2_Xeon_8124M_intelcaffe.tsv, shortened.
        (
            "Iterations   epoch   hours   top1Accuracy    top5Accuracy\n50000\t80\t0.073590\t75.5\t92.79\n"
            "50640\t81\t0.077698\t76.0\t93.05\n51280\t82\t0.07\t76.0\t93.1\n",
            {},
            "the hours in its table decrease",
        ),
        # google_amoeba_net_d_tpu_tensorflow17.tsv
        (
            "epoch\thours\ttop1Accuracy\ttop5Accuracy\n5    0.587606    0.823405\n",
            {},
            "line 2 of its table has 3 cells",
        ),
        ("epoch\thours\ttop5Accuracy\n1\t0.1\t92.99\n", {}, "never reaches the required 93"),
        ("epoch\thours\ttop5Accuracy\n1\tsoon\t93\n", {}, "line 2 of its table: could not convert"),
        ("epoch\thours\ttop5Accuracy\n1\tnan\t93\n", {}, "not a number"),
        ("epoch\thours\n1\t2\n", {}, "no column `top5accuracy`"),
        ("", {}, "no column `epoch`"),
        (PROGRESS, {"costPerHour": "cheap"}, "its `costPerHour` is `cheap`, not a positive number"),
        (PROGRESS, {"costPerHour": -1}, "not a positive number"),
        (PROGRESS, {"timestamp": "2018-02-30"}, "its `timestamp` is `2018-02-30`"),
        (PROGRESS, {"hardware": 8}, "its `hardware` is missing or no text"),
    ],
)
def test_a_training_without_a_result_is_left_out_with_the_reason(
    tmp_path: Path, progress: str, fields: dict[str, object], reason: str
) -> None:
    result = training(tmp_path, progress, fields)

    assert result.observations == ()
    assert [skipped.path for skipped in result.skipped] == ["ImageNet/train/run.json"]
    assert reason in result.skipped[0].reason


def test_files_that_are_no_entries_are_left_out_and_a_directory_without_entries_is_refused(tmp_path: Path) -> None:
    path = tree(
        tmp_path,
        ImageNet__train__one='{"version": "v1.0",}',
        ImageNet__train__two="{}",
        ImageNet__train__three=TRAINING,
    )
    (path / "SQuAD" / "train").mkdir(parents=True)
    (path / "SQuAD" / "train" / "four.json").write_bytes(b"\xff")

    reasons = {Path(skipped.path).stem: skipped.reason for skipped in read_entries([path]).skipped}

    assert "it is not JSON" in reasons["one"]
    assert "`version` is missing" in reasons["two"]
    assert "no table of its progress" in reasons["three"]
    assert "not UTF-8" in reasons["four"]
    with pytest.raises(InputError, match="contains no entries of DAWNBench"):
        read_entries([tmp_path])


def test_a_renamed_entry_counts_once_and_the_price_of_one_machine_is_that_of_all(tmp_path: Path) -> None:
    """The entry `dawn_4_machine_30min` states the price of one of its machines, and became `fastai_..._4_machine`."""
    one = TRAINING | {"hardware": "8 * V100 (AWS p3.16xlarge)", "costPerHour": 24.48, "timestamp": "2018-04-20"}
    of_one = {
        "ImageNet__train__dawn_4_machine_30min": TRAINING | {"costPerHour": 24.48},
        "ImageNet__train__fastai_pytorch": one,
    }
    path = tree(tmp_path, **of_one)
    for name in ("dawn_4_machine_30min", "fastai_resnet50_p3_4_machine_pytorch"):
        (path / "ImageNet" / "train" / f"{name}.tsv").write_text(PROGRESS)
    (path / "ImageNet" / "train" / "fastai_pytorch.tsv").write_text(
        "epoch\thours\ttop5Accuracy\n41\t2.957533\t93.002\n"
    )

    before = read_entries([path])
    tree(tmp_path, ImageNet__train__fastai_resnet50_p3_4_machine_pytorch=TRAINING)
    after = read_entries([path])

    assert [o.metrics["usd_per_hour"] for o in before.observations] == [97.92, 24.48]
    assert any("multiplied by 4 machines" in warning for warning in before.warnings)
    assert (len(after.observations), after.repeated) == (2, 1)
    assert [o.metrics["usd_per_hour"] for o in after.observations] == [24.48, 97.92]


def test_inference_has_a_latency_and_a_cost_of_ten_thousand_inputs_however_it_is_stated(tmp_path: Path) -> None:
    path = tree(
        tmp_path,
        # BAIDU-USA-GAIT_BaiduNet8_1GV100_pytorch.json and dawn_resnet56_1k80-ec2_pytorch.json
        CIFAR10__inference__a=INFERENCE | {"cost": 0.002078, "top1Accuracy": 94.32},
        CIFAR10__inference__b=INFERENCE | {"latency": 9.784, "cost": 2.446e-06, "top1Accuracy": 94.09},
        # HuaweiCloud_resnet8_modelarts_aibox.json and dawn_fastfusionnet-1080ti.json
        CIFAR10__inference__c=INFERENCE | {"latency": 0.1345, "top5Accuracy": 94.2},
        SQuAD__inference__d=INFERENCE | {"latency": 7.9, "f1Score": 82.52},
        SQuAD__inference__e=INFERENCE | {"latency": 7.9, "f1Score": 0.74},
        SQuAD__inference__f=INFERENCE | {"latency": True, "f1Score": 0.76},
    )

    result = read_entries([path])

    assert [o.samples[0] for o in result.observations] == pytest.approx([0.000683, 0.009784, 0.0001345, 0.0079])
    costs = [o.metrics.get("usd_per_10000") for o in result.observations]
    assert costs == [pytest.approx(0.002078), pytest.approx(0.02446), None, None]
    assert result.observations[3].metrics["quality"] == pytest.approx(0.8252)
    assert [s.reason for s in result.skipped] == [
        "its `f1Score` is 0.74, less than the required 0.75",
        "its `latency` is `True`, not a positive number",
    ]


@pytest.mark.parametrize(
    ("text", "instance", "model", "count", "nodes", "device"),
    [
        ("1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])", "p2.xlarge", "k80", 1, 1, "cuda"),
        ("16 p3.16xlarge (AWS)", "p3.16xlarge", "v100-sxm2-16gb", 8, 16, "cuda"),
        ("64 * V100 (8 machines - AWS p3.16xlarge)", "p3.16xlarge", "v100-sxm2-16gb", 8, 8, "cuda"),
        ("8 * V100 (AWS p3.xlarge)", "", "v100", 8, 1, "cuda"),
        ("16 * 8 * Tesla-V100(ModelArts Service)", "", "v100", 8, 16, "cuda"),
        ("2 nodes with InfiniBand (8*V100 for each node)", "", "v100", 8, 2, "cuda"),
        ("16 ecs.gn6e-c12g1.24xlarge (AlibabaCloud)", "ecs.gn6e-c12g1.24xlarge", "v100-32gb", 8, 16, "cuda"),
        ("Lambda GPU Cloud - 4x GTX 1080 Ti", "", "gtx1080ti", 4, 1, "cuda"),
        ("Tesla V100 * 4 GPU / 488 GB / 56 CPU (Kakao Brain BrainCloud)", "", "v100", 4, 1, "cuda"),
        ("Baidu Cloud Tesla 8*V100-16GB/448 GB/96 CPU", "", "v100-16gb", 8, 1, "cuda"),
        ("60 GB / 16 CPU (Google Cloud [n1-standard-16])", "n1-standard-16", "", 0, 1, "cpu"),
        ("128 nodes with Xeon Platinum 8124M / 144 GB (EC2 [c5.18xlarge])", "c5.18xlarge", "", 0, 128, "cpu"),
        ("GCP n1-standard-2, Cloud TPU", "n1-standard-2", "", 1, 1, "tpu"),
        ("1 Cambricon 100 / 64G / 2 CPU", "", "", 0, 1, "accelerator"),
        ("Huawei Cloud [pi2.2xlarge.4]", "", "", 0, 1, "accelerator"),
    ],
)
def test_machines_are_read_from_the_words_of_the_entries(
    text: str, instance: str, model: str, count: int, nodes: int, device: str
) -> None:
    machine = read_machine(text)
    accelerators = machine.hardware.accelerators
    known = model_of(accelerators[0]) if accelerators else None

    assert (machine.instance, machine.hardware.nodes, machine.device) == (instance, nodes, device)
    assert (known.name if known else "", sum(a.count for a in accelerators)) == (model, count)
    assert bool(machine.warning) == (device in ("tpu", "accelerator"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensorflow 1.5, tensorpack 0.8.1", ("tensorflow", "1.5")),
        ("AIACC-Training 1.3 + Tensorflow 2.1", ("tensorflow", "2.1")),
        ("TensorFlow + TensorRT", ("tensorflow", "")),
        ("MXNet v1.2.1", ("mxnet", "1.2.1")),
        ("Caffe 1.0", ("caffe", "1.0")),
        ("Intel(R) Optimized Caffe", ("intel-r-optimized-caffe", "")),
    ],
)
def test_the_framework_and_its_version_are_read_from_the_words_of_the_entries(
    text: str, expected: tuple[str, str]
) -> None:
    assert read_framework(text) == expected


def shipped_entries() -> dict[str, Observation]:
    """Return the shipped entries by path, without the suffix."""
    content = (importlib.resources.files("knowledge.data") / TARGET.name).read_bytes()
    listed = read_observations(read_lines(content, where=TARGET.name), where=TARGET.name)
    return {o.block.removeprefix(f"{DAWNBENCH}/"): o for o in listed}


def test_the_shipped_records_have_the_costs_that_dawnbench_published() -> None:
    """The three cheapest trainings of each task in April 2018, one of March 2020, and 10,000 inferences.

    As https://dawn.cs.stanford.edu/benchmark/ listed them.
    """
    entries = shipped_entries()
    trainings = {
        "ImageNet/train/google_amoeba_net_d_tpu_tensorflow18": "49.30",
        "ImageNet/train/google_resnet50_tpu_tensorflow18": "58.53",
        "ImageNet/train/google_resnet50_tpu_tensorflow17": "82.07",
        "ImageNet/train/alibabacloud_resnet50_gn6e_1_machine_tensorflow": "7.43",
        "CIFAR10/train/fastai_pytorch_single_volta": "0.26",
        "CIFAR10/train/basenet": "0.29",
        "CIFAR10/train/fastai_pytorch": "1.18",
        "SQuAD/train/dawn_bidaf_16vCPUs-gc_tensorflow": "5.78",
        "SQuAD/train/dawn_bidaf_1k80-ec2_tensorflow": "6.87",
        "SQuAD/train/dawn_bidaf_1k80-gc_tensorflow": "8.44",
    }
    inferences = {
        "ImageNet/inference/Intel_resnet50_c5_2xlarge_intelcaffe_cost": "0.02",
        "ImageNet/inference/dawn_resnet152_1k80-ec2_mxnet": "0.07",
        "CIFAR10/inference/dawn_resnet56_1k80-ec2_pytorch": "0.02",
        "CIFAR10/inference/dawn_resnet164_nb_16vCPUs-gc_tensorflow": "0.04",
        "CIFAR10/inference/dawn_resnet164_b_16vCPUs-gc_tensorflow": "0.05",
    }

    assert {name: f"{entries[name].metrics['usd']:.2f}" for name in trainings} == trainings
    assert {name: f"{entries[name].metrics['usd_per_10000']:.2f}" for name in inferences} == inferences


def test_entries_are_evidence_for_nothing() -> None:
    entries = shipped_entries().values()

    assert len(entries) > 100
    assert accelerator_rows(entries) == ()
    evidence = evidence_of(entries)
    assert (evidence.contrasts, evidence.runs) == ((), ())


def test_a_record_that_does_not_say_what_it_is_of_is_quarantined() -> None:
    entry = shipped_entries()["CIFAR10/train/basenet"]
    unstated = replace(entry, metrics={}, environment={**entry.environment, "source": ""})

    def reasons(o: Observation) -> list[str]:
        return list(implausibilities(o, Indicators(), now=datetime(2026, 1, 1, tzinfo=UTC)))

    assert reasons(entry) == []
    assert reasons(unstated) == [
        "it does not say its `source`",
        "an entry of DAWNBench is one time with the quality that was reached",
    ]


def test_the_order_of_costs_counts_errors_beyond_ten_percent_and_no_ties() -> None:
    published = [math.log(2), math.log(2), math.log(1.05), math.log(0.5)]
    predicted = [math.log(4), math.log(0.5), math.log(0.5), 0.0]

    assert order_cells(published, predicted, inside="-") == "1 of 4 | -0.25 | 1 | - | x2.05"


def test_the_command_stores_entries_once_and_writes_files(advisor_here: Advisor, tmp_path: Path) -> None:
    path = tree(tmp_path, ImageNet__train__run=TRAINING, ImageNet__train__broken="{")
    (path / "ImageNet" / "train" / "run.tsv").write_text(PROGRESS)

    first = advisor_here("knowledge", "import-dawnbench", str(path))
    again = advisor_here("knowledge", "import-dawnbench", str(path))
    written = advisor_here("knowledge", "import-dawnbench", str(path), "-o", str(tmp_path / "dawn.jsonl"))
    absent = advisor_here("knowledge", "import-dawnbench", "nowhere")

    assert first.stdout == "1 observation: 1 added, 0 already stored, 0 quarantined, 1 left out\n"
    assert "`ImageNet/train/broken.json` was left out: it is not JSON" in first.stderr
    assert again.stdout == "1 observation: 0 added, 1 already stored, 0 quarantined, 1 left out\n"
    assert written.stdout == f"wrote 1 observations to `{tmp_path / 'dawn.jsonl'}`\n"
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "`nowhere` contains no entries of DAWNBench" in absent.stderr
