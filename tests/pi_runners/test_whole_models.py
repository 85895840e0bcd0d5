"""Whole models: their published counts, their expected results, and the results of the frameworks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from knowledge.domain.frameworks import frameworks
from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Parameters, Unsupported
from pi_runners.harness.worker import describe_end
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.count import count
from pi_runners.models.layers import make_inputs
from pi_runners.models.network import Network
from pi_runners.models.reference import EXPECTED, expected_results
from tests.pi_runners.trials import PLAN
from tests.pi_runners.whole_models import FRAMEWORKS, OnnxBackend, make_wrong

INDICATOR = INDICATORS["model"]
QUICK = {"dlrm": "top2.matrix", "seq2seq": "decoder2.recurrent"}
"""Models whose probe has few weights, and one of these."""
UNSUPPORTED = {
    ("jax", "seq2seq", "float16"),
    ("onnxruntime", "seq2seq", "float64"),
    *(("onnxruntime", name, "bfloat16") for name in QUICK),
}
"""Element types without attention, recurrent layer, or backend, on the CPU."""
SMALL = [
    (framework, case)
    for framework in FRAMEWORKS
    for case in INDICATOR.sets["small"]
    if INDICATOR.supports(case, frameworks()[framework])
]
PUBLISHED = [network for network in NETWORKS.values() if network.published]


def name_of(value: Any) -> str:
    """Return the name of a framework, of a model, or of a case of a model."""
    if isinstance(value, dict):
        return "{model}-{mode}".format(**value)
    return value.name if isinstance(value, Network) else str(value)


@pytest.mark.parametrize("network", PUBLISHED, ids=name_of)
def test_a_model_has_the_published_number_of_parameters(network: Network) -> None:
    assert network.published

    counted = {count(network, network.published.case, mode).weights for mode in network.modes}

    assert counted == {network.published.parameters}


@pytest.mark.parametrize("network", [n for n in PUBLISHED if n.published and n.published.multiply_adds], ids=name_of)
def test_a_forward_pass_has_the_published_number_of_operations(network: Network) -> None:
    assert network.published

    counted = count(network, network.published.case, "inference").flops / 2

    assert counted == pytest.approx(network.published.multiply_adds, rel=0.01)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NETWORKS]
)
def test_the_expected_results_are_those_of_the_reference(name: str) -> None:
    expected = json.loads(EXPECTED.read_text())[name]

    results = expected_results(NETWORKS[name])

    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-8)
    # A central difference has a larger round-off.
    assert results["derivative"] == pytest.approx(expected["derivative"], rel=1e-4)
    assert results["logits"].keys() == expected["logits"].keys()
    for mode, rows in expected["logits"].items():
        assert results["logits"][mode] == [pytest.approx(row, rel=1e-6, abs=1e-8) for row in rows]


@pytest.mark.parametrize("name", QUICK)
def test_the_graph_of_a_model_computes_the_expected_results(name: str) -> None:
    case = dict(NETWORKS[name].probe, model=name, mode="inference")

    measured = INDICATOR.measure(OnnxBackend("cpu", "float64", {}), case, PLAN)

    assert measured["status"] == "ok", measured


@pytest.mark.parametrize("name", QUICK)
def test_the_graph_of_a_model_with_a_wrong_weight_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dict(NETWORKS[name].probe, model=name, mode="inference")
    make_wrong(monkeypatch, QUICK[name])

    measured = INDICATOR.measure(OnnxBackend("cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "wrong-result"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [(n.name, mode) for n in NETWORKS.values() for mode in n.modes if mode != "training"]
)
def test_the_graph_of_every_model_passes_the_checker_of_onnx(name: str, mode: str) -> None:
    backend, network = OnnxBackend("cpu", "float32", {}), NETWORKS[name]

    inputs = make_inputs(backend, network.inputs(network.probe, mode))
    logits = backend.build_model(network, network.probe, mode, inputs).infer(network.probe, inputs)()

    assert backend.shape_of(logits) == network.logits_shape(network.probe, mode)


def test_a_graph_of_more_than_two_gibibytes_is_unsupported() -> None:
    network = NETWORKS["dlrm"]

    with pytest.raises(Unsupported, match="exceed 2 GiB"):
        OnnxBackend("cpu", "float32", {}).build_model(network, network.sets["large"]["inference"], "inference", [])


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "case"), SMALL, ids=name_of)
def test_every_small_model_is_correct(framework: str, case: Parameters) -> None:
    pytest.importorskip(framework)

    measured = INDICATOR.measure(make_backend(framework, "cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "ok", measured


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "case"), [c for c in SMALL if c[1]["model"] in QUICK], ids=name_of)
def test_a_model_with_a_wrong_weight_is_refused(
    framework: str, case: Parameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    make_wrong(monkeypatch, QUICK[case["model"]])

    measured = INDICATOR.measure(make_backend(framework, "cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "wrong-result", measured
    assert "error" in measured["failure"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_other_element_types_are_correct_where_they_are_supported(framework: str, name: str, dtype: str) -> None:
    pytest.importorskip(framework)
    case = dict(NETWORKS[name].sets["small"]["inference"], model=name, mode="inference")

    end = describe_end(lambda: INDICATOR.measure(make_backend(framework, "cpu", dtype, {}), case, PLAN))

    unsupported = (framework, name, dtype) in UNSUPPORTED
    assert end["status"] == ("unsupported" if unsupported else "ok"), end


@pytest.mark.parametrize("name", ["model", "block"])
def test_the_limits_that_networks_declare_are_accepted(name: str) -> None:
    indicator = INDICATORS[name]
    for network in (NETWORKS if name == "model" else BLOCKS).values():
        smallest = network.sets["small"][network.modes[0]]
        for parameter, limits in network.parameters.items():
            most = limits.most - limits.most % network.multiples.get(parameter, 1)
            case = {**smallest, parameter: most, name: network.name, "mode": network.modes[0]}
            assert indicator.complaints(case) == [], (network.name, parameter)
