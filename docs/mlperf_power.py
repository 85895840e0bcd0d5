"""Writes the results of MLPerf with a power meter that ship with the program, from a list of them.

    python docs/mlperf_power.py ROWS.json

Each row of the list states a result as its source does: round, suite, public ID, submitter, system, accelerator, number
of accelerators and nodes, host processor, benchmark, scenario, result and power or energy with their units, software,
notes and source. The official table of a round (`summary_results.json`) is imported as it is by `advisor knowledge
import-mlperf`; earlier rounds have none, and their rows come from the tables that
https://github.com/aryatschand/MLPerf-Power-HPCA-2025 exported from https://mlcommons.org.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pi_runners as pi_runners  # It adds the frameworks.
from knowledge.exchange.files import observation_file
from knowledge.exchange.mlperf.power import read_power_table

TARGET = Path(str(files("knowledge.data"))) / "published-mlperf-power.jsonl.gz"
UNITS = {"latency in ms": "Latency (ms)", "Latency (In minutes)": "minutes"}
"""Units of results that the official tables spell in another way."""


def official_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in the columns of the official table."""
    joules = row["energy_joules"]
    # Rows of one name are those of the two required accuracies, in their order.
    model = row["benchmark_inferred"] or row["benchmark"]
    return {
        "ID": row["public_id"],
        "Submitter": row["submitter"],
        "Category": row["division"],
        "Suite": row["suite"],
        "System": row["system"],
        "Model": model.partition(" (")[0].removesuffix(".0"),
        "Scenario": row["scenario"],
        "Nodes": row["nodes"],
        "Accelerator": row["accelerator"],
        "a#": row["accelerators_per_node"] if row["accelerator"] else 0,
        "Processor": row["host_processor"],
        "host_processors_per_node": row["host_processors_per_node"],
        "Software": row["software"],
        "Notes": "; ".join(text for text in (row["notes_as_stated"], row["suspect"]) if text),
        "version": row["round"],
        "has_power": True,
        "Performance_Result": row["result"],
        "Performance_Units": UNITS.get(row["result_unit"], row["result_unit"]),
        "Power_Result": row["power_watts"] if joules is None else joules,
        "Power_Units": "Watts" if joules is None else "joules",
        "Details": row["source"],
    }


def main() -> None:
    """Write the file."""
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "summary_results.json"
        table.write_text(json.dumps([official_record(row) for row in rows]), encoding="utf-8")
        result = read_power_table(table)
    for skipped in result.skipped:
        print(f"{Path(skipped.path).name}: {skipped.reason}")
    content = observation_file(result.observations, compressed=True, with_identities=False)
    TARGET.write_bytes(content)
    print(f"{len(result.observations)} observations ({result.repeated} repeated), {len(content)} bytes")


if __name__ == "__main__":
    main()
