"""Whole models from Keras layers compute the expected results."""

from __future__ import annotations

import pytest

from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import SamplingPlan
from pi_runners.indicators import INDICATORS
from pi_runners.models import NETWORKS
from pi_runners.models.layers import make_inputs, make_labels

# Slow, because a process that has imported TensorFlow, JAX and PyTorch crashed when it then loaded OR-tools.
pytestmark = pytest.mark.slow
MODEL = INDICATORS["model"]
PLAN = SamplingPlan(samples=2, min_seconds=0.0005, max_warmup_seconds=0.2)


@pytest.fixture(autouse=True)
def _with_tensorflow() -> None:
    pytest.importorskip("tensorflow")


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("name", ["seq2seq", "dlrm"])
def test_small_models_agree_with_the_reference(name: str, mode: str) -> None:
    case = next(case for case in MODEL.sets["small"] if (case["model"], case["mode"]) == (name, mode))

    measured = MODEL.measure(make_backend("tensorflow", "cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "ok", measured
    assert measured["error"] < 1e-3


@pytest.mark.parametrize("case", MODEL.sets["small"], ids=lambda case: "{model}-{mode}".format(**case))
def test_all_models_agree_with_the_reference(case: dict[str, object]) -> None:
    measured = MODEL.measure(make_backend("tensorflow", "cpu", "float32", {}), case, PLAN)

    assert measured["status"] == "ok", measured


@pytest.mark.parametrize("xla", ["on", "off"])
def test_the_setting_xla_reaches_the_training_step(xla: str) -> None:
    network = NETWORKS["dlrm"]
    backend = make_backend("tensorflow", "cpu", "float32", {"xla": xla})
    p, inputs = network.probe, make_inputs(backend, network.inputs(network.probe, "training"))
    labels = make_labels(*network.logits_shape(p, "training"))
    built = backend.build_model(network, p, "training", inputs)

    training = built.train(p, inputs, backend.integers(labels, (len(labels),)))
    losses = [float(training.step()) for _ in range(3)]

    assert losses == sorted(losses, reverse=True)


def test_every_step_returns_the_loss_before_it() -> None:
    network = NETWORKS["dlrm"]
    backend = make_backend("tensorflow", "cpu", "float32", {})
    p, inputs = network.probe, make_inputs(backend, network.inputs(network.probe, "training"))
    labels = backend.integers(make_labels(*network.logits_shape(p, "training")), (p["batch"],))
    built = backend.build_model(network, p, "training", inputs)
    training = built.train(p, inputs, labels)

    training.step()
    expected, _ = built.gradient(p, inputs, labels)
    loss = float(training.step())

    assert loss == pytest.approx(expected, rel=1e-4)
