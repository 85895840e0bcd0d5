"""The output and the errors of `advisor knowledge`."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from knowledge.exchange.files import write_observations
from tests.advisor.inputs import is_error, write
from tests.conftest import Advisor
from tests.knowledge.samples import MACHINE, observation

pytestmark = pytest.mark.shipped


def test_a_round_of_mlperf_is_printed_as_published(advisor_here: Advisor) -> None:
    result = advisor_here("knowledge", "mlperf-table", "--round", "v0.6")

    rows = {tuple(c.strip() for c in line.split("|")[1:-1])[2]: line for line in result.stdout.splitlines()}
    assert "115.22" in rows["dgx1_ngc19.05_mxnet"]
    assert all(cell in rows["tpu-v3-32"] for cell in ("42.19", "12.61", "107.03", "12.25", "10.20"))
    assert "abci_2048xV100_mxnet" not in result.stdout
    assert (
        "abci_2048xV100_mxnet"
        in advisor_here("knowledge", "mlperf-table", "--round", "0.6", "--division", "all").stdout
    )


def test_the_status_and_the_scores_as_json_name_their_schema(advisor_here: Advisor) -> None:
    status = json.loads(advisor_here("knowledge", "status", "--format", "json").stdout)
    table = json.loads(advisor_here("knowledge", "mlperf-table", "--round", "v0.6", "--format", "json").stdout)

    assert (status["schema_version"], status["revision"][:1]) == (1, "0")
    assert dict(status["observations"])["ok"] > 0
    assert (table["schema_version"], [*table]) == (1, ["schema_version", "scores"])
    assert {score["round"] for score in table["scores"]} == {"v0.6"}
    assert any(round(score["minutes"] or 0, 2) == 115.22 for score in table["scores"])


def test_software_gains_on_one_machine_are_reported_with_their_limits(advisor_here: Advisor) -> None:
    arguments = ("knowledge", "compare", "--indicator", "mlperf_training", "--hardware", "dgx1")

    result, as_json = advisor_here(*arguments), advisor_here(*arguments, "--format", "json")

    assert "trains to 0.759 instead of 0.749" in result.stdout
    assert "fastest resnet on dgx1 (8): mxnet 20.6 (NGC), v0.7, 71.28 minutes" in result.stdout
    comparison = json.loads(as_json.stdout)["software"]
    assert {g["machine"] for g in comparison} == {"dgx1"}
    assert any(g["speedup"] > 1.6 and g["significant"] for g in comparison)


def test_scaling_is_reported_with_its_efficiency(advisor_here: Advisor) -> None:
    result = advisor_here("knowledge", "compare", "--indicator", "mlperf_training", "--hardware", "tpu v3", "--scaling")

    assert "efficiency" in result.stdout
    assert "v0.6" in result.stdout


def test_a_block_is_selected_by_a_unique_prefix_of_its_name(advisor_here: Advisor) -> None:
    block = "20261120T235203Z-a1c3b58b"

    whole, prefix = advisor_here("pi", "show", block), advisor_here("pi", "show", block[:10])
    several = advisor_here("pi", "show", "2026")

    assert (whole.returncode, prefix.returncode, several.returncode) == (0, 0, 2)
    assert prefix.stdout == whole.stdout
    assert "`2026` is a prefix of" in several.stderr
    assert f"write more of the name: {block}" in several.stderr.replace("\n", " ")


def test_stacks_are_compared_and_plotted(advisor_here: Advisor, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path / "o.jsonl")
    advisor_here("knowledge", "import", "o.jsonl")

    result = advisor_here(
        "knowledge",
        "compare",
        "--indicator",
        "matmul",
        "--hardware",
        "cpu-zen4",
        "--plot",
        "p.svg",
        "--framework",
        "numpy",
    )
    first = (tmp_path / "p.svg").read_bytes()
    advisor_here("knowledge", "compare", "--indicator", "matmul", "--hardware", "zen4", "--plot", "p.svg")

    assert "times as fast as `numpy 2.0.0`" in result.stdout
    assert "2 of 2 comparisons are significant" in result.stdout
    assert b"numpy 1.26.4" in first
    assert (tmp_path / "p.svg").read_bytes() == first


def test_comparing_stacks_of_different_blocks_is_refused_with_the_reason(advisor_here: Advisor, tmp_path: Path) -> None:
    elsewhere = replace(MACHINE, cpu=replace(MACHINE.cpu, microarchitecture="zen2"))
    rows = [observation("2.0.0", reference=True), observation("1.26.4", block="b2", hardware=elsewhere)]
    (tmp_path / "o.jsonl").write_text("\n".join(write_observations(rows)))
    advisor_here("knowledge", "import", "o.jsonl")

    arguments = ("knowledge", "compare", "--indicator", "matmul", "--stack", "numpy==1.26.4", "--stack")
    other, unknown = (
        advisor_here(*arguments, "numpy==2.0.0", "--hardware", "made-up"),
        advisor_here(*arguments, "numpy==0.1"),
    )

    assert (other.returncode, unknown.returncode) == (2, 2)
    assert "they were measured on different machines" in other.stderr
    assert "`numpy==0.1` was not measured at this indicator" in unknown.stderr
    assert is_error(other.stderr)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("compare", "--indicator", "juggling"), "there is no observation of indicator `juggling`"),
        (("compare", "--indicator", "sort", "--hardware", "abacus"), "indicator `sort` on `abacus`"),
        (("compare", "--indicator", "sort", "--plot", "p.png"), "plots are SVG"),
        (("mlperf-table", "--round", "v9"), "there is no score of round `v9`"),
        (("mlperf-table", "--round", "v0.6", "--division", "ajar"), "there is no division `ajar`"),
        (("import-mlperf", "nowhere"), "`nowhere` cannot be read"),
        (("estimate", "--stack", "numpy"), "`numpy` does not name a version"),
        (("estimate", "--stack", ""), "the stack is empty"),
        (
            ("estimate", "--stack", "jax==0.7.0", "--workload", "cnn-training", "--hardware", "a100"),
            "versions of `jax` were not compared",
        ),
        (("estimate", "--stack", "numpy==2.0.0", "--indicator", "juggling"), "indicator `juggling`"),
        (("prune",), "nothing says what to remove"),
        (("prune", "--block", "frameworks-ea93ceac-1-nump"), "there is no block"),
        (("prune", "--before", "yesterday"), "`yesterday` is not a date"),
        (("export", "--parquet"), "a Parquet table is not text"),
        (("import", "nowhere.jsonl"), "`nowhere.jsonl` cannot be read"),
        (("import", "sqlite:////proc/none/k.sqlite"), "cannot be"),
    ],
)
def test_invalid_input_gives_one_message(advisor_here: Advisor, arguments: tuple[str, ...], reason: str) -> None:
    result = advisor_here("knowledge", *arguments)

    # An unreachable knowledge base has another exit code than wrong usage.
    assert result.returncode == (4 if arguments[-1].startswith("sqlite:") else 2)
    assert reason in result.stderr
    assert is_error(result.stderr)


def test_an_estimate_names_its_observations(advisor_here: Advisor) -> None:
    result = advisor_here(
        "knowledge", "estimate", "--stack", "numpy==1.26.4", "--hardware", "cpu-zen4", "--indicator", "sort"
    )

    assert "numpy==1.26.4 against numpy==2.4.6" in result.stdout
    assert "main evidence" in result.stdout
    assert "sort@1[columns=1024,rows=64] float32 numpy/cpu" in result.stdout.splitlines()[6]


def test_keep_valid_imports_the_valid_part_of_a_damaged_file(advisor_here: Advisor, tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl")
    lines = path.read_text().splitlines()
    # Three stacks, one machine, eighteen observations; one is truncated, one lacks a digit.
    lines[-1] = lines[-1][:40]
    lines[-3] = lines[-3].replace('"round":5', '"round":6')
    path.write_text("\n".join(lines))

    refused = advisor_here("knowledge", "import", "o.jsonl")
    none = advisor_here("knowledge", "export", "--block", "made-up").stdout
    imported = advisor_here("knowledge", "import", "o.jsonl", "--keep-valid")

    assert (refused.returncode, none) == (2, "")
    assert f"o.jsonl:{len(lines) - 2}: not a record of an observation file" in refused.stderr
    assert "15 observations before this line are valid" in refused.stderr
    assert "16 added, 0 already stored, 2 lines left out" in imported.stdout
    assert f"o.jsonl:{len(lines)}: left out" in imported.stderr


def test_keep_valid_imports_the_valid_part_of_a_truncated_compressed_file(
    advisor_here: Advisor, tmp_path: Path
) -> None:
    whole = gzip.compress(write(tmp_path / "o.jsonl", rounds=60).read_bytes())
    (tmp_path / "o.jsonl.gz").write_bytes(whole[: len(whole) // 2])

    refused = advisor_here("knowledge", "import", "o.jsonl.gz")
    imported = advisor_here("knowledge", "import", "o.jsonl.gz", "--keep-valid")

    assert refused.returncode == 2
    assert "damaged or truncated" in refused.stderr
    assert " added, 0 already stored" in imported.stdout
    assert int(imported.stdout.split(": ")[1].split()[0]) > 10


def test_pruned_blocks_stay_removed_even_if_they_ship(
    advisor_here: Advisor, tmp_path: Path, knowledge_file: Path
) -> None:
    # To verify all shipped observations takes long.
    with closing(sqlite3.connect(knowledge_file)) as connection, connection:
        for table, column in (("observation", "block"), ("block", "name"), ("coverage", "block")):
            connection.execute(f"DELETE FROM {table} WHERE {column} NOT LIKE 'mlperf-training-v0.%'")
    write(tmp_path / "o.jsonl")
    advisor_here("knowledge", "import", "o.jsonl")

    planned = advisor_here("knowledge", "prune", "--before", "2020-01-01", "--dry-run")
    result = advisor_here("knowledge", "prune", "--block", "made-up", "--before", "2020-01-01")
    remaining = advisor_here("knowledge", "mlperf-table", "--round", "v0.5")

    assert "would remove `mlperf-training-v0.5/" in planned.stdout
    assert "removed `made-up`: 18 observations" in result.stdout
    assert remaining.returncode == 2
    assert "every one is as it was stored" in advisor_here("knowledge", "verify").stdout


def test_a_parquet_table_has_a_row_for_each_observation(advisor_here: Advisor, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "o.jsonl")
    advisor_here("knowledge", "import", "o.jsonl")

    advisor_here("knowledge", "export", "--parquet", "o.parquet", "--block", "made-up")

    table = parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert len(table) == 18
    assert {row["framework_version"] for row in table} == {"2.0.0", "1.26.4", "1.25.0"}
    assert all(len(row["samples"]) == 3 and json.loads(row["parameters"])["m"] == 8 for row in table)


def test_mlperf_runs_are_imported_and_skipped_files_are_reported(advisor_here: Advisor, tmp_path: Path) -> None:
    from tests.knowledge.mlperf_files import FILES, _tree

    _tree(tmp_path / "tree", FILES)

    result = advisor_here("knowledge", "import-mlperf", "tree")
    output = advisor_here("knowledge", "import-mlperf", "tree", "-o", "m.jsonl.gz")

    assert "tree: 1 added, 0 already stored, 1 left out" in result.stdout
    assert "result_1.txt` was left out: it contains no MLPerf log line" in result.stderr
    assert "wrote 1 observations to `m.jsonl.gz`" in output.stdout
    assert "0 added, 1 already stored" in advisor_here("knowledge", "import", "m.jsonl.gz").stdout
