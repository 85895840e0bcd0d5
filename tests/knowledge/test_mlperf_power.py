"""Results of MLPerf with a power meter: the table of a round, and the power of machines that follows from them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from advisor.api.stores import open_readable_store
from knowledge.domain.errors import InputError
from knowledge.estimate.machine_power import LEAST_MACHINES, MeteredMachine, PowerModel, metered_machines
from knowledge.evidence.accelerator_rows import accelerator_rows
from knowledge.evidence.power_rows import power_rows
from knowledge.exchange.mlperf.power import read_power_table
from knowledge.exchange.mlperf.results import POWER
from tests.conftest import Advisor

# A result of v4.1, as https://github.com/mlcommons/inference_results_v4.1/blob/1e5a50f0/summary_results.json states it.
OFFLINE: dict[str, Any] = {
    "ID": "v4.1-0049",
    "Submitter": "NVIDIA",
    "Availability": "available",
    "Category": "closed",
    "Suite": "datacenter",
    "System": "NVIDIA H200 (8x H200-SXM-141GB, MaxQ, TensorRT)",
    "Model": "llama2-70b-99",
    "Scenario": "Offline",
    "Nodes": 1,
    "Accelerator": "NVIDIA H200-SXM-141GB",
    "a#": 8.0,
    "Software": "TensorRT 10.2.0, CUDA 12.4",
    "version": "v4.1",
    "has_power": True,
    "Performance_Result": 25262.1,
    "Performance_Units": "Tokens/s",
    "Power_Result": 6152.9844351733,
    "Power_Units": "Watts",
}


def table(tmp_path: Path, *records: object) -> Path:
    """Write a table of results."""
    path = tmp_path / "summary_results.json"
    path.write_text(json.dumps(list(records)))
    return path


def test_a_table_has_the_time_and_the_power_of_each_result(tmp_path: Path) -> None:
    # The two lines below are made up: a table states the latency and the energy of a query in these units.
    query = {"Scenario": "Single Stream", "Performance_Result": 2.0, "Performance_Units": "Latency (ms)"}
    path = table(
        tmp_path,
        OFFLINE,
        {**OFFLINE, **query, "Power_Result": 900.0, "Power_Units": "millijoules"},
        {**OFFLINE, "has_power": False, "Power_Result": None},
    )

    first, second = read_power_table(path).observations

    assert (first.indicator.name, first.metrics["watts"], first.samples[0]) == (POWER, 6152.9844351733, 1 / 25262.1)
    assert first.hardware.accelerators[0].count == 8
    assert (second.metrics["joules"], second.samples[0]) == (0.9, 0.002)
    assert second.indicator.parameters["scenario"] == "SingleStream"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"Performance_Result": 0}, "its `Performance_Result` is not a number from 1e-09 to 1e+15"),
        ({"Power_Result": math.nan}, "its `Power_Result` is not a number from 1e-09 to 1e+15"),
        ({"Power_Result": 1e-320}, "its `Power_Result` is not a number from 1e-09 to 1e+15"),
        ({"a#": "many"}, "its `a#` is not a whole number from 0 to 1000000"),
        ({"a#": math.inf}, "its `a#` is not a whole number from 0 to 1000000"),
        ({"Nodes": 0}, "its `Nodes` is not a whole number from 1 to 1000000"),
        ({"Power_Result": True}, "its `Power_Result` is not a number from 1e-09 to 1e+15"),
        ({"Power_Units": "horses"}, "its unit of power `horses` is not one of watts"),
        ({"Performance_Units": "Fnord/s"}, "its unit `fnord/s` is not one of"),
        ({"System": None}, "it has no `System`"),
    ],
)
def test_a_result_that_is_wrong_is_left_out_with_the_reason(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    result = read_power_table(table(tmp_path, OFFLINE, {**OFFLINE, **fields}))

    assert len(result.observations) == 1
    assert [skipped.reason.startswith(reason) for skipped in result.skipped] == [True]
    assert result.skipped[0].path.endswith("result 2")


@pytest.mark.parametrize("text", ["{}", "[1]", "[", '[{"has_power": false}]'])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)

    with pytest.raises(InputError, match="table.json"):
        read_power_table(path)


def test_the_command_stores_a_table_once(advisor: Advisor, tmp_path: Path) -> None:
    path = table(tmp_path, OFFLINE)
    options = ("knowledge", "import-mlperf", str(path), "--knowledge", str(tmp_path / "k.db"))

    first, second = (advisor(*options) for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "1 added" in first.stdout
    assert "0 added, 1 already stored" in second.stdout


@pytest.mark.shipped
def test_powers_of_other_machines_are_predicted_from_published_ones() -> None:
    with open_readable_store(None) as store:
        observations = list(store.observations(indicator=POWER))
    machines = metered_machines(power_rows(observations))
    model = PowerModel(machines)

    assert not accelerator_rows(observations), "results that submitters tuned for power say nothing about speed"
    pairs = list(model.held_out(lambda machine: machine.accelerator))
    errors = [machine.mean - power.mean for machine, power in pairs]
    limits = [machine.mean - math.log(machine.rated) for machine, _ in pairs]
    assert math.hypot(*errors) < 0.5 * math.hypot(*limits)
    inside = [power.low < math.exp(machine.mean) < power.high for machine, power in pairs]
    assert sum(inside) > 0.85 * len(pairs)


def test_the_host_and_the_share_of_the_limits_are_found() -> None:
    rated = [70.0, 250.0, 300.0, 1000.0, 1200.0, 1600.0, 2400.0, 3200.0, 5600.0, 8000.0, 400.0, 800.0]
    machines = [
        MeteredMachine(
            accelerator=str(watts),
            submitter="us",
            rated=watts,
            is_tuned=number % 2 == 1,
            mean=math.log(300 + (0.8 if number % 2 else 1.1) * watts),
            spread=None,
        )
        for number, watts in enumerate(rated)
    ]

    model = PowerModel(machines)

    assert model.host == pytest.approx(300)
    assert model.share == pytest.approx(1.1)
    assert model.predict(500, is_tuned=True).speedup == pytest.approx(700)
    assert model.predict(500).deviation < 1e-6
    with pytest.raises(ValueError, match="too few"):
        PowerModel(machines[: LEAST_MACHINES - 1])
