"""Training: time of a step, and time to a quality."""

from __future__ import annotations

import csv
import gzip
import io
import math
import pkgutil
import random
import time
from operator import mul
from typing import Any, Dict, List, Sequence, Tuple

from pi_runners.harness.contract import (
    LEARNING_RATE,
    Array,
    Backend,
    Parameter,
    Parameters,
    SamplingPlan,
    Training,
    Trial,
)
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.harness.timing import rounded
from pi_runners.indicators.checks.results import blocks_of, making_reference, worst_error
from pi_runners.indicators.indicator import ITEM_BYTES, PROCESS_BYTES, Indicator, Operation, ProgramIndicator
from pi_runners.indicators.programs.models import MODELS, model_parameters

_RATE = LEARNING_RATE / 10
_TOLERANCE = 0.25
"""Errors for comparison: 1 for no step, 0.5 for half a step, 1 for a double step, 2 for the opposite direction."""

_LOSS_ROUND_OFF = {"float64": 0.0, "float32": 1e-6}
"""Relative error of the loss, which limits the precision of the decrease by one step."""

_PROBED = 2**13
"""Number of elements of each weight that are read to compute the change by a step."""


class ModelIndicator(ProgramIndicator):
    """An indicator that runs one of the models."""

    kind = "model"
    programs = MODELS
    parameters = model_parameters()
    notes = tuple("{}: {}. After {}".format(m.name, m.summary, m.source) for m in MODELS.values())

    def items(self, parameters: Parameters) -> float:
        return float(parameters["batch"])


class TrainingStep(ModelIndicator, Operation):
    """Forward pass, backward pass and SGD update of a model."""

    name = "training_step"
    version = 2
    summary = "forward, backward and SGD update of a CNN, a transformer block, a recommender or a 3D U-Net"
    corresponds = "tf_cnn_benchmarks (https://github.com/tensorflow/benchmarks), MLPerf Training in miniature"
    flops_formula = "3 x the products and convolutions of the forward pass"
    bytes_formula = "item (4 activations + 3 weights)"
    source = "https://epoch.ai/blog/backward-forward-FLOP-ratio; the forward pass is counted by running it on shapes"
    sample = "seconds per step"
    sets = {  # noqa: RUF012
        size: tuple(dict(m.sets[size], model=m.name) for m in MODELS.values()) for size in ("small", "medium", "large")
    }
    needs = ("backward",)

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        return (*self.needs, "cross_entropy", *MODELS[parameters.get("model", "cnn")].needs)

    def flops(self, parameters: Parameters) -> float:
        """Return three times the forward pass: the backward pass computes gradients of weights and of activations."""
        return 3.0 * MODELS[parameters["model"]].count(parameters)[0]

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the bytes of activations and gradients, written and read once, and of weights and their updates."""
        _, activations, weights = MODELS[parameters["model"]].count(parameters)
        return ITEM_BYTES[dtype] * (4 * activations + 3 * weights)

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of activations, weights, their gradients and random bytes; half types add a reference."""
        _, activations, weights = MODELS[parameters["model"]].count(parameters)
        elements = 2 * activations + 4 * weights
        reference = 0.0 if dtype in _LOSS_ROUND_OFF else 4 * elements
        return PROCESS_BYTES + weights + ITEM_BYTES[dtype] * elements + reference

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Return a training step, whose first call is checked by :class:`_StepCheck`."""
        p = {name: value for name, value in parameters.items() if value != 0}
        training = _train(backend, p, _RATE)
        return Trial(training.step, _StepCheck(backend, p, training).error, _TOLERANCE)


def _train(backend: Backend, p: Parameters, rate: float) -> Training:
    model = MODELS[p["model"]]
    return backend.train(
        lambda b, weights, *batch: b.cross_entropy(model.forward(b, weights, batch[:-1], p, True), batch[-1]),
        model.make_weights(backend, p),
        [*model.inputs(backend, p), backend.integers(model.labels(p), (model.rows(p),))],
        rate,
    )


class _StepCheck:
    """Checks that a step changes the weights by the negative gradient times the learning rate.

    In single and double precision, the loss must decrease by the learning rate times the squared norm of the gradient.
    To first order, no other step and no other gradient has this effect.

    In half types and mixed precision, that decrease and most updates of weights are smaller than the round-off. There,
    a reference of the same framework in single precision is checked as above, and loss and norm are compared with the
    reference. In addition, a step with a far larger learning rate must change the weights by the reference's gradient:
    the projection of the change onto the gradient is compared.
    """

    def __init__(self, backend: Backend, p: Parameters, training: Training) -> None:
        self._backend, self._p, self._training = backend, p, training

    def error(self, result: Any) -> float:
        """Return the error of the step, as a multiple of the correct step."""
        if self._backend.precision in _LOSS_ROUND_OFF:
            return _error_of_decrease(self._training, result, _LOSS_ROUND_OFF[self._backend.precision])
        with making_reference():
            backend = self._backend.reference()
            training = _train(backend, self._p, _RATE)
            before = _probe(backend, training)
            exact = training.step()
            gradient = [(x - y) / _RATE for x, y in zip(before, _probe(backend, training))]
            expected = training.loss(exact), training.squared_norm(exact)
        losses = [self._training.loss(result), expected[0]]
        norms = [self._training.squared_norm(result), expected[1]]
        if not all(math.isfinite(x) and x > 0 for x in (*losses, *norms, _square(gradient))):
            return math.inf
        return worst_error(
            [
                _error_of_decrease(training, exact, 1e-6),
                abs(losses[0] / losses[1] - 1),
                abs(math.sqrt(norms[0] / norms[1]) - 1),
                self._error_of_large_step(before, gradient),
            ]
        )

    def _error_of_large_step(self, weights: List[float], gradient: List[float]) -> float:
        # The step has a quarter of the weights' norm, far above the round-off of half types.
        rate = 0.25 * math.sqrt(_square(weights) / _square(gradient))
        training = _train(self._backend, self._p, rate)
        before = _probe(self._backend, training)
        training.step()
        change = [(x - y) / rate for x, y in zip(before, _probe(self._backend, training))]
        if len(change) != len(gradient):
            return math.inf
        return abs(math.fsum(map(mul, change, gradient)) / _square(gradient) - 1)


def _error_of_decrease(training: Training, result: Any, round_off: float) -> float:
    """Make another step, and compare the first step's decrease of the loss with its first-order prediction."""
    before, after = training.loss(result), training.loss(training.step())
    predicted = _RATE * training.squared_norm(result)
    if not (math.isfinite(before) and math.isfinite(after) and math.isfinite(predicted) and predicted > 0):
        return math.inf
    return abs(before - after - predicted) / (predicted + round_off * before)


