"""Frameworks that run whole models, and a model that is computed wrongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pi_runners.frameworks.numpy.operations import NumpyBackend
from pi_runners.frameworks.onnxruntime.models import build
from pi_runners.frameworks.onnxruntime.onnx_format import Symbol
from pi_runners.harness.contract import Array, Parameters
from pi_runners.models.initial import InitialWeight

FRAMEWORKS = ("jax", "onnxruntime", "torch")
"""Frameworks with whole models; none of them is installed by `.ci/run`."""


def make_wrong(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Reverse the numbers of a weight."""
    original = vars(InitialWeight)["raw"].fget
    monkeypatch.setattr(InitialWeight, "raw", property(lambda w: original(w)[:: -1 if w.name == name else 1]))


class OnnxBackend(NumpyBackend):
    """Evaluates graphs of ONNX operators with the reference implementation of the package `onnx`."""

    def build_model(self, network: Any, parameters: Parameters, mode: str, inputs: Sequence[Array]) -> Any:
        return build(self, network, parameters, mode, inputs)

    def start(self, output: Symbol, inputs: dict[str, Array]) -> Callable[[], Any]:
        onnx = pytest.importorskip("onnx")
        reference = pytest.importorskip("onnx.reference")
        model = onnx.load_from_string(output.graph.encode(output))
        onnx.checker.check_model(model, full_check=True)
        evaluator = reference.ReferenceEvaluator(model)
        return lambda: evaluator.run(None, inputs)[0]
