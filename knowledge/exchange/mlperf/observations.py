"""Observations of training runs and of inference results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from knowledge.domain.observation import IndicatorRun, Observation, Scalar
from knowledge.exchange.mlperf.facts import InferenceRules, benchmark_name, round_rules
from knowledge.exchange.mlperf.logs import TrainingRun
from knowledge.exchange.mlperf.paths import ResultPlace, SystemKey
from knowledge.exchange.mlperf.results import INFERENCE, READER, TRAINING
from knowledge.exchange.mlperf.summaries import InferenceResult
from knowledge.exchange.mlperf.systems import System

UNKNOWN_DATE = "1970-01-01"
"""Date of results of a round whose publication is not known; some published logs count from it, too."""


def training_observation(place: ResultPlace, run: TrainingRun, system: System) -> Observation:
    """Return the observation of a training run."""
    round_, _, submitter, name = place.key
    benchmark = place.benchmark or benchmark_name(run.benchmark, round_)
    rules = round_rules(round_, benchmark)
    parameters: dict[str, int | float | str] = {"benchmark": benchmark}
    if rules.target is not None:
        parameters["target"] = rules.target
    metrics = {"run_seconds": run.seconds, "quality": run.quality, "epochs": run.epochs}
    return Observation(
        indicator=_indicator(TRAINING, rules.version, system, parameters),
        framework=system.software.framework,
        stack=system.stack,
        hardware=system.hardware,
        block=f"mlperf-training-{round_}/{submitter}/{name}",
        round=place.number,
        arm=0,
        reference=True,
        started_at=datetime.fromtimestamp(run.started, UTC).isoformat(timespec="seconds"),
        status="ok" if run.converged else "not-converged",
        samples=(run.seconds,) if run.converged else (),
        loops=1 if run.converged else 0,
        steady=run.converged,
        environment={
            **{f"log:{key}": value for key, value in run.values.items() if not key.startswith("submission_")},
            **_source("training", place.key, system),
            "division": system.division or str(run.values.get("submission_division", "closed")).lower(),
            "category": system.status or str(run.values.get("submission_status", "")).lower(),
        },
        failure="" if run.converged else f"the quality target was not reached in {run.seconds:.0f} s",
        metrics={name: value for name, value in metrics.items() if value is not None},
        schema=2,
    )


def inference_observation(
    place: ResultPlace, result: InferenceResult, system: System, rules: InferenceRules
) -> Observation:
    """Return the observation of an inference result."""
    round_, division, submitter, name = place.key
    division = division or system.division or "closed"
    parameters: dict[str, int | float | str] = {
        "benchmark": place.benchmark,
        "scenario": result.scenario,
        **result.conditions,
        # In the open division, a benchmark is any model for the task.
        **({"division": division} if division != "closed" else {}),
    }
    return Observation(
        indicator=_indicator(INFERENCE, place.version, system, parameters),
        framework=system.software.framework,
        stack=system.stack,
        hardware=system.hardware,
        block=f"mlperf-inference-{round_}/{division}/{submitter}/{name}",
        round=place.number,
        arm=0,
        reference=True,
        started_at=f"{rules.published or UNKNOWN_DATE}T00:00:00+00:00",
        status="ok",
        samples=(result.seconds,),
        loops=1,
        steady=True,
        environment={
            **{f"log:{key}": value for key, value in result.parameters.items()},
            **({"log:sut": result.sut} if result.sut else {}),
            **_source("inference", place.key, system),
            "division": division,
            "category": system.status,
            "unit": result.unit,
        },
        metrics={"value": result.figure, **result.latencies},
        schema=2,
    )


def _indicator(name: str, version: int, system: System, parameters: Mapping[str, int | float | str]) -> IndicatorRun:
    return IndicatorRun(
        name=name,
        version=version,
        backend=system.software.framework,
        device=system.device,
        dtype="as-submitted",
        parameters=parameters,
    )


def _source(suite: str, key: SystemKey, system: System) -> dict[str, Scalar]:
    """Return where a result comes from, and what ran it."""
    software = system.software
    container = {"container": software.container, "container_contents": " ".join(software.expanded)}
    return {
        **{f"system:{key}": value for key, value in system.described.items()},
        "mlperf_round": key[0],
        "mlperf_reader": READER,
        "source": f"https://github.com/mlcommons/{suite}_results_{key[0]}",
        "licence": "Apache-2.0",
        "submitter": key[2],
        "system": key[3],
        **{name: value for name, value in container.items() if value},
    }