def _square(numbers: List[float]) -> float:
    return math.fsum(map(mul, numbers, numbers))


def _probe(backend: Backend, training: Training) -> List[float]:
    """Return a fixed selection of elements of every weight."""
    elements: List[float] = []
    for weight in training.weights():
        place = next(blocks_of(backend.shape_of(weight), _PROBED))
        elements += backend.read_all(weight, place)
    return elements


class TimeToQuality(Indicator):
    """Trains a perceptron on images of handwritten digits until it reaches a test accuracy."""

    name = "time_to_quality"
    summary = "seconds to train a perceptron on handwritten digits to a test accuracy, over several seeds"
    corresponds = (
        "MLPerf Training's time to train (https://github.com/mlcommons/training_policies), much smaller: "
        "not an MLPerf result"
    )
    flops_formula = "0: the indicator measures time only"
    bytes_formula = "0"
    source = (
        "https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc (run results: the lowest and "
        "the highest of several runs are dropped, the rest averaged; initialisation is excluded)"
    )
    sample = "seconds of one run"
    parameters = {  # noqa: RUF012
        "percent": Parameter("test accuracy to reach, in per cent", most=100),
        "hidden": Parameter("hidden units", most=65536),
        "batch": Parameter("samples in a batch", most=1437),
        "seeds": Parameter("number of runs, each with another seed", least=3, most=100),
        "epochs": Parameter(
            "maximum number of epochs; a run that does not reach the accuracy has failed", default=60, most=10000
        ),
    }
    sets = {  # noqa: RUF012
        "small": ({"percent": 94, "hidden": 64, "batch": 32, "seeds": 5},),
        "medium": ({"percent": 95, "hidden": 256, "batch": 32, "seeds": 10},),
        "large": ({"percent": 96, "hidden": 4096, "batch": 64, "seeds": 10},),
    }
    needs = ("backward", "matmul", "relu", "cross_entropy")
    dtypes = ("float32",)

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of the model and of 1797 images with 64 pixels."""
        return PROCESS_BYTES + float(parameters["hidden"] * 74 * 40 + 1797 * 64 * 20)

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Train once for each seed; runs that do not reach the accuracy are counted as failed."""
        p = self.complete(parameters)
        train, test = _digits()
        seconds: List[float] = []
        epochs: List[int] = []
        for seed in range(p["seeds"]):
            run = _Run(backend, p, train, test, seed)
            started = time.perf_counter()
            epoch = run.train()
            if epoch:
                seconds.append(time.perf_counter() - started)
                epochs.append(epoch)
        failed = p["seeds"] - len(seconds)
        metrics = {"failed_runs": failed, "runs": p["seeds"]}
        if len(seconds) < 3:
            reason = "{} of {} runs did not reach {} % in {} epochs".format(
                failed, p["seeds"], p["percent"], p["epochs"]
            )
            return {"status": "wrong-result", "failure": reason, "metrics": metrics}
        middle = sorted(seconds)[1:-1]
        metrics["olympic_mean_seconds"] = sum(middle) / len(middle)
        metrics["mean_epochs"] = sum(epochs) / len(epochs)
        return {"status": "ok", "samples": rounded(seconds), "loops": 1, "steady": True, "metrics": metrics}


