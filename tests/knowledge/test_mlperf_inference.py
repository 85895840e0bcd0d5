"""Results of MLPerf Inference, and trees that are not what they should be."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from knowledge.domain.observation import Observation
from knowledge.exchange.files import observation_file, read_lines, read_observations
from knowledge.exchange.mlperf.facts import UnreadableResultError, inference_rules
from knowledge.exchange.mlperf.results import INFERENCE, content_key, distinct_results
from knowledge.exchange.mlperf.summaries import read_summary
from knowledge.exchange.mlperf.tree import TreeKindError, read_results
from tests.knowledge.mlperf_files import INFERENCE_TREE, PARTS


def text_of(path: str) -> str:
    """Return the text of a file of the fixture that begins with a path."""
    with tarfile.open(INFERENCE_TREE) as archive:
        member = next(m for m in archive.getmembers() if m.name.startswith(path) and m.name.endswith("summary.txt"))
        file = archive.extractfile(member)
        assert file is not None
        return file.read().decode()


def write(folder: Path, files: Iterable[tuple[str, str]]) -> Path:
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def result_of(observations: Iterable[Observation], system: str, benchmark: str, scenario: str) -> Observation:
    (one,) = [
        o
        for o in observations
        if o.environment["system"] == system
        and (o.indicator.parameters["benchmark"], o.indicator.parameters["scenario"]) == (benchmark, scenario)
    ]
    return one


OFFLINE = text_of("v2.1/closed/Alibaba/results/A100-SXM-80GBx1_TRT/resnet50/Offline")
SERVER = text_of("v0.7/closed/Altos/results/T4x4_TRT/bert-99/Server")
SYSTEM = '{"accelerators_per_node": 1, "accelerator_model_name": "NVIDIA T4", "framework": "TensorRT 7.2"}'


def test_figures_of_all_scenarios_are_those_of_the_summaries() -> None:
    observations = read_results(INFERENCE_TREE).observations

    offline = result_of(observations, "A100-SXM-80GBx1_TRT", "resnet50", "Offline")
    server = result_of(observations, "T4x4_TRT", "bert-99", "Server")
    single = result_of(observations, "A100-SXM-80GBx1_TRT", "resnet50", "SingleStream")
    old_single = result_of(observations, "T4x1_TRT", "resnet50", "SingleStream")
    multi = result_of(observations, "A100-SXM-80GBx1_TRT", "resnet50", "MultiStream")
    streams = result_of(observations, "T4x1_TRT", "resnet50", "MultiStream")
    assert (offline.metrics["value"], offline.environment["unit"]) == (42372.7, "samples/s")
    assert offline.samples == pytest.approx((1 / 42372.7,))
    assert (server.metrics["value"], server.environment["unit"]) == (1099.01, "queries/s")
    assert server.indicator.parameters["latency_bound_seconds"] == 0.13
    # From v2.0 on the estimate of early stopping is published, before the percentile.
    assert single.samples == (single.metrics["value"],)
    assert single.metrics["value"] >= single.metrics["p90_seconds"]
    assert old_single.metrics["value"] == old_single.metrics["p90_seconds"]
    assert (multi.metrics["value"], multi.indicator.parameters["samples_per_query"]) == (0.000645424, 8)
    assert (streams.metrics["value"], streams.environment["unit"]) == (272, "streams")
    assert streams.indicator.parameters["interval_seconds"] == 0.05
    assert streams.samples == pytest.approx((0.05 / 272,))


def test_an_inference_result_names_its_system_software_and_source() -> None:
    o = result_of(read_results(INFERENCE_TREE).observations, "A100-SXM-80GBx1_TRT", "resnet50", "Offline")

    gpu = o.hardware.gpu
    assert gpu is not None
    assert (gpu.model, gpu.count, o.indicator.device) == ("NVIDIA A100-SXM4-80GB", 1, "cuda")
    assert (o.framework, o.stack.version_of("tensorrt"), o.stack.cuda, o.stack.cudnn) == (
        "tensorrt",
        "8.4.2",
        "11.6",
        "8.4.1",
    )
    assert o.stack.version_of("nvidia-driver") == "510.39.1"
    assert o.block == "mlperf-inference-v2.1/closed/Alibaba/A100-SXM-80GBx1_TRT"
    assert (o.indicator.name, o.started_at[:10]) == (INFERENCE, "2022-09-08")
    assert o.environment["source"] == "https://github.com/mlcommons/inference_results_v2.1"


def test_results_survive_an_observation_file() -> None:
    observations = read_results(INFERENCE_TREE).observations

    content = observation_file(observations, compressed=True)

    assert tuple(read_observations(read_lines(content, where="f"), where="f")) == observations


def test_the_required_accuracy_is_a_part_of_the_benchmark() -> None:
    observations = read_results(INFERENCE_TREE).observations

    benchmarks = {str(o.indicator.parameters["benchmark"]) for o in observations}
    bert = {
        o.metrics["value"]
        for o in observations
        if str(o.indicator.parameters["benchmark"]).startswith("bert") and o.environment["system"] == "T4x4_TRT"
    }

    assert {"bert-99", "bert-99.9", "dlrm-99", "dlrm-99.9"} <= benchmarks
    assert len(bert) == 4


def test_a_log_that_two_benchmarks_share_counts_once_for_the_stricter_one() -> None:
    observations = read_results(INFERENCE_TREE).observations

    distinct = [o for o in distinct_results(observations) if "dlrm" in str(o.indicator.parameters["benchmark"])]

    assert [o.indicator.parameters["benchmark"] for o in distinct] == ["dlrm-99.9", "dlrm-99.9"]
    assert {o.indicator.parameters["scenario"] for o in distinct} == {"Offline", "Server"}


def test_a_changed_benchmark_has_another_version() -> None:
    observations = read_results(INFERENCE_TREE).observations

    versions = {
        o.indicator.version for o in observations if str(o.indicator.parameters["benchmark"]).startswith("3d-unet")
    }
    assert versions == {2}
    assert {o.indicator.version for o in observations if o.environment["mlperf_round"] == "v0.7"} == {1}


def test_results_that_were_derived_from_one_log_are_one_result() -> None:
    result = read_results(INFERENCE_TREE)

    krai = [o for o in result.observations if o.environment["submitter"] == "Krai"]

    # Its directories of Offline and MultiStream hold the log of SingleStream.
    assert [o.indicator.parameters["scenario"] for o in krai] == ["SingleStream"]
    assert krai[0].indicator.parameters["division"] == "open"
    # Those of Krai, and one of the two Server runs that a submission repeats.
    assert result.repeated == 2 + sum("Server/Server" in name for name in _equal_servers())


def _equal_servers() -> list[str]:
    with tarfile.open(INFERENCE_TREE) as archive:
        names = [m.name for m in archive.getmembers() if "/DSS8440_A30x8_TRT_Triton/bert-99.9/Server/" in m.name]
        texts = {}
        for name in names:
            if name.endswith(".txt") and (file := archive.extractfile(name)) is not None:
                texts[name] = file.read()
    return [name for name in texts if len(set(texts.values())) == 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a summary of LoadGen"),
        (OFFLINE[:200], "not a summary of LoadGen"),
        (
            OFFLINE.replace("VALID", "INVALID").replace("duration satisfied : Yes", "duration satisfied : NO"),
            r"its result is INVALID \(min duration satisfied: no\)",
        ),
        (OFFLINE.replace("Scenario : Offline", "Scenario : Sideways"), "scenario `Sideways` is not one of"),
        (OFFLINE.replace("PerformanceOnly", "AccuracyOnly"), "accuracy run"),
        (OFFLINE.replace("Samples per second:", "Samples per second: -"), "not a positive number"),
        (OFFLINE.replace("Samples per second:", "Samples per second: nan"), "not a positive number"),
        (OFFLINE.replace("Samples per second: ", f"Samples per second: {'9' * 30}"), "not a positive number"),
        (SERVER.replace("Scheduled samples per second : ", "Scheduled : "), "not a positive number"),
    ],
)
def test_a_summary_without_a_valid_result_is_reported_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UnreadableResultError, match=reason):
        read_summary(text, inference_rules("v2.1"))


def test_an_invalid_result_is_listed_as_skipped(tmp_path: Path) -> None:
    place = "v2.1/closed/Us/results/box/resnet50"
    tree = write(
        tmp_path,
        [
            ("v2.1/closed/Us/systems/box.json", SYSTEM),
            (f"{place}/Offline/performance/run_1/mlperf_log_summary.txt", OFFLINE),
            (f"{place}/Server/performance/run_1/mlperf_log_summary.txt", SERVER.replace("VALID", "INVALID")),
            (f"{place}/Offline/accuracy/mlperf_log_summary.txt", "of no interest"),
            (f"{place}/Offline/performance/power/mlperf_log_summary.txt", "of no interest"),
            ("v2.1/closed/Us/compliance/box/resnet50/Offline/TEST01/performance/run_1/mlperf_log_summary.txt", "no"),
        ],
    )

    result = read_results(tree)

    assert len(result.observations) == 1
    assert [(s.path.split("/resnet50/")[1].split("/")[0], s.reason) for s in result.skipped] == [
        ("Server", "its result is INVALID")
    ]


def test_a_system_without_a_description_keeps_its_name(tmp_path: Path) -> None:
    path = "v2.1/closed/Us/results/T4x1_TRT/resnet50/Offline/performance/run_2/mlperf_log_summary.txt"

    (o,) = read_results(write(tmp_path, [(path, OFFLINE)])).observations

    assert (o.hardware.name, o.framework, o.round) == ("T4x1_TRT", "tensorrt", 1)


def test_a_round_without_a_known_day_is_imported(tmp_path: Path) -> None:
    path = "inference_results_v9.9/closed/Us/results/box/resnet50/Offline/performance/run_1/mlperf_log_summary.txt"

    (o,) = read_results(write(tmp_path, [(path, OFFLINE)])).observations

    assert (o.environment["mlperf_round"], o.started_at) == ("v9.9", "1970-01-01T00:00:00+00:00")


LOG = ':::MLLOG {"time_ms": 1000, "key": "run_start"}\n:::MLLOG {"time_ms": 2000, "key": "run_stop"}\n'
SUMMARY_FILE = (
    "v2.1/closed/Us/results/box/resnet50/Offline/performance/run_1/mlperf_log_summary.txt",
    OFFLINE,
)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("README.md", "nothing")], "contains no MLPerf results"),
        (
            [("v2.1/closed/Us/systems/box.json", SYSTEM), ("v2.1/open/Us/systems/box.json", SYSTEM)],
            "descriptions of 2 systems, but no results",
        ),
        (
            [SUMMARY_FILE, ("v4.0/Us/results/box/bert/result_0.txt", LOG)],
            r"MLPerf Training \(1 logs\) and of MLPerf Inference \(1 summaries\)",
        ),
        ([("hpc_results_v2.0/Us/code/README.md", "")], "it is a tree of MLPerf HPC"),
        ([("tiny_results_v1.0/closed/Us/results/log.txt", "")], "it is a tree of MLPerf Tiny"),
    ],
)
def test_a_tree_of_the_wrong_kind_is_one_sentence_with_a_hint(
    tmp_path: Path, files: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(TreeKindError, match=message) as caught:
        read_results(write(tmp_path, files))

    assert caught.value.hint
    assert (caught.value.code, caught.value.exit_code) == ("mlperf-tree-kind", 2)


def test_the_kind_of_a_tree_is_recognised_by_its_files() -> None:
    kinds = {path.name: {o.indicator.name for o in read_results(path).observations} for path in PARTS.glob("*.gz")}

    assert kinds == {"inference.tar.gz": {"mlperf_inference"}, "training.tar.gz": {"mlperf_training"}}


def test_every_file_of_the_fixture_has_its_own_content_or_is_a_copy() -> None:
    with tarfile.open(INFERENCE_TREE) as archive:
        texts = [
            file.read()
            for member in archive.getmembers()
            if member.name.endswith(".txt") and (file := archive.extractfile(member)) is not None
        ]

    result = read_results(INFERENCE_TREE)

    assert len(result.observations) + result.repeated == len(texts)
    assert len({content_key(o) for o in result.observations}) == len(set(texts))
