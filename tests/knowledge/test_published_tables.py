"""Real tables of published measurements, and what ships of them."""

from __future__ import annotations

import csv
import gzip
import importlib.resources
import json
import re
import statistics
from pathlib import Path

import pytest

from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.published.observations import (
    PublishedTable,
    read_published,
)
from tests.knowledge.published_tables import SMALL

HOSTS = SMALL.parent / "lambda-hosts.csv"
REAL = Path(__file__).parents[3] / "shared" / "data" / "published"


def test_the_small_table_is_read_as_it_was() -> None:
    result = read_published(SMALL)

    assert (result.rows, len(result.observations), len(result.skipped)) == (174, 134, 31)
    assert {o.indicator.name for o in result.observations} == {PUBLISHED}
    assert len({o.identity for o in result.observations}) == len(result.observations)
    assert all(str(o.environment["source"]).startswith("https://github.com/") for o in result.observations)
    assert all(o.environment["licence"] for o in result.observations)


@pytest.fixture(scope="module")
def real() -> dict[str, PublishedTable]:
    """The real tables, by name."""
    if not REAL.is_dir():
        pytest.skip(f"{REAL} is absent")
    return {path.name.partition(".")[0]: read_published(path) for path in sorted(REAL.glob("*.csv.gz"))}


def test_every_row_of_the_real_tables_is_an_observation_or_has_a_reason(real: dict[str, PublishedTable]) -> None:
    for result in real.values():
        counted = len(result.observations) + result.repetitions + len(result.duplicates) + len(result.skipped)
        assert counted == result.rows
        assert not any(w.message.startswith("the task") for w in result.warnings)
    assert len(real["lambda-tensorflow"].skipped) == 0


