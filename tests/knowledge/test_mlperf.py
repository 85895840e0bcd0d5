from __future__ import annotations

import importlib.resources
import io
import tarfile
from pathlib import Path

import pytest

from docs.mlperf_data import without_details
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Observation
from knowledge.evidence.mlperf import Score, efficiency, scaling, score_submissions, software_gains
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.mlperf.descriptions import read_description
from knowledge.exchange.mlperf.facts import UnreadableResultError
from knowledge.exchange.mlperf.logs import read_log
from knowledge.exchange.mlperf.systems import make_system
from knowledge.exchange.mlperf.tree import read_results
from tests.knowledge.mlperf_files import DESCRIPTIONS, FILES, MLL, MLLOG, V05, _tree

SHARED = Path(__file__).parents[3] / "shared" / "data"

PUBLISHED_V06 = {
    "dgx1": {"resnet": "115.22", "ssd": "22.36", "maskrcnn": "207.48", "gnmt": "20.55", "transformer": "20.34"},
    "dgx2h": {"resnet": "52.74", "ssd": "11.41", "maskrcnn": "95.20", "gnmt": "9.87", "transformer": "9.80"},
    "tpu-v3-32": {"resnet": "42.19", "ssd": "12.61", "maskrcnn": "107.03", "gnmt": "12.25", "transformer": "10.20"},
}
"""Minutes as published in the closed division's table of round v0.6, by system."""

UNCHECKED_V06 = {
    "dgx2": {"resnet": "57.87", "ssd": "12.21", "maskrcnn": "101.00", "gnmt": "10.94", "transformer": "11.04"},
    "dgx1_n24": {"maskrcnn": "22.03"},
    "dgx1_n30": {"ssd": "2.67"},
    "dgx1_n48": {"gnmt": "1.99"},
    "dgx1_n60": {"transformer": "2.05"},
    "dgx1_n130": {"resnet": "1.69"},
    "dgx2h_n4": {"ssd": "4.78", "maskrcnn": "32.72"},
    "dgx2h_n10": {"transformer": "2.41"},
    "dgx2h_n12": {"maskrcnn": "18.47"},
    "dgx2h_n15": {"ssd": "2.56"},
    "dgx2h_n16": {"gnmt": "2.12"},
    "dgx2h_n24": {"gnmt": "1.80"},
    "dgx2h_n30": {"ssd": "2.23", "transformer": "1.59"},
    "dgx2h_n32": {"resnet": "2.59"},
    "dgx2h_n96": {"resnet": "1.33"},
    "tpu-v3-128": {"resnet": "11.22", "ssd": "3.89", "maskrcnn": "57.46", "gnmt": "4.62", "transformer": "3.85"},
    "tpu-v3-256": {"resnet": "6.86", "ssd": "2.76", "maskrcnn": "35.60", "gnmt": "3.53", "transformer": "2.81"},
    "tpu-v3-512": {"resnet": "3.85", "ssd": "1.79", "gnmt": "2.51", "transformer": "1.58"},
    "tpu-v3-1024": {"resnet": "2.27", "ssd": "1.34", "gnmt": "2.11", "transformer": "1.05"},
    "tpu-v3-2048": {"resnet": "1.28", "ssd": "1.21", "transformer": "0.85"},
}
"""The other cells of the round as the program computes them; they were not compared with the published figures."""


@pytest.fixture(scope="module")
def shipped() -> tuple[Observation, ...]:
    file = importlib.resources.files("knowledge.data") / "mlperf-training-v0.5-v0.7.jsonl.gz"
    return tuple(read_observations(read_lines(file.read_bytes(), where=file.name), where=file.name))


@pytest.fixture(scope="module")
def scores(shipped: tuple[Observation, ...]) -> tuple[Score, ...]:
    return score_submissions(shipped)


@pytest.mark.parametrize(
    ("text", "benchmark", "converged"), [(V05, "resnet", True), (MLL, "gnmt", True), (MLLOG, "bert", False)]
)
def test_the_time_to_train_is_read_from_a_log_of_every_dialect(text: str, benchmark: str, converged: bool) -> None:
    run = read_log(text)

    assert (run.benchmark, run.seconds, run.converged) == (benchmark, 60.0, converged)


