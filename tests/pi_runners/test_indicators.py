"""Every indicator: its parameters, its formulae and its results on NumPy."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import pytest

from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import frameworks
from pi_runners.frameworks.numpy.operations import NumpyBackend
from pi_runners.frameworks.onnxruntime.onnx_format import Graph, Symbol
from pi_runners.harness.contract import Backend, Parameters, SamplingPlan, Unsupported
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.indicator import Operation
from pi_runners.indicators.processes.communication_patterns import buffer_bytes
from pi_runners.indicators.programs.loadgen import SCENARIOS, run_scenario
from pi_runners.indicators.programs.models import MODELS
from pi_runners.indicators.programs.training import TimeToQuality
from pi_runners.plan.matrix import choose_cases
from pi_runners.plan.shape_lists import published_shapes

PLAN = SamplingPlan(samples=2, min_seconds=0.0005, max_warmup_seconds=0.2)
SIZES = ("small", "medium", "large")
CASES = [(name, size, case) for name, i in INDICATORS.items() for size in SIZES for case in i.sets[size]]
ON_NUMPY = [
    (name, case)
    for name, size, case in CASES
    if size == "small"
    and INDICATORS[name].supports(case, frameworks()["numpy"])
    and isinstance(INDICATORS[name], Operation)
    and name not in ("memory", "roofline")
]


EVERY_FRAMEWORK, TRAINING = ["jax", "numpy", "onnxruntime", "tensorflow", "torch"], ["jax", "tensorflow", "torch"]
BACKENDS = {
    **dict.fromkeys(("training_step", "time_to_quality", "transfer"), TRAINING),
    **{name: ["jax", "onnxruntime", "tensorflow", "torch"] for name in ("model", "block")},
    "communication": ["torch"],
    "input": ["opencv", "pillow", "tensorflow", "tokenizers", "torch"],
}
PROSE = {
    *("conv1d", "conv2d", "conv3d", "recurrent", "elementwise", "training_step", "inference", "model", "block"),
    *("memory", "roofline", "communication", "input"),
}
"""Indicators whose formulae have words that are not parameters."""


@pytest.mark.parametrize(("name", "size", "case"), CASES)
def test_every_shipped_parameter_set_is_valid(name: str, size: str, case: Parameters) -> None:
    assert INDICATORS[name].complaints(case) == []
    assert INDICATORS[name].canonical(case) == case


@pytest.mark.parametrize("name", INDICATORS)
def test_every_indicator_has_a_description_a_source_and_parameter_sets(name: str) -> None:
    indicator = INDICATORS[name]

    assert [i.summary for i in INDICATORS.values()].count(indicator.summary) == 1
    assert len(indicator.summary) < 120
    assert indicator.summary[-1] != "."
    assert re.search(r"https?://\S+\.\w+|benchmarks/operator_benchmark|importtime", indicator.corresponds)
    assert re.match(r"https?://|counted from the definition$", indicator.source)
    assert set(indicator.sets) == set(SIZES)
    assert indicator.backends(frameworks().values()) == BACKENDS.get(name, EVERY_FRAMEWORK)


def value_of(formula: str, values: dict[str, Any]) -> float | None:
    """Return the value of a formula; ``None`` if it has other words than these."""
    tokens = re.findall(r"[\d.]+|[a-z_]\w*|[-+/^()]|\S", formula)
    if not all(re.fullmatch(r"[\d.]+|[-+/^()]", t) or t in values for t in tokens):
        return None
    text = ""
    for before, token in zip(["(", *tokens], tokens, strict=False):
        is_factor = re.fullmatch(r"[\w.]+|\)", before) and re.fullmatch(r"[\w.]+|\(", token) and before != "log2"
        text += ("*" if is_factor else "") + {"^": "**"}.get(token, token)
    return float(eval(text, dict(values)))  # noqa: S307 -- of the program's own formulae


@pytest.mark.parametrize("name", INDICATORS)
def test_the_formulae_give_what_is_computed(name: str) -> None:
    indicator = INDICATORS[name]
    values = [
        (
            value_of(indicator.flops_formula.partition(":")[0], {**p, "log2": math.log2}),
            value_of(indicator.bytes_formula, {**p, "item": 8, "log2": math.log2}),
            p,
        )
        for cases in indicator.sets.values()
        for p in map(indicator.complete, cases)
    ]

    assert all(flops in (None, indicator.flops(p)) for flops, _, p in values)
    assert all(moved in (None, indicator.bytes_moved(p, "float64")) for _, moved, p in values)
    assert (None in {flops for flops, _, _ in values}) == (name in PROSE - {"input"})
    assert (None in {moved for _, moved, _ in values}) == (name in PROSE)


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax", "onnxruntime", "numpy"])
def test_the_abilities_of_a_framework_are_the_operations_of_its_backend(name: str) -> None:
    framework = frameworks()[name]
    contract = list(vars(Backend))
    operations = {*contract[contract.index("matmul") : contract.index("_lacks")]} - {"attention"}
    tree = ast.parse((framework.folder / "operations.py").read_text(encoding="utf-8"))
    (backend,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == f"{name.capitalize()}Backend")
    names = {n.name for n in backend.body if isinstance(n, ast.FunctionDef)}
    names |= {t.id for n in backend.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}

    assert operations & framework.abilities == operations & (names | {"add", "multiply", "scale"})


@pytest.mark.parametrize("name", INDICATORS)
def test_larger_parameter_sets_need_more_work_and_memory(name: str) -> None:
    indicator = INDICATORS[name]
    work = [
        max(indicator.flops(indicator.complete(c)) + indicator.memory(indicator.complete(c), "float32") for c in cases)
        for cases in indicator.sets.values()
    ]

    assert work == sorted(work)


@pytest.mark.parametrize(("name", "case"), ON_NUMPY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_of_numpy_are_within_the_tolerance(name: str, case: Parameters, dtype: str) -> None:
    measured = INDICATORS[name].measure(NumpyBackend("cpu", dtype, {}), case, PLAN)

    assert measured["status"] == "ok", measured
    assert measured["error"] <= measured["tolerance"]
    assert len(measured["samples"]) >= 2


def test_the_convolution_of_numpy_is_recorded_as_im2col() -> None:
    assert INDICATORS["conv2d"].parameters_for({"batch": 1}, frameworks()["numpy"])["algorithm"] == "im2col"


def test_devices_types_and_directions_that_a_backend_lacks_are_unsupported() -> None:
    with pytest.raises(Unsupported):
        NumpyBackend("cuda", "float32", {})
    with pytest.raises(Unsupported):
        NumpyBackend("cpu", "bfloat16", {})
    assert not INDICATORS["conv2d"].supports({"direction": "backward"}, frameworks()["numpy"])
    assert not INDICATORS["training_step"].supports({}, frameworks()["onnxruntime"])


def test_flop_counts_follow_their_formulae() -> None:
    def flops(name: str, **parameters: Any) -> float:
        indicator = INDICATORS[name]
        assert indicator.complaints(parameters) == []
        return indicator.flops(indicator.complete(parameters))

    assert flops("matmul", m=2, n=3, k=4) == 48
    assert flops("matmul", m=2, n=3, k=4, batch=5) == 240
    assert flops("conv2d", batch=1, channels=1, filters=1, size=4, kernel=3) == 2 * 16 * 9
    assert flops("conv2d", batch=1, channels=4, filters=4, size=4, kernel=3, groups=4) == 4 * 2 * 16 * 9
    assert (
        flops("conv3d", batch=1, channels=1, filters=2, size=4, kernel=3, direction="backward") == 2 * 2 * 2 * 64 * 27
    )
    assert flops("recurrent", cell="gru", hidden=4, batch=2, timesteps=3) == 2 * 3 * 4 * 8 * 2 * 3
    assert flops("attention", batch=1, heads=2, length=8, width=4) == 4 * 2 * 64 * 4
    assert flops("fft", rows=1, columns=8) == 2.5 * 8 * 3


@pytest.mark.parametrize("name", MODELS)
def test_the_flops_of_a_model_are_proportional_to_the_batch(name: str) -> None:
    model = MODELS[name]
    once, twice = (model.count(dict(model.sets["small"], batch=batch)) for batch in (1, 2))

    assert twice[0] == pytest.approx(2 * once[0])
    assert twice[2] == once[2]


def test_the_counts_of_a_recommender_equal_those_computed_by_hand() -> None:
    model = MODELS["recommender"]

    flops, _, weights = model.count({"batch": 3, "users": 5, "items": 7, "width": 4, "classes": 2})

    assert flops == 2 * 3 * (8 * 8 + 8 * 4 + 4 * 2 + 6 * 2)
    assert weights == 2 * (5 + 7) * 4 + 8 * 8 + 8 * 4 + 4 * 2 + 6 * 2


@pytest.mark.parametrize("name", ["cnn", "transformer", "recommender"])
def test_a_model_returns_one_row_of_logits_per_sample(name: str) -> None:
    model, backend = MODELS[name], NumpyBackend("cpu", "float64", {})
    p = model.sets["small"]

    logits = model.forward(backend, model.make_weights(backend, p), model.inputs(backend, p), p, False)

    assert logits.shape == (model.rows(p), p["classes"])


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("matmul", {"m": 0, "n": 1, "k": 1}, "must be from 1"),
        ("matmul", {"m": 1, "n": 1}, "is missing"),
        ("matmul", {"m": 1, "n": 1, "k": 1, "depth": 2}, "is not a parameter"),
        ("matmul", {"m": "many", "n": 1, "k": 1}, "must be an integer"),
        ("matmul", {"m": 1, "n": 1, "k": 1, "transpose_a": "maybe"}, "one of no, yes"),
        ("conv2d", {"batch": 1, "channels": 1, "filters": 1, "size": 2, "kernel": 9, "pad_height": 0}, "larger"),
        ("conv2d", {"batch": 1, "channels": 1, "filters": 1}, "are missing"),
        ("conv2d", {"batch": 1, "channels": 3, "filters": 4, "size": 8, "kernel": 3, "groups": 2}, "divide"),
        ("training_step", {"model": "cnn", "batch": 1}, "is missing"),
        ("training_step", dict(MODELS["cnn"].sets["small"], model="cnn", users=3), "not a parameter of model"),
        ("communication", {"pattern": "all_reduce", "processes": 2}, "elements"),
        ("communication", {"pattern": "broadcast", "processes": 1, "elements": 4}, "at least 2"),
        ("communication", {"pattern": "parameter_server", "processes": 2}, "payload"),
        ("inference", {"model": ["cnn"], "batch": 1}, "`model` must be one of"),
    ],
)
def test_invalid_parameters_are_reported(name: str, parameters: Parameters, complaint: str) -> None:
    assert complaint in INDICATORS[name].complaints(parameters)[0]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_inference_scenario_runs_without_loadgen(scenario: str) -> None:
    import time

    result = run_scenario(scenario, lambda count: time.sleep(0.0002), 0.02, 0.05, 4, None)

    assert result["loadgen"] == 0.0
    assert 0.00005 < result["seconds"] < 0.05


def test_payloads_have_ten_buffers_and_most_buffers_of_the_skewed_one_are_large() -> None:
    sizes = {payload: buffer_bytes(payload) for payload in ("uniform", "random", "skewed")}

    assert all(len(s) == 10 for s in sizes.values())
    assert sum(size > 100_000 for size in sizes["skewed"]) == 6
    assert buffer_bytes("random") == sizes["random"]


def test_deepbench_shapes_have_the_number_and_the_flops_of_deepbench() -> None:
    lists = published_shapes()

    counted = {name: sum(len(shapes) for shapes in indicators.values()) for name, indicators in lists.items()}
    assert counted == {
        "deepbench-training": 160 + 180 + 53 + 7,
        "deepbench-inference-server": 75 + 103 + 69,
        "deepbench-inference-device": 13 + 15 + 3,
    }
    for indicators in lists.values():
        for name, shapes in indicators.items():
            assert all(INDICATORS[name].complaints(shape) == [] for shape in shapes)
    # Result of DeepBench's own formula.
    first = lists["deepbench-training"]["conv2d"][0]
    assert INDICATORS["conv2d"].flops(INDICATORS["conv2d"].complete(first)) == 689638400
    # One product is in both lists.
    assert len(choose_cases(["matmul"], shapes="deepbench")) == 160 + 75 - 1
    with pytest.raises(InputError, match="there are no shapes"):
        choose_cases(["matmul"], shapes="shallowbench")


def test_shapes_of_models_are_operations_with_a_share_of_their_amounts() -> None:
    small = {name: choose_cases([name], shapes="models-small") for name in ("conv2d", "recurrent")}
    inference = choose_cases(["conv2d"], shapes="models-small-inference")

    assert {case.parameters["cell"] for case in small["recurrent"]} == {"lstm"}
    assert set(map(repr, inference)) < set(map(repr, small["conv2d"]))
    assert len(set(map(repr, small["conv2d"]))) == len(small["conv2d"])
    # ResNet-50 at 128 x 128: three of these have 8 % of its operations, the first convolution 2.9 %.
    shapes = [case.parameters for case in inference]
    assert {"batch": 1, "channels": 64, "filters": 64, "size": 32, "kernel": 3} in shapes
    assert not any(shape["size"] == 128 and shape["channels"] == 3 and shape["kernel"] == 7 for shape in shapes)
    with pytest.raises(InputError, match="the shapes `models-small` have none for indicator `fft`"):
        choose_cases(["fft"], shapes="models-small")


def test_the_digits_are_split_into_training_and_test_images() -> None:
    from pi_runners.indicators.programs.training import _digits

    train, test = _digits()

    assert len(train[0]) + len(test[0]) == 1797
    assert len(test[0]) == 360
    assert set(train[1]) == set(range(10))
    assert all(len(image) == 64 and min(image) >= 0 and max(image) <= 255 for image in train[0][:50])


def test_time_to_quality_counts_the_failed_runs() -> None:
    class NeverLearns(NumpyBackend):
        def train(self, loss: Any, weights: Any, batch: Any, rate: float = 0.0) -> Any:
            from pi_runners.harness.contract import Training

            def evaluator(function: Any, arrays: Any) -> Any:
                return lambda: function(self, weights, *arrays)

            return Training(lambda: None, lambda batch: None, evaluator, lambda: weights)

    case = {"percent": 94, "hidden": 8, "batch": 32, "seeds": 3, "epochs": 1}

    measured = TimeToQuality().measure(NeverLearns("cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "wrong-result"
    assert measured["metrics"] == {"failed_runs": 3, "runs": 3}


def test_an_encoded_onnx_model_passes_the_checker_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    graph = Graph()
    x = graph.add_input("float32", (2, 3))
    w = graph.add_constant(b"\0" * 24, "float32", (3, 2))
    name = graph.add_node("MatMul", [x, w])[0]
    out = graph.add_node("Softmax", [name], axis=-1)[0]

    model = onnx.load_from_string(graph.encode(Symbol(graph, out, "float32", 2)))

    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Softmax"]
    assert model.graph.node[1].attribute[0].i == -1


def test_no_case_occurs_twice() -> None:
    cases = [(name, size, tuple(sorted(case.items()))) for name, size, case in CASES]

    assert len(set(cases)) == len(cases)
