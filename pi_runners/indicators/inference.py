"""Inference in the four scenarios of MLPerf."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence

from pi_runners.harness.contract import Backend, Parameters, SamplingPlan
from pi_runners.harness.timing import rounded
from pi_runners.indicators.checks import EVERY, Result, difference, making_reference, pick, worst_error
from pi_runners.indicators.indicator import ALL, ITEM_BYTES, LEARNING, PROCESS_BYTES, Parameter, refuse_error
from pi_runners.indicators.loadgen import SCENARIOS, STREAMS, BoundError, run_scenario
from pi_runners.indicators.models import MODELS, model_parameters
from pi_runners.indicators.training import ModelIndicator

_OFFLINE_BATCH = 32
_REFERENCE_FLOPS = 1e11
"""Work up to which samples of a batch are compared: a few seconds in double precision."""
_TESTS = 5
_TOLERANCE = {"float64": 1e-9, "float32": 1e-2, "float16": 5e-2, "bfloat16": 3e-1}


class Inference(ModelIndicator):
    """A model serves queries as LoadGen sends them."""

    name = "inference"
    summary = "a model serves queries: SingleStream, MultiStream, Server, Offline"
    corresponds = (
        "the scenarios of MLPerf Inference (https://github.com/mlcommons/inference), in tests far shorter than its "
        "rules ask: no MLPerf results. By MLCommons' LoadGen where it installs (metric `loadgen` is 1); otherwise by a "
        "loop of our own without its early-stopping estimate, query sampling and log of every query"
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
        "scenario": Parameter("who sends queries, and how", choices=SCENARIOS),
        "bound_milliseconds": Parameter("latency that 99 % of a Server's queries keep", default=15, most=60000),
    }
    sets = {  # noqa: RUF012
        size: tuple(
            dict(MODELS[name].sets[size], model=name, scenario=scenario, batch=1)
            for name in ("cnn", "transformer")
            for scenario in SCENARIOS
        )
        for size in ("small", "medium", "large")
    }

    def supports(self, parameters: Parameters, backend: str) -> bool:
        """What only learns needs a framework that does."""
        return backend in (LEARNING if parameters.get("model") == "unet3d" else ALL)

    def _samples(self, parameters: Parameters) -> int:
        return STREAMS if parameters["scenario"] == "MultiStream" else 1

    def items(self, parameters: Parameters) -> float:
        """Samples of a query."""
        return float(self._samples(parameters))

    def flops(self, parameters: Parameters) -> float:
        """Of what one headline second stands for."""
        return self._samples(parameters) * MODELS[parameters["model"]].count(dict(parameters, batch=1))[0]

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Activations written and read once, weights read once."""
        _, activations, weights = MODELS[parameters["model"]].count(dict(parameters, batch=self._samples(parameters)))
        return ITEM_BYTES[dtype] * (2 * activations + weights)

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Weights of both batch sizes and of the reference, and about half the activations of the larger batch."""
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
            # What is left of a batch at the end takes as long as a whole one, as where inputs are padded.
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
    """Return the largest difference from the logits in double precision, relative to the largest logit.

    All logits must be finite. Of a batch whose reference would take too long, fresh random samples are compared.
    """
    model, batch = MODELS[p["model"]], int(p["batch"])
    made = Result(backend, result, (model.rows(p), p["classes"]))
    if not made.sound or not made.finite():
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
        # A part at a time: as Python's numbers, the logits of a large model take gigabytes.
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            expected = exact.read_all(reference, (slice(start, stop),))
            found = backend.read_all(result, (slice(sample * rows + start, sample * rows + stop),))
            largest = max(largest, *map(abs, expected))
            errors.append(difference(found, expected))
    return worst_error(errors) / largest


def _sample(inputs: Sequence[Any], number: int, batch: int) -> List[Any]:
    """Return the inputs of one sample: an equal part of every array's first axis."""
    each = [len(array) // batch for array in inputs]
    return [array[number * size : (number + 1) * size] for array, size in zip(inputs, each)]


def _reference(backend: Backend) -> Backend:
    """NumPy where the stack has it, otherwise the framework itself."""
    from pi_runners.backends import make_backend

    try:
        return make_backend("numpy", "cpu", "float64", {})
    except ImportError:
        return make_backend(backend.name, backend.device, "float64", {})