def test_other_values_of_a_log_are_stored() -> None:
    assert read_log(V05).values == {"input_batch_size": 2048}
    assert read_log(MLL).values["weather"] == "fine"


def test_without_a_status_a_run_below_the_target_did_not_converge() -> None:
    assert not read_log(V05.replace("0.75}", "0.7}")).converged


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no MLPerf log line"),
        ("\x00\x01 not a log", "no MLPerf log line"),
        (V05.replace("run_stop", "stop"), "no `run_stop`"),
        (V05.replace("run_start", "start"), "no `run_start`"),
        (V05.replace("160.5", "90.5"), "not after"),
        (":::MLLOG {not json}", "no MLPerf log line"),
    ],
)
def test_a_log_without_a_time_is_reported_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UnreadableResultError, match=reason):
        read_log(text)


@pytest.mark.parametrize("text", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_all_spellings_of_a_system_are_the_same_system(text: str) -> None:
    system = make_system("box", read_description(text), benchmark="resnet")

    versions = {p.name: (p.version, p.index) for p in system.stack.packages}
    assert versions["mxnet"] == ("20.6", "ngc")
    assert versions["nccl"] == ("2.7.5", "system")
    assert versions["nvidia-driver"] == ("450.36.6", "system")
    assert (system.stack.cuda, system.stack.cudnn) == ("11.0.167", "8.0.1.13")
    assert (system.division, system.hardware.nodes, system.device) == ("closed", 2, "cuda")
    gpu = system.hardware.gpu
    assert gpu is not None
    assert (gpu.model, gpu.count, gpu.compute_capability) == ("Tesla V100-SXM2-16GB", 8, "7.0")
    assert system.described["colour"] == "green"


@pytest.mark.parametrize(
    ("name", "model", "chips", "nodes"),
    [
        ("dgx2h_n12_ngc19.05_pytorch", "Tesla V100-SXM3-32GB-H", 16, 12),
        ("dgx1_multi_ngc18.11_mxnet", "Tesla V100-SXM2-16GB", 8, None),
        ("tpu-v3-512", "TPU v3", 256, 1),
        ("v100-1280", "Tesla V100", 1280, 1),
        ("8xV100", "Tesla V100", 8, 1),
    ],
)
def test_without_a_description_hardware_is_read_from_the_name(
    name: str, model: str, chips: int, nodes: int | None
) -> None:
    hardware = make_system(name, {}, benchmark="resnet").hardware

    assert [(a.model, a.count) for a in hardware.accelerators] == [(model, chips)]
    assert hardware.nodes == nodes


def test_published_cells_of_v06_are_reproduced_to_the_printed_digit(scores: tuple[Score, ...]) -> None:
    computed: dict[str, dict[str, str]] = {}
    for s in scores:
        if s.round_ == "v0.6" and s.division == "closed" and s.minutes is not None and s.benchmark != "minigo":
            system = s.system.partition("_ngc")[0]
            computed.setdefault(system, {})[s.benchmark] = f"{s.minutes:.2f}"

    assert {system: computed[system] for system in PUBLISHED_V06} == PUBLISHED_V06
    # The other cells are a regression test: a change needs a reason.
    assert computed == PUBLISHED_V06 | UNCHECKED_V06


def test_every_run_that_converged_reached_the_target_of_its_round(shipped: tuple[Observation, ...]) -> None:
    converged = [
        o for o in shipped if o.status == "ok" and "quality" in o.metrics and "target" in o.indicator.parameters
    ]
    reached: dict[tuple[object, object], bool] = {}
    for o in converged:
        target, quality = float(o.indicator.parameters["target"]), o.metrics["quality"]
        # BLEU is logged as per cent in some rounds, and as a fraction in others.
        scale = 100 if target > 1 >= quality else 1
        key = o.environment["mlperf_round"], o.indicator.parameters["benchmark"]
        reached[key] = reached.get(key, True) and round(quality * scale, 4) >= target

    assert len(converged) > 1000
    assert len(reached) == 15
    assert all(reached.values()), reached


def test_one_failed_run_counts_as_slowest_and_two_invalidate_the_score(shipped: tuple[Observation, ...]) -> None:
    from dataclasses import replace

    runs = [o for o in shipped if o.block == "mlperf-training-v0.7/NVIDIA/dgx1_ngc20.06_mxnet"]
    failed = [o for o in runs if o.status == "not-converged"]
    times = sorted(o.samples[0] for o in runs if o.status == "ok")

    (score,) = score_submissions(runs)
    again = [replace(o, status="not-converged", samples=()) if o is runs[-1] else o for o in runs]
    (without,) = score_submissions(again)

    assert (len(runs), len(failed)) == (5, 1)
    assert score.minutes == pytest.approx(sum(times[1:]) / 3 / 60)
    assert (without.minutes, without.failed) == (None, 2)


def test_software_made_a_dgx1_faster(scores: tuple[Score, ...]) -> None:
    gains = {
        (g.later.benchmark, g.earlier.round_, g.later.round_): g
        for g in software_gains(scores)
        if (g.later.hardware.name, g.later.accelerators) == ("dgx1", 8)
    }

    resnet = gains["resnet", "v0.6", "v0.7"]
    assert resnet.speedup == pytest.approx(115.22 / 71.28, abs=0.001)
    assert resnet.is_significant
    assert resnet.note == ""
    assert gains["gnmt", "v0.5", "v0.6"].note == "trains to 24.0 instead of 21.8"


def test_scaling_compares_the_software_of_one_submitter_over_accelerators(scores: tuple[Score, ...]) -> None:
    steps_of_google = [g for g in scaling(scores) if g.later.round_ == "v0.6" and g.later.submitter == "Google"]

    steps = [(g.earlier.accelerators, g.later.accelerators) for g in steps_of_google if g.later.benchmark == "resnet"]
    assert steps == [(16, 64), (16, 128), (16, 256), (16, 512), (16, 1024)]
    assert all(0.1 < efficiency(g) < 1 < g.speedup for g in steps_of_google)


def test_the_shipped_runs_are_those_of_the_result_trees(shipped: tuple[Observation, ...]) -> None:
    trees = sorted(SHARED.glob("mlperf-training-v0.*.tar.gz"))
    if not trees:
        pytest.skip("the result trees are not here")

    results = [read_results(tree) for tree in trees]

    assert {without_details(o).identity for part in results for o in part.observations} == {
        o.identity for o in shipped
    }, "run `python docs/mlperf_data.py TREE...`"
    reasons = [s.reason for part in results for s in part.skipped]
    assert sorted(set(reasons)) == ["it contains no MLPerf log line", "it contains no `run_stop`"]
    assert len(reasons) == 15


def test_a_directory_and_its_tar_file_give_the_same_results(tmp_path: Path) -> None:
    _tree(tmp_path / "tree", FILES)
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "tree" / "v1.1", "v1.1")

    one, other = read_results(tmp_path / "tree"), read_results(tmp_path / "tree.tar.gz")

    assert one.observations == other.observations
    assert [(s.path.rpartition("/")[2], s.reason) for s in one.skipped] == [
        ("result_1.txt", "it contains no MLPerf log line")
    ]
    (o,) = one.observations
    assert (o.block, o.environment["mlperf_round"]) == ("mlperf-training-v1.1/Us/box", "v1.1")
    assert o.environment["system:colour"] == "green"


def test_a_tree_without_a_round_is_refused_with_a_hint(tmp_path: Path) -> None:
    _tree(tmp_path, ((name.removeprefix("v1.1/"), text) for name, text in FILES))

    with pytest.raises(InputError, match="no directory name contains the round"):
        read_results(tmp_path / "Us")

    assert len(read_results(tmp_path / "Us", round_="v1.1").observations) == 1


@pytest.mark.parametrize("content", [b"", b"not a tar file", None])
def test_input_without_results_is_an_error_message(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "v0.6.tar.gz"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputError, match="cannot be read"):
        read_results(path)


def test_a_truncated_archive_is_an_error_message(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        entry = tarfile.TarInfo("v0.6/A/results/s/resnet/result_0.txt")
        entry.size = 100_000
        archive.addfile(entry, io.BytesIO(bytes(range(256)) * 391))
    path = tmp_path / "v0.6.tar.gz"
    path.write_bytes(whole.getvalue()[:300])

    with pytest.raises(InputError, match="cannot be read"):
        read_results(path)
