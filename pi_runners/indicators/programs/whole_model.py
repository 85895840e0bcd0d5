"""Whole models, and blocks of them, from the frameworks' own layers: training, inference, prefill and decoding."""

from __future__ import annotations

import json
import math
import pkgutil
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, FrameworkAbilities, Parameter, Parameters, SamplingPlan
from pi_runners.harness.timing import measure
from pi_runners.indicators.indicator import ITEM_BYTES, PROCESS_BYTES, ProgramIndicator, refuse_error
from pi_runners.models import NETWORKS
from pi_runners.models.blocks import BLOCKS
from pi_runners.models.count import count
from pi_runners.models.layers import BuiltModel, make_inputs, make_labels
from pi_runners.models.network import Network

_MODES = ("training", "inference", "prefill", "decode")
_SIZES = frozenset({"batch", "size", "length"})
"""Parameters that do not change the weights."""
_TOLERANCE = {"float64": 1e-6, "float32": 5e-3, "float16": 5e-2, "bfloat16": 2e-1}
_TRAINING_TOLERANCE = dict(_TOLERANCE, float64=1e-3, float32=2e-2)
"""The derivative is a sum of large numbers of both signs: frameworks differ by 7e-3 for `resnet50` in float32."""
_UPDATE = {"sgd": 6, "adamw": 8}
"""Numbers that an update reads and writes for each weight, with the gradient."""
_STATES = {"sgd": 3, "adamw": 4}
"""Numbers in memory for each weight: the weight, its gradient, and the states of the optimiser."""


def _parameters(kind: str, networks: Mapping[str, Network]) -> Dict[str, Parameter]:
    """Return the parameters of all networks; those that a network does not have are 0."""
    every: Dict[str, Parameter] = {}
    for network in networks.values():
        for name, parameter in network.parameters.items():
            other = every.setdefault(name, parameter)
            meanings = dict.fromkeys([*other.meaning.split("; "), parameter.meaning])
            # The network itself checks its own limit.
            every[name] = other._replace(meaning="; ".join(meanings), most=max(other.most, parameter.most))
    return {
        kind: Parameter("the {}".format(kind), choices=tuple(networks)),
        "mode": Parameter("what is timed", choices=_MODES),
        **{name: parameter._replace(default=0, least=0) for name, parameter in every.items()},
    }


def _sets(kind: str, networks: Mapping[str, Network]) -> Dict[str, Tuple[Parameters, ...]]:
    return {
        size: tuple(
            {**parameters, kind: name, "mode": mode}
            for name, network in networks.items()
            for mode, parameters in network.sets[size].items()
        )
        for size in ("small", "medium", "large")
    }


def _notes(networks: Mapping[str, Network]) -> Tuple[str, ...]:
    return (
        *("{}: {}. After {}".format(n.name, n.summary, n.source) for n in networks.values()),
        "Inputs are random numbers; there is no dropout. Weights are random numbers, the same in every framework.",
        "PyTorch: `torch.nn` and `torch.optim`. TensorFlow: Keras layers, `train_on_batch`, and the model in a "
        "`tf.function`. JAX: functions of parameters under `jax.jit`. ONNX Runtime: a graph as exporters write it.",
        "Without the setting `xla`, Keras 2 compiles the training step without XLA. Keras 3 compiles it with XLA if "
        "TensorFlow lists a device other than CPUs and all layers support XLA.",
        "Before it is timed, a small batch is computed. Its logits, and in training its loss and the derivative of the "
        "loss in one direction, are compared with NumPy in double precision. In training, the loss must be "
        "smaller at the end.",
    )


