"""The numerical checks: a right result passes, and no wrong one does."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import pytest

from pi_runners.backends import make_backend
from pi_runners.harness.contract import (
    Backend,
    Parameters,
    SamplingPlan,
    Training,
    Trial,
    Unsupported,
    decode,
    random_bytes,
)
from pi_runners.indicators import INDICATORS, inference
from pi_runners.indicators.checks import EVERY, Result, difference, pick, signed_sum, worst_error
from pi_runners.indicators.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.indicator import Operation, refuse_error, time_trial
from pi_runners.indicators.models import MODELS

PLAN = SamplingPlan(samples=2, min_seconds=0.0005, max_warmup_seconds=0.05)
_LAYERS: Parameters = {"batch": 2, "channels": 4, "filters": 6, "kernel": 3}
TINY: dict[str, list[Parameters]] = {
    "matmul": [
        {"m": 33, "n": 20, "k": 16},
        {"m": 9, "n": 8, "k": 12, "batch": 3},
        {"m": 8, "n": 12, "k": 16, "transpose_a": "yes", "transpose_b": "yes"},
    ],
    "conv1d": [{**_LAYERS, "size": 17}],
    "conv2d": [
        {**_LAYERS, "size": 7},
        {**_LAYERS, "size": 7, "stride": 2, "groups": 2},
        {**_LAYERS, "height": 6, "width": 9, "filters": 4, "groups": 4, "pad_width": 0},
    ],
    "conv3d": [{**_LAYERS, "size": 5, "stride": 2}],
    "recurrent": [
        {"cell": cell, "hidden": 12, "batch": 3, "timesteps": 4, "inputs": 7} for cell in ("vanilla", "lstm", "gru")
    ],
    "attention": [{"batch": 2, "heads": 3, "length": 9, "width": 8}],
    "embedding": [{"rows": 50, "width": 6, "lookups": 40}],
    "elementwise": [{"rows": 8, "columns": 33, "kind": kind} for kind in ("add", "multiply", "tanh", "chain")],
    "reduction": [{"rows": 17, "columns": 300, "kind": kind} for kind in ("sum", "max")],
    "softmax": [{"rows": 8, "columns": 33}],
    "normalisation": [{"kind": kind, "rows": 40, "columns": 24} for kind in ("layer", "batch")],
    "fft": [{"rows": 9, "columns": 32}, {"rows": 3, "columns": 30}],
    "sort": [{"rows": 8, "columns": 33}],
    "memory": [{"kernel": kernel, "elements": 5000} for kernel in ("copy", "scale", "add", "triad")],
    "roofline": [{"roof": "flops", "n": 24}, {"roof": "bandwidth", "n": 5000}],
}
BACKWARD = [(name, {**case, "direction": "backward"}) for name in ("conv1d", "conv2d", "conv3d") for case in TINY[name]]
CASES = [(name, case) for name, cases in TINY.items() for case in cases]
ON_NUMPY = [("numpy", dtype, *case) for dtype in ("float32", "float64") for case in CASES]
ON_TORCH = [
    ("torch", dtype, name, case)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int8")
    for name, case in [*CASES, *BACKWARD]
    if dtype in INDICATORS[name].dtypes and (dtype != "int8" or ("batch" not in case and case.get("m", 24) > 16))
]
EVERYWHERE = pytest.mark.parametrize(("backend", "dtype", "name", "case"), [*ON_NUMPY, *ON_TORCH])


def backend_of(name: str, dtype: str) -> Backend:
    if name == "torch":
        pytest.importorskip("torch")
    return make_backend(name, "cpu", dtype, {})


def with_other_inputs(backend: Backend) -> Backend:
    """A backend that computes rightly, on the inputs in the reverse order: its results belong to another call."""

    class OtherInputs(type(backend)):  # type: ignore[misc]
        inside = False

        def array(self, *given: Any) -> Any:
            return self._from_reversed(super().array, *given)

        def images(self, *given: Any) -> Any:
            return self._from_reversed(super().images, *given)

        def filters(self, *given: Any) -> Any:
            return self._from_reversed(super().filters, *given)

        def _from_reversed(self, make: Any, raw: bytes, *rest: Any) -> Any:
            if self.inside:
                return make(raw, *rest)
            self.inside = True
            made = make(raw[::-1], *rest)
            self.inside = False
            return made

        def integers(self, numbers: Sequence[int], *rest: Any) -> Any:
            return super().integers(list(numbers)[::-1], *rest)

    return OtherInputs(backend.device, backend.dtype, {})


def module_of(backend: Backend) -> Any:
    return importlib.import_module(backend.name)


def flat(backend: Backend, result: Any) -> Any:
    return result.clone().reshape(-1) if backend.name == "torch" else result.copy().reshape(-1)


def with_one_wrong(backend: Backend, result: Any, place: float) -> Any:
    elements = flat(backend, result)
    at = int(place * (len(elements) - 1))
    elements[at] = elements[at] + abs(elements).max()
    return elements.reshape(result.shape)


def mistakes(backend: Backend, right: Any, stale: Any, tolerance: float) -> dict[str, Any]:
    """What a wrong framework might give instead of ``right``."""
    whole = backend.dtype == "int8"
    wrong = {
        "zeros": right * 0,
        "result of another call": stale,
        "ten tolerances": right + 1 if whole else right * (1 + 10 * tolerance),
        "first wrong": with_one_wrong(backend, right, 0.0),
        "one wrong": with_one_wrong(backend, right, 0.62),
        "last wrong": with_one_wrong(backend, right, 1.0),
        "too short": right[:-1],
        "an axis more": right[None],
    }
    if not whole:
        one = flat(backend, right)
        one[len(one) // 3] = math.nan
        many = flat(backend, right)
        many[len(many) // 2] = -math.inf
        wrong.update(
            {
                "not a number": right * math.nan,
                "infinity": right * 0 + math.inf,
                "one not a number": one.reshape(right.shape),
                "one infinity": many.reshape(right.shape),
            }
        )
    return wrong


def accepted(trial: Trial, backend: Backend, result: Any) -> bool:
    return bool(time_trial(Trial(lambda: result, trial.check, trial.tolerance), backend, PLAN)["status"] == "ok")


def prepare(backend: Backend, name: str, case: Parameters) -> Trial:
    indicator = INDICATORS[name]
    assert isinstance(indicator, Operation)
    assert indicator.complaints(case) == []
    return indicator.prepare(backend, indicator.complete(case))


def results_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


@EVERYWHERE
def test_a_right_result_passes_and_every_wrong_one_fails(backend: str, dtype: str, name: str, case: Parameters) -> None:
    framework = backend_of(backend, dtype)
    trial = prepare(framework, name, case)
    right = trial.run()
    stale = prepare(with_other_inputs(framework), name, case).run()

    assert accepted(trial, framework, right), trial.check(right)
    parts, others = results_of(right), results_of(stale)
    for number, part in enumerate(parts):
        for mistake, wrong in mistakes(framework, part, others[number], trial.tolerance).items():
            given = tuple(wrong if i == number else p for i, p in enumerate(parts))
            assert not accepted(trial, framework, given if len(parts) > 1 else given[0]), mistake


@pytest.mark.parametrize("name", ["elementwise", "softmax", "memory", "matmul", "embedding", "fft"])
def test_a_large_result_with_an_element_that_is_not_finite_fails(name: str) -> None:
    cases: dict[str, Parameters] = {
        "elementwise": {"rows": 3000, "columns": 400, "kind": "add"},
        "softmax": {"rows": 3000, "columns": 400},
        "memory": {"kernel": "triad", "elements": 1200000},
        "matmul": {"m": 6000, "n": 200, "k": 4},
        "embedding": {"rows": 50, "width": 200, "lookups": 6000},
        "fft": {"rows": 30000, "columns": 128},
    }
    framework = backend_of("numpy", "float32")
    trial = prepare(framework, name, cases[name])
    result = trial.run()
    assert result.size > EVERY

    assert accepted(trial, framework, result)
    result.reshape(-1)[result.size * 5 // 7] = math.nan
    assert not accepted(trial, framework, result)


@pytest.mark.parametrize("mistake", ["nan", "inf", "zeros", "another", "one", "short", "tolerances"])
@pytest.mark.parametrize("model", ["cnn", "transformer"])
@pytest.mark.parametrize(("backend", "dtype"), [("numpy", "float32"), ("numpy", "float64"), ("torch", "bfloat16")])
def test_inference_that_answers_wrongly_is_a_failed_observation(
    mistake: str, model: str, backend: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = backend_of(backend, dtype)
    tolerance = inference._TOLERANCE[dtype]

    class Wrong(type(framework)):  # type: ignore[misc]
        def compile(self, function: Any, arrays: Sequence[Any], weights: Sequence[Any] = ()) -> Any:
            right = super().compile(function, arrays, weights)

            def run() -> Any:
                result = right()
                if result.shape[0] == 1 or (model == "transformer" and result.shape[0] == 64):
                    # Only the answer to a whole batch is wrong.
                    return result
                return {
                    "nan": lambda: result * math.nan,
                    "inf": lambda: result * 0 + math.inf,
                    "zeros": lambda: result * 0,
                    "another": lambda: result.flip(0) if backend == "torch" else result[::-1],
                    "one": lambda: with_one_wrong(self, result, 0.7),
                    "short": lambda: result[:-1],
                    "tolerances": lambda: result * (1 + 10 * tolerance),
                }[mistake]()

            return run

    monkeypatch.setattr(inference, "run_scenario", lambda *_: {"seconds": 1.0, "rate": 1.0})
    case = {**MODELS[model].sets["small"], "model": model, "scenario": "MultiStream", "batch": 1}

    right = INDICATORS["inference"].measure(framework, case, PLAN)
    wrong = INDICATORS["inference"].measure(Wrong("cpu", dtype, {}), case, PLAN)

    assert right["status"] == "ok"
    assert wrong["status"] == "wrong-result"


@pytest.mark.parametrize("model", [name for name in MODELS if name != "unet3d"])
@pytest.mark.parametrize("sample", [0, 4, 7])
def test_any_sample_of_a_batch_may_be_the_one_that_is_compared(
    model: str, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, few = backend_of("numpy", "float32"), 1.0
    monkeypatch.setattr(inference, "_REFERENCE_FLOPS", few)
    monkeypatch.setattr(inference, "pick", lambda count, most: [sample] if most < count else list(range(count)))
    case = {**INDICATORS["inference"].complete({"model": model}), **MODELS[model].sets["small"], "batch": 8}
    made = MODELS[model]
    right = made.forward(framework, made.make_weights(framework, case), made.inputs(framework, case), case, False)
    rows = made.rows(case) // 8
    # One element of the sample, and of no other, is off by the largest logit.
    wrong, elsewhere = right.copy(), right.copy()
    wrong[sample * rows + rows // 2, 0] += abs(right).max()
    elsewhere[(sample * rows + rows + rows // 2) % len(right), 0] += abs(right).max()

    assert inference._difference(framework, case, right) < 1e-4
    assert inference._difference(framework, case, wrong) > 0.5
    assert inference._difference(framework, case, elsewhere) < 1e-4


STEPS = {"no step": 0.0, "the wrong direction": -1.0, "half a step": 0.5, "two steps": 2.0, "ten tolerances": 3.5}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_right_training_step_passes_and_every_wrong_one_fails(model: str, dtype: str) -> None:
    framework = backend_of("torch", dtype)
    case = {**MODELS[model].sets["small"], "model": model}
    case.update({"cnn": {"batch": 4, "size": 8, "width": 8}, "unet3d": {"size": 4, "width": 4}}.get(model, {}))

    class Wrong(type(framework)):  # type: ignore[misc]
        length = 1.0

        def reference(self) -> Backend:
            # What is wrong in one type is not wrong in the other.
            return framework.reference()

        def train(self, loss: Any, weights: Any, batch: Any, rate: float = 0.0) -> Training:
            made: Training = super().train(loss, weights, batch, rate * self.length)
            return made

    def status(length: float) -> str:
        Wrong.length = length
        trial = prepare(Wrong("cpu", dtype, {}), "training_step", case)
        return str(time_trial(trial, framework, PLAN)["status"])

    assert status(1.0) == "ok"
    assert {step: status(length) for step, length in STEPS.items()} == dict.fromkeys(STEPS, "wrong-result")


@pytest.mark.parametrize("part", ["loss", "squared_norm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_training_step_without_a_sound_loss_or_norm_fails(part: str, dtype: str, value: float) -> None:
    framework = backend_of("torch", dtype)

    class Wrong(type(framework)):  # type: ignore[misc]
        def train(self, *given: Any) -> Training:
            made: Training = super().train(*given)._replace(**{part: lambda _: value})
            return made

    trial = prepare(
        Wrong("cpu", dtype, {}), "training_step", {**MODELS["recommender"].sets["small"], "model": "recommender"}
    )

    assert time_trial(trial, framework, PLAN)["status"] == "wrong-result"


def test_a_training_step_in_mixed_precision_is_compared_with_one_in_single() -> None:
    pytest.importorskip("torch")
    framework = make_backend("torch", "cpu", "float32", {"amp": "bfloat16"})
    case = {**MODELS["transformer"].sets["small"], "model": "transformer"}

    measured = INDICATORS["training_step"].measure(framework, case, PLAN)

    assert measured["status"] == "ok", measured


@pytest.mark.parametrize("direction", ["to_device", "to_host"])
@pytest.mark.parametrize(("copies", "status"), [(True, "ok"), (False, "wrong-result")])
def test_a_transfer_that_copies_nothing_is_noticed(
    direction: str, copies: bool, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from pi_runners.backends.torch import TorchBackend, make_copies

    class OnHost(TorchBackend):
        def to_device(self, raw: bytes) -> Any:
            return make_copies(torch.frombuffer(bytearray(raw), dtype=torch.uint8), "cpu")

    if not copies:
        monkeypatch.setattr(torch.Tensor, "copy_", lambda there, *_, **__: there)

    measured = INDICATORS["transfer"].measure(
        OnHost("cpu", "float32", {}), {"direction": direction, "bytes": 4096}, PLAN
    )

    assert measured["status"] == status


def test_there_is_no_transfer_without_a_device() -> None:
    with pytest.raises(Unsupported):
        backend_of("torch", "float32").to_device(b"12")


@pytest.mark.parametrize("errors", [[math.nan], [0.0, math.nan], [math.nan, 0.0], [math.inf, 0.0], []])
def test_no_number_and_no_elements_are_the_worst_error(errors: list[float]) -> None:
    assert worst_error(errors) == math.inf


def test_the_worst_error_of_finite_ones_is_the_largest() -> None:
    assert worst_error([0.5, 2.0, 1.0]) == 2.0


def test_rows_of_different_lengths_differ_by_infinity() -> None:
    assert difference([1.0], [1.0, 2.0]) == math.inf
    assert difference([], []) == math.inf
    assert difference([1.0, 3.0], [1.0, 2.0], 2.0) == 0.5
    assert signed_sum([[1, 2], [3]], [1, 1]) == []


@pytest.mark.parametrize("error", [math.nan, math.inf, -1.0, 0.2])
def test_only_an_error_within_the_tolerance_is_accepted(error: float) -> None:
    assert refuse_error(error, 0.1)["status"] == "wrong-result"
    assert refuse_error(0.1, 0.1) == {}


def test_places_are_all_or_the_ends_and_fresh_ones() -> None:
    assert pick(5, 5) == [0, 1, 2, 3, 4]
    drawn = [pick(1000, 10) for _ in range(20)]
    assert all(len(d) == 10 and d[0] == 0 and d[-1] == 999 for d in drawn)
    assert len({tuple(d) for d in drawn}) > 1
    assert len(pick(1000, 0)) == 1


def test_packed_rows_compute_what_single_numbers_do() -> None:
    for dtype in ("float32", "int8"):
        numbers = whole_numbers(dtype)
        raws = [random_bytes(seed, 9) for seed in (1, 2, 3)]
        factors = [-7, 300, 11]

        total = sum(f * pack(raw, 4, numbers) for f, raw in zip(factors, raws, strict=True))

        assert unpack(total, 9, 4) == [
            sum(f * row[i] for f, row in zip(factors, map(numbers.row, raws), strict=True)) for i in range(9)
        ]
        assert [n / numbers.denominator for n in numbers.row(raws[0])] == pytest.approx(decode(raws[0], dtype))


def test_sums_that_fit_into_no_field_are_refused() -> None:
    assert field_bytes(2**31 - 1) == 4
    assert field_bytes(2**31) == 8
    with pytest.raises(OverflowError):
        field_bytes(2**63)


def test_a_result_is_read_in_the_layout_of_its_framework() -> None:
    numpy = pytest.importorskip("numpy")
    framework = backend_of("numpy", "float64")
    images = numpy.arange(24.0).reshape(1, 2, 3, 4)

    first = Result(framework, images, (1, 2, 3, 4)).channel(0, 1)
    framework.channels_last = True
    last = Result(framework, numpy.moveaxis(images, 1, -1), (1, 3, 4, 2)).channel(0, 1)

    assert first == last == list(range(12, 24))
