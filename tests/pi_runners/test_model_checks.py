"""The numerical checks of inference and training accept a correct result and reject every wrong one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Backend, Training
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.indicator import time_trial
from pi_runners.indicators.programs import inference
from pi_runners.indicators.programs.models import MODELS
from tests.pi_runners.trials import PLAN, cpu_backend, prepare, with_wrong_element


@pytest.mark.parametrize("fault", ["nan", "inf", "zeros", "other-order", "one-wrong", "too-short", "ten-tolerances"])
@pytest.mark.parametrize("model", ["cnn", "transformer"])
@pytest.mark.parametrize(("backend", "dtype"), [("numpy", "float32"), ("numpy", "float64"), ("torch", "bfloat16")])
def test_wrong_predictions_are_a_wrong_result(
    fault: str, model: str, backend: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = cpu_backend(backend, dtype)
    tolerance = inference._TOLERANCE[dtype]

    class Wrong(type(framework)):  # type: ignore[misc]
        def compile(self, function: Any, arrays: Sequence[Any], weights: Sequence[Any] = ()) -> Any:
            compute = super().compile(function, arrays, weights)

            def run() -> Any:
                result = compute()
                if result.shape[0] == 1 or (model == "transformer" and result.shape[0] == 64):
                    # Only the predictions of a whole batch are wrong.
                    return result
                return {
                    "nan": lambda: result * math.nan,
                    "inf": lambda: result * 0 + math.inf,
                    "zeros": lambda: result * 0,
                    "other-order": lambda: result.flip(0) if backend == "torch" else result[::-1],
                    "one-wrong": lambda: with_wrong_element(self, result, 0.7),
                    "too-short": lambda: result[:-1],
                    "ten-tolerances": lambda: result * (1 + 10 * tolerance),
                }[fault]()

            return run

    monkeypatch.setattr(inference, "run_scenario", lambda *_: {"seconds": 1.0, "rate": 1.0})
    case = {**MODELS[model].sets["small"], "model": model, "scenario": "MultiStream", "batch": 1}

    wrong = INDICATORS["inference"].measure(Wrong("cpu", dtype, {}), case, PLAN)

    assert correct_status(backend, dtype, model) == "ok"
    assert wrong["status"] == "wrong-result"


@cache
def correct_status(backend: str, dtype: str, model: str) -> object:
    """Return the status of correct predictions; they are measured once for all faults."""
    case = {**MODELS[model].sets["small"], "model": model, "scenario": "MultiStream", "batch": 1}
    return INDICATORS["inference"].measure(cpu_backend(backend, dtype), case, PLAN)["status"]


@pytest.mark.parametrize("model", [name for name in MODELS if name != "unet3d"])
@pytest.mark.parametrize("sample", [0, 4, 7])
def test_a_wrong_sample_is_noticed_only_if_it_is_the_compared_one(
    model: str, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = cpu_backend("numpy", "float32")
    monkeypatch.setattr(inference, "_REFERENCE_FLOPS", 1.0)
    monkeypatch.setattr(inference, "pick", lambda count, most: [sample] if most < count else list(range(count)))
    network = MODELS[model]
    case = {**INDICATORS["inference"].complete({"model": model}), **network.sets["small"], "batch": 8}
    weights, inputs = network.make_weights(framework, case), network.inputs(framework, case)
    correct = network.forward(framework, weights, inputs, case, False)
    rows = network.rows(case) // 8
    # One element of one sample is wrong by the largest logit.
    compared_sample_wrong, next_sample_wrong = correct.copy(), correct.copy()
    compared_sample_wrong[sample * rows + rows // 2, 0] += abs(correct).max()
    next_sample_wrong[(sample * rows + rows + rows // 2) % len(correct), 0] += abs(correct).max()

    assert inference._difference(framework, case, correct) < 1e-4
    assert inference._difference(framework, case, compared_sample_wrong) > 0.5
    assert inference._difference(framework, case, next_sample_wrong) < 1e-4


WRONG_STEPS = {"no step": 0.0, "wrong direction": -1.0, "half a step": 0.5, "two steps": 2.0, "ten tolerances": 3.5}
"""Length of each wrong training step, relative to the correct step."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_correct_training_step_passes_and_every_wrong_step_fails(model: str, dtype: str) -> None:
    framework = cpu_backend("torch", dtype)
    case = {**MODELS[model].sets["small"], "model": model}
    case.update({"cnn": {"batch": 4, "size": 8, "width": 8}, "unet3d": {"size": 4, "width": 4}}.get(model, {}))

    class Wrong(type(framework)):  # type: ignore[misc]
        length = 1.0

        def reference(self) -> Backend:
            # The backend that computes the reference has no fault.
            return framework.reference()

        def train(self, loss: Any, weights: Any, batch: Any, rate: float = 0.0) -> Training:
            training: Training = super().train(loss, weights, batch, rate * self.length)
            return training

    def status(length: float) -> str:
        Wrong.length = length
        trial = prepare(Wrong("cpu", dtype, {}), "training_step", case)
        return str(time_trial(trial, framework, PLAN)["status"])

    assert status(1.0) == "ok"
    assert {step: status(length) for step, length in WRONG_STEPS.items()} == dict.fromkeys(WRONG_STEPS, "wrong-result")


@pytest.mark.parametrize("part", ["loss", "squared_norm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_training_step_whose_loss_or_norm_is_not_a_positive_number_fails(part: str, dtype: str, value: float) -> None:
    framework = cpu_backend("torch", dtype)

    class Wrong(type(framework)):  # type: ignore[misc]
        def train(self, *arguments: Any) -> Training:
            training: Training = super().train(*arguments)._replace(**{part: lambda _: value})
            return training

    trial = prepare(
        Wrong("cpu", dtype, {}), "training_step", {**MODELS["recommender"].sets["small"], "model": "recommender"}
    )

    assert time_trial(trial, framework, PLAN)["status"] == "wrong-result"


def test_a_training_step_in_mixed_precision_is_compared_with_one_in_single_precision() -> None:
    pytest.importorskip("torch")
    framework = make_backend("torch", "cpu", "float32", {"amp": "bfloat16"})
    case = {**MODELS["transformer"].sets["small"], "model": "transformer"}

    measured = INDICATORS["training_step"].measure(framework, case, PLAN)

    assert measured["status"] == "ok", measured