class _NetworkIndicator(ProgramIndicator):
    """Networks as users of the framework write them."""

    programs: Mapping[str, Network]
    flops_formula = "products and convolutions of the forward pass; x 3 in training"
    bytes_formula = (
        "item (2 activations + weights read); in training item (4 activations + u weights), "
        "u = 6 (SGD with momentum) or 8 (AdamW)"
    )
    source = "https://epoch.ai/blog/backward-forward-FLOP-ratio; the forward pass is counted by running it on shapes"
    needs = ("models",)

    def _network(self, parameters: Parameters) -> Network:
        return self.programs[parameters[self.kind]]

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        """Return the abilities for a mode; training needs a backward pass."""
        return (*self.needs, "backward") if parameters.get("mode") == "training" else self.needs

    def complaints_of(self, program: Network, parameters: Parameters) -> List[str]:
        messages = super().complaints_of(program, parameters)
        if parameters["mode"] not in program.modes:
            messages.append("{} `{}` has no mode `{}`".format(self.kind, program.name, parameters["mode"]))
        for name, divisor in program.multiples.items() if not messages else ():
            if parameters[name] % divisor:
                messages.append("`{}` must be a multiple of {}, not `{}`".format(name, divisor, parameters[name]))
        return messages

    def items(self, parameters: Parameters) -> float:
        return self._network(parameters).items(parameters, parameters["mode"])

    def flops(self, parameters: Parameters) -> float:
        """Return the operations of the forward pass, or three times as many in training."""
        counts = count(self._network(parameters), parameters, parameters["mode"])
        return counts.flops * (3.0 if parameters["mode"] == "training" else 1.0)

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of activations and weights, and in training of gradients and updates."""
        network = self._network(parameters)
        counts = count(network, parameters, parameters["mode"])
        if parameters["mode"] == "training":
            return ITEM_BYTES[dtype] * (4 * counts.elements + _UPDATE[network.optimiser] * counts.weights)
        return ITEM_BYTES[dtype] * (2 * counts.elements + counts.read_weights)

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the weights, with their gradients and states in training, and of activations."""
        network = self._network(parameters)
        counts = count(network, parameters, parameters["mode"])
        if parameters["mode"] == "training":
            elements = _STATES[network.optimiser] * counts.weights + network.stored_elements * counts.elements
        else:
            results = network.live_elements * (counts.elements - counts.inputs)
            elements = 2 * counts.weights + counts.inputs + results
        return PROCESS_BYTES + ITEM_BYTES[dtype] * elements

    def extra_memory(self, parameters: Parameters, dtype: str, framework: FrameworkAbilities) -> float:
        counts = count(self._network(parameters), parameters, parameters["mode"])
        return framework.extra_copies.get("model_weights", 0.0) * ITEM_BYTES[dtype] * counts.weights

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Check the model on a small batch, then time it."""
        p = {name: value for name, value in self.complete(parameters).items() if value != 0}
        network, mode = self.programs[p.pop(self.kind)], p.pop("mode")
        probe = make_inputs(backend, network.inputs(network.probe, mode))
        inputs = make_inputs(backend, network.inputs(p, mode))
        built: BuiltModel = backend.build_model(network, p, mode, inputs)
        checked = built
        if any(network.probe[name] != p[name] for name in set(p) - _SIZES):
            checked = backend.build_model(network, network.probe, mode, probe)
        error = _error(backend, network, mode, checked, probe)
        tolerance = (_TRAINING_TOLERANCE if mode == "training" else _TOLERANCE)[backend.precision]
        if wrong := refuse_error(error, tolerance):
            return wrong
        metrics = {}
        if mode == "training":
            labels = backend.integers(make_labels(*network.logits_shape(p, mode)), network.logits_shape(p, mode)[:1])
            training = built.train(p, inputs, labels)
            first = float(training.step())
            expected = first if training.expected is None else training.expected
            if wrong := refuse_error(abs(first - expected) / abs(expected), tolerance):
                return wrong
            timing = measure(training.step, backend.synchronise, plan)
            last = float(training.step())
            if not last < first:
                return {"status": "wrong-result", "failure": "the loss went from {:.6g} to {:.6g}".format(first, last)}
            metrics = {"first_loss": first, "last_loss": last}
        else:
            timing = measure(built.infer(p, inputs), backend.synchronise, plan)
        return {**timing.document(), "error": error, "tolerance": tolerance, "metrics": metrics}


class WholeModel(_NetworkIndicator):
    """A published model, as users of the framework write it."""

    name = "model"
    kind = "model"
    programs = NETWORKS
    summary = "a published model from the framework's own layers: training step, inference, prefill, or decoding"
    corresponds = (
        "the models of MLPerf Training and Inference (https://mlcommons.org/benchmarks/), on random inputs of one size"
    )
    parameters = _parameters("model", NETWORKS)
    sets = _sets("model", NETWORKS)
    notes = _notes(NETWORKS)


class ModelBlock(_NetworkIndicator):
    """A block of a model, as it occurs in it."""

    name = "block"
    kind = "block"
    programs = BLOCKS
    summary = "a block of a model from the framework's own layers, compiled as a whole: training step or inference"
    corresponds = (
        "none: suites measure single operations or whole models (DeepBench, "
        "https://github.com/baidu-research/DeepBench; MLPerf, https://mlcommons.org/benchmarks/)"
    )
    parameters = _parameters("block", BLOCKS)
    sets = _sets("block", BLOCKS)
    notes = (
        *_notes(BLOCKS),
        "A normalisation before the block has weights, so that training computes the gradient with respect to the "
        "block's input. A classifier of ten classes after it gives the loss.",
    )


def _error(backend: Backend, network: Network, mode: str, built: BuiltModel, probe: Sequence[Array]) -> float:
    """Return the largest relative error on the probe, compared with the expected results."""
    expected = _expected_results()[network.name]
    if mode == "training":
        shape = network.logits_shape(network.probe, mode)
        loss, derivative = built.gradient(network.probe, probe, backend.integers(make_labels(*shape), shape[:1]))
        errors = [abs(loss - expected["loss"]) / abs(expected["loss"])]
        # In half types, the sum of the derivative cancels to less than its round-off.
        if backend.precision in ("float32", "float64"):
            errors.append(abs(derivative - expected["derivative"]) / abs(expected["derivative"]))
    else:
        logits = built.infer(network.probe, probe)()
        if backend.shape_of(logits) != network.logits_shape(network.probe, mode):
            return math.inf
        rows = expected["logits"][mode]
        scale = max(abs(number) for row in rows for number in row)
        errors = [
            abs(number - true) / scale
            for place, row in enumerate(rows)
            for number, true in zip(backend.read_all(logits, (place, slice(0, len(row)))), row)
        ]
    # NaN must not disappear in the maximum.
    return math.inf if any(math.isnan(e) for e in errors) else max(errors)


def _expected_results() -> Dict[str, Any]:
    text = pkgutil.get_data("pi_runners.models", "expected.json")
    assert text is not None
    results: Dict[str, Any] = json.loads(text)
    return results