_Digits = Tuple[List[List[int]], List[int]]


class _Run:
    """One training run; the constructor does everything except the training."""

    def __init__(self, backend: Backend, p: Parameters, train: _Digits, test: _Digits, seed: int) -> None:
        self._backend, self._p, self._train, self._test = backend, p, train, test
        self._random = random.Random(seed)
        weights = [
            backend.array(random_bytes(200 + seed, 64 * p["hidden"]), (64, p["hidden"]), (3.0 / 64) ** 0.5),
            backend.array(random_bytes(300 + seed, 10 * p["hidden"]), (p["hidden"], 10), (3.0 / p["hidden"]) ** 0.5),
        ]
        self._training: Training = backend.train(
            lambda b, w, x, y: b.cross_entropy(_perceptron(b, w, x), y),
            weights,
            self._batch(*train, range(p["batch"])),
            0.2,
        )
        # As in MLPerf, compilation on other data than the training data is not timed: a step on random numbers.
        noise = backend.array(random_bytes(400 + seed, 64 * p["batch"]), (p["batch"], 64))
        self._training.feed([noise, backend.integers([i % 10 for i in range(p["batch"])], (p["batch"],))])
        self._training.step()
        images = self._batch(*test, range(len(test[0])))[0]
        self._evaluate = self._training.evaluator(_perceptron, [images])
        self._evaluate()

    def _batch(self, images: List[List[int]], labels: List[int], indices: Sequence[int]) -> List[Array]:
        raw = bytes(value for i in indices for value in images[i])
        classes = [labels[i] for i in indices]
        # Pixel values 0 to 255 become -1 to 1.
        return [self._backend.array(raw, (len(classes), 64)), self._backend.integers(classes, (len(classes),))]

    def train(self) -> int:
        """Train, and return the number of epochs to the accuracy, or 0 if it was not reached."""
        size = self._p["batch"]
        order = list(range(len(self._train[0])))
        for epoch in range(1, self._p["epochs"] + 1):
            self._random.shuffle(order)
            for start in range(0, len(order) - size + 1, size):
                self._training.feed(self._batch(*self._train, order[start : start + size]))
                self._training.step()
            if self._accuracy() * 100 >= self._p["percent"]:
                return epoch
        return 0

    def _accuracy(self) -> float:
        logits = self._backend.read_all(self._evaluate(), ())
        labels = self._test[1]
        rows = (logits[10 * i : 10 * i + 10] for i in range(len(labels)))
        return sum(row.index(max(row)) == label for row, label in zip(rows, labels)) / len(labels)


def _perceptron(b: Backend, weights: Sequence[Array], images: Array) -> Array:
    return b.matmul(b.relu(b.matmul(images, weights[0])), weights[1])


def _digits() -> Tuple[_Digits, _Digits]:
    """Return training and test images (64 pixels from 0 to 255) with labels; every fifth image is a test image."""
    packed = pkgutil.get_data("pi_runners.indicators.programs", "digits.csv.gz")
    assert packed is not None
    rows = list(csv.reader(io.StringIO(gzip.decompress(packed).decode())))
    parts: List[_Digits] = [([], []), ([], [])]
    for number, row in enumerate(rows):
        images, labels = parts[number % 5 == 0]
        values = [int(float(value)) for value in row]
        # The file contains pixel values 0 to 16.
        images.append([min(255, value * 16) for value in values[:64]])
        labels.append(values[64])
    return parts[0], parts[1]
