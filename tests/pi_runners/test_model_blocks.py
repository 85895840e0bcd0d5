"""Blocks of models: their expected results, the results of the frameworks, and their parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from knowledge.domain.frameworks import frameworks
from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Parameters
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.count import count
from pi_runners.models.reference import EXPECTED, expected_results
from tests.pi_runners.trials import PLAN
from tests.pi_runners.whole_models import FRAMEWORKS, OnnxBackend, make_wrong

INDICATOR = INDICATORS["block"]
WEIGHTS = {
    "residual_block": "block.convolution.filters",
    "inverted_residual_block": "block.depthwise.filters",
    "convolution_block": "block.convolution2.filters",
    "encoder_block": "block.attention.query.matrix",
    "recurrent_block": "block.lstm.recurrent",
    "word_classifier": "classifier.matrix",
}
"""A weight of each block."""
SMALL = [
    (framework, case)
    for framework in FRAMEWORKS
    for case in INDICATOR.sets["small"]
    if INDICATOR.supports(case, frameworks()[framework])
]


def name_of(value: Any) -> str:
    """Return the name of a framework, or of a case."""
    return "{block}-{mode}".format(**value) if isinstance(value, dict) else str(value)


def test_every_model_consists_of_known_blocks() -> None:
    blocks = {name for network in NETWORKS.values() for name in network.blocks}

    assert blocks == set(BLOCKS)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_expected_results_are_those_of_the_reference(name: str) -> None:
    expected = json.loads(EXPECTED.read_text())[name]

    results = expected_results(BLOCKS[name])

    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-8)
    # A central difference has a larger round-off.
    assert results["derivative"] == pytest.approx(expected["derivative"], rel=1e-4)
    for mode, rows in expected["logits"].items():
        assert results["logits"][mode] == [pytest.approx(row, rel=1e-6, abs=1e-8) for row in rows]


def test_blocks_have_nearly_all_operations_of_their_models() -> None:
    network, p = NETWORKS["vit_b16"], {"batch": 1, "size": 224}
    block = BLOCKS["encoder_block"]

    whole = count(network, p, "inference").flops
    parts = 12 * count(block, {"batch": 1, "length": 197, "width": 768}, "inference").flops

    # The rest is the product of the patches and the classifier.
    assert 0.98 * whole < parts < whole


@pytest.mark.parametrize("name", BLOCKS)
def test_the_graph_of_a_block_computes_the_expected_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = dict(BLOCKS[name].probe, block=name, mode="inference")

    right = INDICATOR.measure(OnnxBackend("cpu", "float64", {}), case, PLAN)
    make_wrong(monkeypatch, WEIGHTS[name])
    wrong = INDICATOR.measure(OnnxBackend("cpu", "float64", {}), case, PLAN)

    assert right["status"] == "ok", right
    assert wrong["status"] == "wrong-result", wrong


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        (dict(BLOCKS["encoder_block"].probe, block="encoder_block", mode="prefill"), "has no mode `prefill`"),
        ({"block": "encoder_block", "mode": "inference", "batch": 1, "length": 8, "width": 96}, "multiple of 64"),
        ({"block": "residual_block", "mode": "inference", "batch": 1, "width": 8}, "`size` of block `residual_block`"),
        ({"block": "mixture", "mode": "inference", "batch": 1}, "must be one of residual_block"),
    ],
)
def test_parameters_of_a_block_are_checked(case: Parameters, complaint: str) -> None:
    assert complaint in " ".join(INDICATOR.complaints(case))


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "case"), SMALL, ids=name_of)
def test_every_small_block_is_correct(framework: str, case: Parameters) -> None:
    pytest.importorskip(framework)

    measured = INDICATOR.measure(make_backend(framework, "cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "ok", measured
