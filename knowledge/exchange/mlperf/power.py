"""Reader of results of MLPerf with a power meter: MLCommons' table of all results of a round.

The table is ``summary_results.json`` of https://github.com/mlcommons/inference_results_v4.1 and later rounds: a list of
results, of which those with ``has_power`` have a power. In MLPerf Inference, it is the power that the whole system
takes from the wall during the measured run, idle power included
(https://github.com/mlcommons/inference_policies/blob/master/power_measurement.adoc). In MLPerf Training, it is the
energy of all nodes at their power supplies
(https://github.com/mlcommons/training_policies/blob/master/power_measurement.adoc).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.observation import IndicatorRun, Observation, Scalar
from knowledge.exchange.mlperf.facts import benchmark_name, inference_benchmark, inference_rules
from knowledge.exchange.mlperf.observations import UNKNOWN_DATE
from knowledge.exchange.mlperf.results import POWER, ImportResult, SkippedFile
from knowledge.exchange.mlperf.systems import System, make_system

_LARGEST_TABLE = 64 * 2**20
"""Bytes of a table that are read; the largest of the known ones has 2.2 million."""
_LEAST, _MOST = 1e-9, 1e15
"""Smallest and largest figure, power and energy that are read: beyond any machine, but finite in all formulae."""
_RATES = ("samples/s", "queries/s", "tokens/s")
_MOST_DEVICES = 1_000_000
_TIMES = {"latency (ms)": 1e-3, "minutes": 60.0}
_ENERGIES = {"millijoules": 1e-3, "joules": 1.0, "kilojoules": 1e3}
_DESCRIPTION = {
    "accelerator_model_name": "Accelerator",
    "accelerators_per_node": "a#",
    "number_of_nodes": "Nodes",
    "host_processor_model_name": "Processor",
    "host_processors_per_node": "host_processors_per_node",
    "framework": "Software",
    "division": "Category",
    "status": "Availability",
}
"""Fields of a description of a system, and those of the table."""


def read_power_table(path: Path) -> ImportResult:
    """Read the results with a power of a table; the others are left out.

    Raises:
        InputError: If the file cannot be read, or is not such a table.
    """
    observations: dict[str, Observation] = {}
    skipped: list[SkippedFile] = []
    warnings: dict[str, None] = {}
    repeated = 0
    for number, record in enumerate(_records(path), 1):
        if not record.get("has_power"):
            continue
        try:
            system = _system(record)
            observation = _observation(record, system)
            key = observation.identity
        except (ValueError, OverflowError, RecursionError) as error:
            skipped.append(SkippedFile(path=f"{path}, result {number}", reason=str(error)))
            continue
        warnings.update(dict.fromkeys(system.warnings))
        repeated += key in observations
        observations.setdefault(key, observation)
    if not observations and not skipped:
        raise InputError(f"`{path}` has no result with a power meter")
    return ImportResult(
        observations=tuple(observations.values()),
        skipped=tuple(skipped),
        repeated=repeated,
        warnings=tuple(sorted(warnings)),
    )


def _records(path: Path) -> list[Mapping[str, Any]]:
    try:
        if path.stat().st_size > _LARGEST_TABLE:
            raise InputError(f"`{path}` is larger than {_LARGEST_TABLE // 2**20} MiB")
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    if not isinstance(document, list) or not all(isinstance(record, dict) for record in document):
        raise InputError(
            f"`{path}` is not a table of results of MLPerf: it is not a list of results",
            hint="name `summary_results.json` of a round, or a tree of results",
        )
    return document


def _system(record: Mapping[str, Any]) -> System:
    """Return the system of a result.

    Raises:
        ValueError: If a field is missing, or a count is none.
    """
    _check_count(record, "a#", 0)
    _check_count(record, "Nodes", 1)
    described = {name: str(record[column]) for name, column in _DESCRIPTION.items() if record.get(column) is not None}
    return make_system(_text(record, "System"), described, benchmark=_text(record, "Model"))


def _observation(record: Mapping[str, Any], system: System) -> Observation:
    """Return the observation of a result.

    Raises:
        ValueError: If a field is missing, or is not what it has to be.
    """
    round_, submitter, name = (_text(record, column) for column in ("version", "Submitter", "System"))
    suite, division = (_text(record, column).lower() for column in ("Suite", "Category"))
    is_training = suite == "training"
    if is_training:
        benchmark, version = benchmark_name(_text(record, "Model"), round_), 1
    else:
        benchmark, version = inference_benchmark(_text(record, "Model"), round_)
    scenario = {} if is_training else {"scenario": _text(record, "Scenario").replace(" ", "")}
    figure, unit = _positive(record, "Performance_Result"), _text(record, "Performance_Units").lower()
    power, power_unit = _positive(record, "Power_Result"), _text(record, "Power_Units").lower()
    date = inference_rules(round_).published if not is_training else ""
    return Observation(
        indicator=IndicatorRun(
            name=POWER,
            version=version,
            backend=system.software.framework,
            device=system.device,
            dtype="as-submitted",
            parameters={"benchmark": benchmark, "mode": "training" if is_training else "inference", **scenario},
        ),
        framework=system.software.framework,
        stack=system.stack,
        hardware=system.hardware,
        block=f"mlperf-power-{round_}/{suite}/{submitter}/{record.get('ID') or name}",
        round=0,
        arm=0,
        reference=True,
        started_at=f"{date or UNKNOWN_DATE}T00:00:00+00:00",
        status="ok",
        samples=(_seconds(figure, unit),),
        loops=1,
        steady=True,
        environment=_environment(record, division),
        metrics={"value": figure, **_drawn(power, power_unit)},
        schema=2,
    )


def _environment(record: Mapping[str, Any], division: str) -> dict[str, Scalar]:
    listed = {
        "mlperf_round": _text(record, "version"),
        "source": record.get("Details"),
        "submitter": _text(record, "Submitter"),
        "system": _text(record, "System"),
        "id": record.get("ID"),
        "division": division,
        "category": record.get("Availability"),
        "unit": _text(record, "Performance_Units"),
        "notes": record.get("Notes"),
    }
    return {name: str(value) for name, value in listed.items() if value}


def _seconds(figure: float, unit: str) -> float:
    """Return the time of a sample, a query, a token or a training."""
    if unit in _TIMES:
        return figure * _TIMES[unit]
    if unit in _RATES:
        return 1 / figure
    raise ValueError(f"its unit `{unit[:40]}` is not one of {', '.join((*_RATES, *_TIMES))}")


def _drawn(power: float, unit: str) -> dict[str, float]:
    """Return the power in watts, or the energy of a query or of a training in joules."""
    if unit in _ENERGIES:
        return {"joules": power * _ENERGIES[unit]}
    if unit == "watts":
        return {"watts": power}
    raise ValueError(f"its unit of power `{unit[:40]}` is not one of watts, {', '.join(_ENERGIES)}")


def _text(record: Mapping[str, Any], column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"it has no `{column}`")
    return value.strip()


def _positive(record: Mapping[str, Any], column: str) -> float:
    value = record.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST <= value <= _MOST:
        raise ValueError(f"its `{column}` is not a number from {_LEAST:g} to {_MOST:g}")
    return float(value)


def _check_count(record: Mapping[str, Any], column: str, least: int) -> None:
    value = record.get(column)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and least <= value <= _MOST_DEVICES and value == int(value)):
        raise ValueError(f"its `{column}` is not a whole number from {least} to {_MOST_DEVICES}")
