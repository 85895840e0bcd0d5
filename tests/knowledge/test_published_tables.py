"""Real tables of published measurements, and what ships of them."""

from __future__ import annotations

import csv
import gzip
import importlib.resources
import json
import re
from pathlib import Path

import pytest

from knowledge.domain.observation import PUBLISHED, Observation
from knowledge.exchange.files import read_lines, read_observations
from knowledge.exchange.published.observations import (
    PublishedTable,
    read_published,
)

SMALL = Path(__file__).parents[1] / "fixtures" / "published" / "small.csv"
REAL = Path(__file__).parents[3] / "shared" / "data" / "published"


def test_the_small_table_is_read_as_it_was() -> None:
    result = read_published(SMALL)

    assert (result.rows, len(result.observations), len(result.skipped)) == (174, 146, 19)
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
    assert len(real["lambda-pytorch"].skipped) == 84


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
    """Versions of PyTorch and TensorFlow on identical hardware: 9 % and nothing, in the median."""
    torch = _version_ratios(real["lambda-pytorch"].observations, "torch", "1.13", "2.3.", gpu="H100")
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
    for name, result in real.items():
        content = (importlib.resources.files("knowledge.data") / f"published-{name}.jsonl.gz").read_bytes()
        shipped = read_observations(read_lines(content, where=name), where=name)

        assert {o.identity for o in shipped} == {o.identity for o in result.observations}, name
