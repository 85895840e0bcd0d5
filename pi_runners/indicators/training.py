"""One training step of a small convolutional network."""

from __future__ import annotations

from typing import Any, List, Tuple

from pi_runners.harness.contract import Backend, Parameters, Trial, random_bytes
from pi_runners.indicators.indicator import ITEM_BYTES, Indicator

# First-order prediction of one small step; the second-order term and rounding stay well below this.
_TOLERANCE = {"float64": 0.1, "float32": 0.1, "float16": 0.5, "bfloat16": 0.5}


class TrainingStep(Indicator):
    """Forward, backward and SGD update: conv 3x3, ReLU, conv 3x3 stride 2, ReLU, global mean, dense, cross-entropy."""

    name = "training_step"
    summary = "forward, backward and SGD update of a small CNN; samples are seconds per step"
    flops_formula = "3 x forward, less the gradient of the images"
    sizes = {  # noqa: RUF012
        "small": {"batch": 32, "size": 32, "width": 32, "classes": 10},
        "medium": {"batch": 64, "size": 64, "width": 64, "classes": 100},
        "large": {"batch": 256, "size": 128, "width": 128, "classes": 1000},
    }
    backends = ("tensorflow", "torch")

    def flops(self, parameters: Parameters) -> float:
        """Backward costs twice the forward pass (gradients of weights and of inputs), but images need no gradient."""
        first, second, dense = _forward_flops(parameters)
        return 2.0 * first + 3.0 * (second + dense)

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Images and activations written and read once each way, weights read and written."""
        p = parameters
        activations = p["batch"] * p["size"] ** 2 * (3 + 2 * p["width"] + p["width"])
        weights = sum(_count(shape) for shape in weight_shapes(p))
        return float(ITEM_BYTES[dtype] * (activations + 3 * weights))

    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Check that the first step lowers the loss by the learning rate times the squared gradient norm."""
        p = parameters
        images = random_bytes(5, p["batch"] * 3 * p["size"] ** 2)
        labels = [byte % p["classes"] for byte in random_bytes(6, p["batch"])]
        weights = [random_bytes(7 + i, _count(shape)) for i, shape in enumerate(weight_shapes(p))]
        call = backend.training_step(images, labels, weights, p)

        def check(result: Any) -> float:
            before, squared_norm = call.read(result, (0,)), call.read(result, (1,))
            after = call.read(call.run(), (0,))
            predicted = LEARNING_RATE * squared_norm
            return abs((before - after) / predicted - 1.0) if predicted > 0 else float("inf")

        return Trial(call.run, check, _TOLERANCE[backend.dtype])


LEARNING_RATE = 0.01


def weight_shapes(p: Parameters) -> List[Tuple[int, ...]]:
    """Shapes of the two convolutions (filters, channels, kernel, kernel) and the dense layer (classes, features)."""
    return [(p["width"], 3, 3, 3), (2 * p["width"], p["width"], 3, 3), (p["classes"], 2 * p["width"])]


def weight_scales(p: Parameters) -> List[float]:
    """He-like scale of each weight, so that activations keep their size."""
    return [(6.0 / 27) ** 0.5, (6.0 / (9 * p["width"])) ** 0.5, (6.0 / (2 * p["width"])) ** 0.5]


def _count(shape: Tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total


def _forward_flops(p: Parameters) -> Tuple[float, float, float]:
    pixels = float(p["batch"] * p["size"] ** 2)
    first = 2 * pixels * p["width"] * 27
    second = 2 * (pixels / 4) * (2 * p["width"]) * (9 * p["width"])
    dense = 2.0 * p["batch"] * 2 * p["width"] * p["classes"]
    return first, second, dense
