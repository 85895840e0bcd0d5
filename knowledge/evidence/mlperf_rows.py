"""Results of MLPerf as rows of published measurements, so that they are paired like those of other sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from knowledge.domain.observation import PUBLISHED, IndicatorRun, Observation
from knowledge.evidence.mlperf import score_submissions
from knowledge.exchange.mlperf.results import INFERENCE, distinct_results

TRAINING_BLOCK, INFERENCE_BLOCK = f"{PUBLISHED}/MLPerf Training", f"{PUBLISHED}/MLPerf Inference"
USUAL_NAMES: Mapping[str, str] = {"resnet": "resnet50", "bert": "bert_large", "ssd": "ssd_resnet34"}
"""Tasks of benchmarks of MLPerf that have another name there (https://github.com/mlcommons/training and inference)."""
ADVISED = ("jax", "tensorflow", "torch")
"""Frameworks whose versions are compared; others, such as TensorRT, are no choice of a lock."""


def training_rows(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield a row for each score of the closed division: seconds to train, as the rules of the round compute them.

    Args:
        observations: Observations; those of other indicators are ignored.
    """
    for score in score_submissions(observations):
        if score.minutes is not None and score.division == "closed" and score.accelerators:
            target = {} if score.target is None else {"target": score.target}
            yield _row(
                score.observation,
                block=TRAINING_BLOCK,
                task=USUAL_NAMES.get(score.benchmark, score.benchmark),
                seconds=60 * score.minutes,
                parameters={"submitter": score.submitter, "gpus": score.accelerators, **target},
            )


def inference_rows(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield a row for each result of the closed division.

    Args:
        observations: Observations; those of other indicators are ignored.
    """
    for o in distinct_results(o for o in observations if o.indicator.name == INFERENCE):
        if o.environment.get("division") == "closed" and o.status == "ok":
            parameters = dict(o.indicator.parameters)
            benchmark = str(parameters.pop("benchmark"))
            gpus = sum(a.count for a in o.hardware.accelerators) * (o.hardware.nodes or 1)
            yield _row(
                o,
                block=INFERENCE_BLOCK,
                task=USUAL_NAMES.get(benchmark, benchmark),
                seconds=o.samples[0],
                parameters={**parameters, "submitter": str(o.environment["submitter"]), "gpus": gpus},
            )


def _row(
    o: Observation, *, block: str, task: str, seconds: float, parameters: Mapping[str, int | float | str]
) -> Observation:
    mode = "training" if block == TRAINING_BLOCK else "inference"
    return replace(
        o,
        indicator=IndicatorRun(
            name=PUBLISHED,
            version=o.indicator.version,
            backend=o.indicator.backend,
            device=o.indicator.device,
            dtype="as-published",
            parameters={**parameters, "task": task, "mode": mode},
        ),
        # The name of a system changes with its software.
        hardware=replace(o.hardware, name=""),
        block=block,
        round=0,
        arm=0,
        reference=False,
        samples=(seconds,),
    )
