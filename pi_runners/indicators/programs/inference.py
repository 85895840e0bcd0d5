"""Inference in the four scenarios of MLPerf Inference."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence, Tuple

from pi_runners.harness.contract import Backend, Parameter, Parameters, SamplingPlan
from pi_runners.harness.timing import rounded
from pi_runners.indicators.checks.results import EVERY, Result, difference, making_reference, pick, worst_error
from pi_runners.indicators.indicator import ITEM_BYTES, PROCESS_BYTES, refuse_error
from pi_runners.indicators.programs.loadgen import SCENARIOS, STREAMS, BoundError, run_scenario
from pi_runners.indicators.programs.models import MODELS, model_parameters
from pi_runners.indicators.programs.training import ModelIndicator

_OFFLINE_BATCH = 32
_REFERENCE_FLOPS = 1e11
"""Maximum operations for the reference of the compared samples: a few seconds in double precision."""
_TESTS = 5
_TOLERANCE = {"float64": 1e-9, "float32": 1e-2, "float16": 5e-2, "bfloat16": 3e-1}


class Inference(ModelIndicator):
    """A model answers queries that LoadGen sends."""

    name = "inference"
    summary = "a model answers queries: SingleStream, MultiStream, Server, Offline"
    corresponds = (
        "the scenarios of MLPerf Inference (https://github.com/mlcommons/inference), in tests that are far shorter "
        "than its rules require: not MLPerf results. MLCommons' LoadGen is used where it can be installed (metric "
        "`loadgen` is 1); otherwise a simpler loop without early-stopping estimate, query sampling and query log"
    )
    flops_formula = "the products and convolutions of the forward pass on one sample (MultiStream: on 8)"
    bytes_formula = "item (2 activations + weights)"
    source = "https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc (scenarios)"
    sample = (
        "seconds of one test: 90th percentile of latency (SingleStream), 99th (MultiStream), "
        "seconds per query at the highest rate within the bound (Server), seconds per sample (Offline)"
    )
    parameters = {  # noqa: RUF012
        **model_parameters(),
        "scenario": Parameter("scenario of MLPerf Inference", choices=SCENARIOS),
        "bound_milliseconds": Parameter(
            "maximum latency of 99 % of the queries of the Server scenario", default=15, most=60000
        ),
    }
    sets = {  # noqa: RUF012
        size: tuple(
            dict(MODELS[name].sets[size], model=name, scenario=scenario, batch=1)
            for name in ("cnn", "transformer")
            for scenario in SCENARIOS
        )
        for size in ("small", "medium", "large")
    }

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return MODELS[parameters.get("model", "cnn")].needs

    def _samples(self, parameters: Parameters) -> int:
        return STREAMS if parameters["scenario"] == "MultiStream" else 1

    def items(self, parameters: Parameters) -> float:
        return float(self._samples(parameters))

    def flops(self, parameters: Parameters) -> float:
        return self._samples(parameters) * MODELS[parameters["model"]].count(dict(parameters, batch=1))[0]

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of activations, written and read once, and of weights, read once."""
        _, activations, weights = MODELS[parameters["model"]].count(dict(parameters, batch=self._samples(parameters)))
        return ITEM_BYTES[dtype] * (2 * activations + weights)

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of all weights and about half of the activations of the larger batch."""
        batch = {"MultiStream": STREAMS, "Offline": _OFFLINE_BATCH}.get(parameters["scenario"], 1)
        _, activations, weights = MODELS[parameters["model"]].count(dict(parameters, batch=batch))
        return PROCESS_BYTES + activations * ITEM_BYTES[dtype] / 2 + weights * (2 * ITEM_BYTES[dtype] + 10)

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Run the scenario several times; each test gives one sample."""
        p = {name: value for name, value in self.complete(parameters).items() if value != 0}
        scenario = p["scenario"]
        size = {"MultiStream": STREAMS, "Offline": _OFFLINE_BATCH}.get(scenario, 1)
        calls: Dict[int, Callable[[], Any]] = {}
        for n in {1, size}:
            batch, model = dict(p, batch=n), MODELS[p["model"]]
            calls[n] = _server(backend, batch, model.inputs(backend, batch), model.make_weights(backend, batch))
        tolerance = _TOLERANCE[backend.precision]
        error = worst_error(_difference(backend, dict(p, batch=n), calls[n]()) for n in calls)
        if wrong := refuse_error(error, tolerance):
            return wrong

        def serve(count: int) -> None:
            # An incomplete last batch runs as a complete one, as if its inputs were padded.
            backend.synchronise(calls[count if count in calls else size]())

        for count in calls:
            for _ in range(3):
                serve(count)
        seconds = max(0.1, plan.min_seconds * 4)
        tests = []
        try:
            for _ in range(min(plan.samples, _TESTS)):
                bound = p["bound_milliseconds"] / 1000
                tests.append(run_scenario(scenario, serve, seconds, bound, size, plan.instruments))
        except BoundError as reason:
            return {"status": "error", "failure": str(reason)}
        metrics = {key: sorted(t[key] for t in tests)[len(tests) // 2] for key in tests[0] if key != "seconds"}
        return {
            "status": "ok",
            "samples": rounded([t["seconds"] for t in tests]),
            "loops": 1,
            "steady": True,
            "error": error,
            "tolerance": tolerance,
            "metrics": metrics,
        }


def _server(backend: Backend, p: Parameters, inputs: Sequence[Any], weights: Sequence[Any]) -> Callable[[], Any]:
    model, count = MODELS[p["model"]], len(inputs)
    return backend.compile(
        lambda b, *arrays: model.forward(b, arrays[count:], arrays[:count], p, False), inputs, weights
    )


def _difference(backend: Backend, p: Parameters, result: Any) -> float:
    """Return the largest difference from logits in double precision, relative to the largest logit.

    All logits must be finite. If the reference of the whole batch takes too long, random samples are compared.
    """
    model, batch = MODELS[p["model"]], int(p["batch"])
    shape = (model.rows(p), p["classes"])
    if backend.shape_of(result) != shape or not Result(backend, result, shape).finite():
        return math.inf
    single = dict(p, batch=1)
    rows = model.rows(single)
    step = max(1, EVERY // p["classes"])
    errors, largest = [], 0.0
    with making_reference():
        exact = _reference(backend)
        weights, inputs = model.make_weights(exact, p), model.inputs(exact, p)
    for sample in pick(batch, int(_REFERENCE_FLOPS / model.count(single)[0])):
        with making_reference():
            reference = _server(exact, single, _sample(inputs, sample, batch), weights)()
        # In parts: as Python numbers, the logits of a large model take gigabytes.
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            expected = exact.read_all(reference, (slice(start, stop),))
            actual = backend.read_all(result, (slice(sample * rows + start, sample * rows + stop),))
            largest = max(largest, *map(abs, expected))
            errors.append(difference(actual, expected))
    return worst_error(errors) / largest


def _sample(inputs: Sequence[Any], number: int, batch: int) -> List[Any]:
    """Return the inputs of one sample: its part of the first axis of every array."""
    each = [len(array) // batch for array in inputs]
    return [array[number * size : (number + 1) * size] for array, size in zip(inputs, each)]


def _reference(backend: Backend) -> Backend:
    """Return a backend with double precision: NumPy if the stack contains it, otherwise the framework itself."""
    from pi_runners.frameworks import make_backend

    try:
        return make_backend("numpy", "cpu", "float64", {})
    except ImportError:
        return make_backend(backend.name, backend.device, "float64", {})