def lambda_tables() -> dict[tuple[str, str, str], tuple[int, float]]:
    """Number of GPUs and rate that tables of `lambdal/deeplearning-benchmark` state, by host, precision and task."""
    with (SMALL.parent / "lambda-tables.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["host"], row["precision"], row["task"]): (int(row["gpus"]), float(row["rate"])) for row in rows}


def test_numbers_of_gpus_and_rates_are_those_that_the_repository_states_itself(real: dict[str, PublishedTable]) -> None:
    """Its tables say how many GPUs each host has; the imported table does not, and has medians over several hosts."""
    stated, compared = lambda_tables(), set()

    for o in real["lambda-pytorch"].observations:
        parameters = o.indicator.parameters
        task = " ".join(str(parameters[n]) for n in ("task", "variant") if parameters.get(n) not in (None, "squad"))
        key = (str(o.environment["host"]), "single" if o.settings["precision"] == "fp32" else "half", task)
        # Tables have whole numbers: the rates of small ones are too coarse.
        if key in stated and stated[key][1] >= 10:
            compared.add(key[0])
            assert parameters["gpus"] == stated[key][0], key
            assert 1 / o.samples[0] == pytest.approx(stated[key][1], rel=0.14), key
    assert len(compared) >= 30
    assert {"LambdaCloud_8xH100_80GB_SXM5_v1", "p3.16xlarge", "3x3090", "LambdaCloud_4x1080Ti"} <= compared


def test_a_row_is_skipped_if_no_table_confirms_its_median_or_its_gpu(real: dict[str, PublishedTable]) -> None:
    """Count independently: medians over hosts, GPUs that are not those of the path, rates above those of one GPU."""
    with gzip.open(REAL / "lambda-pytorch.csv.gz", "rt", encoding="utf-8") as file:
        rows = dict(enumerate(csv.DictReader(file), start=2))
    stated = lambda_tables()
    confirmed = {host for host, _, _ in stated} - {"2xH100_80GB_SXM5_v1"} | {"3080Max-Q"}
    expected = set()
    for number, row in rows.items():
        host, gpu = row["path"].rpartition("/")[2], row["gpu"]
        named = re.search(r"A4000|V100", host)
        key = (host.replace("LambdaCloud_8x", ""), "single" if row["precision"] == "fp32" else "half")
        one = stated.get((*key, row["task"].removesuffix("_squad")))
        if (
            (row["runs"] != "1" and host not in confirmed)
            or (named and named[0] not in gpu)
            or (one and host != key[0] and float(row["value"]) > 1.25 * 8 * one[1])
        ):
            expected.add(number)

    assert {row.number for row in real["lambda-pytorch"].skipped} == expected


def test_a_median_over_hosts_with_one_two_four_and_eight_gpus_is_no_rate_of_two() -> None:
    """The row that was imported as two H100 has the median of four hosts."""
    rates = [lambda_tables()[f"{n}H100_80GB_SXM5_v1", "half", "resnet50"][1] for n in ("", "2x", "4x", "8x")]

    assert statistics.median(rates) == pytest.approx(7793.08, rel=1e-3)


def test_the_rows_of_single_hosts_give_the_medians_over_hosts(real: dict[str, PublishedTable]) -> None:
    """What ships instead of the medians: the rates of each host, of which they are the medians."""
    columns = ("gpu", "framework_version", "driver", "task", "precision")
    with gzip.open(REAL / "lambda-pytorch.csv.gz", "rt", encoding="utf-8") as file:
        medians = {tuple(row[c] for c in columns): row for row in csv.DictReader(file) if row["runs"] != "1"}
    with HOSTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rates: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        rates.setdefault(tuple(row[c] for c in columns), []).append(float(row["value"]))
    agreeing = [
        abs(statistics.median(values) / float(medians[key]["value"]) - 1) < 0.02
        for key, values in rates.items()
        if medians[key]["runs"] == str(len(values))
    ]

    assert len(agreeing) >= 150
    assert sum(agreeing) >= 0.98 * len(agreeing)
    for row in rows:
        counted = re.search(r"host=[^;]*?(\d) ?x", row["settings"])
        assert row["gpus"] == (counted[1] if counted else "1"), row["settings"]


def test_values_gpus_and_versions_are_those_of_the_rows(real: dict[str, PublishedTable]) -> None:
    """Compare every observation of one table with an independent reading of its row."""
    with gzip.open(REAL / "lambda-tensorflow.csv.gz", "rt", encoding="utf-8") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    observations = real["lambda-tensorflow"].observations

    assert len(observations) == len(rows)
    for o in observations:
        row = rows[str(o.environment["path"])]
        count = int(re.search(r"-(\d+)gpus", row["path"])[1])  # type: ignore[index]
        assert o.samples[0] == pytest.approx(1 / float(row["value"]), rel=1e-5)
        assert (o.hardware.accelerators[0].count, o.indicator.parameters["gpus"]) == (count, count)
        assert o.stack.version_of("tensorflow") == (row["framework_version"] or None)
        assert o.indicator.parameters["mode"] == ("inference" if "inference" in row["path"] else "training")
        assert o.settings["xla"] == re.search(r"xla=(\w+)", row["settings"])[1]  # type: ignore[index]
        if row["gpu"]:
            words = set(re.findall(r"\d{3,}", row["gpu"]))
            assert words <= set(re.findall(r"\d{3,}", o.hardware.accelerators[0].model)), row["gpu"]


def test_the_effects_that_were_seen_in_the_tables_are_there(real: dict[str, PublishedTable]) -> None:
    """Versions of PyTorch and TensorFlow on identical hardware: 9 % and no difference, in the median."""
    torch = _version_ratios(read_published(HOSTS).observations, "torch", "1.13", "2.3.", gpu="H100")
    tensorflow = _version_ratios(real["lambda-tensorflow"].observations, "tensorflow", "1.15.3", "2.2.0", gpu="2080")

    assert sorted(torch)[len(torch) // 2] == pytest.approx(1.09, abs=0.02)
    assert sorted(tensorflow)[len(tensorflow) // 2] == pytest.approx(1.0, abs=0.02)


def _version_ratios(
    observations: tuple[Observation, ...], framework: str, old: str, new: str, *, gpu: str
) -> list[float]:
    groups: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for o in observations:
        host = re.sub(r"_TF\d_\d+", "", str(o.environment["host"])) if framework == "tensorflow" else ""
        key = (o.indicator.label, json.dumps(dict(o.settings), sort_keys=True), o.hardware.accelerators[0].model, host)
        version = o.stack.version_of(framework) or ""
        if gpu in key[2]:
            groups.setdefault(key, {})[next((v for v in (old, new) if version.startswith(v)), "")] = o.samples[0]
    return [g[old] / g[new] for g in groups.values() if old in g and new in g]


def test_the_shipped_files_are_what_the_tables_say_now(real: dict[str, PublishedTable]) -> None:
    """If a list of names changed, write them again: `advisor knowledge import-published TABLE -o FILE`."""
    for name, result in {**real, "lambda-hosts": read_published(HOSTS)}.items():
        content = (importlib.resources.files("knowledge.data") / f"published-{name}.jsonl.gz").read_bytes()
        shipped = read_observations(read_lines(content, where=name), where=name)

        assert {o.identity for o in shipped} == {o.identity for o in result.observations}, name
