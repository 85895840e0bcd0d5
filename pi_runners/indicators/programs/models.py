"""Small models with the structure of MLPerf's models, written once for all backends."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Parameter, Parameters
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.checks.operation_counts import CountingBackend
from pi_runners.models import initial
from pi_runners.models.count import CanonicalShape
from pi_runners.models.initial import InitialWeight
from pi_runners.models.layers import Inputs

Weights = Callable[..., Array]
"""Returns the next weight; its arguments are a function of :mod:`pi_runners.models.initial` and its arguments."""


class ModelDefinition(ABC):
    """A model: its inputs, and its forward pass, which declares each weight where it is used.

    Attributes:
        name: Name of the model.
        summary: Description in one line.
        source: Published model with the same structure.
        needs: Operations of a backend that the forward pass calls.
        parameters: Parameters by name.
        sets: Parameter sets by size.
        seed: Seed of the inputs.
    """

    name = ""
    summary = ""
    source = ""
    needs: Tuple[str, ...] = ()
    parameters: Dict[str, Parameter] = {}  # noqa: RUF012
    sets: Dict[str, Parameters] = {}  # noqa: RUF012
    seed = 0

    @abstractmethod
    def input_specs(self, p: Parameters) -> List[Inputs]:
        """Return the inputs of a batch."""

    @abstractmethod
    def run(self, b: Backend, w: Weights, inputs: Sequence[Array], p: Parameters, training: bool) -> Array:
        """Return the logits (rows, classes)."""

    def rows(self, p: Parameters) -> int:
        """Return the number of rows of the logits of a batch."""
        return int(p["batch"])

    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Return the logits (rows, classes) for weights in the order of their use."""
        rest = iter(weights)
        return self.run(b, lambda *_: next(rest), inputs, p, training)

    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        """Return a batch of random inputs."""
        specs, start = self.input_specs(p), 0
        sizes = [math.prod(spec.shape) * (4 if spec.kind == "indices" else 1) for spec in specs]
        raw, arrays = random_bytes(self.seed, sum(sizes)), []
        for spec, size in zip(specs, sizes):
            part = raw[start : start + size]
            start += size
            if spec.kind == "indices":
                numbers = struct.unpack("<{}I".format(size // 4), part)
                arrays.append(backend.integers([number % spec.high for number in numbers], spec.shape))
            else:
                arrays.append((backend.images if spec.kind == "images" else backend.array)(part, spec.shape))
        return arrays

    def make_weights(self, backend: Backend, p: Parameters) -> List[Array]:
        weights = self._count(p)[1]
        return [w.make(backend, random_bytes(100 + number, math.prod(w.shape))) for number, w in enumerate(weights)]

    def labels(self, p: Parameters) -> List[int]:
        return [byte % p["classes"] for byte in random_bytes(99, self.rows(p))]

    def count(self, p: Parameters) -> Tuple[float, float, float]:
        """Return the operations of the forward pass, and the elements of all activations and of all weights."""
        counter, weights = self._count(p)
        inputs = sum(math.prod(spec.shape) for spec in self.input_specs(p))
        return counter.flops, counter.elements + inputs, float(sum(math.prod(w.shape) for w in weights))

    def _count(self, p: Parameters) -> Tuple[CountingBackend, List[InitialWeight]]:
        """Run the forward pass on shapes; return the counts, and all weights."""
        counter, weights = CountingBackend(), []

        def declare(make: Callable[..., InitialWeight], *arguments: Any) -> CanonicalShape:
            weights.append(make("", *arguments))
            return CanonicalShape(weights[-1].shape)

        self.run(counter, declare, [CanonicalShape(spec.shape) for spec in self.input_specs(p)], p, True)
        return counter, weights


_BATCH = Parameter("samples in a batch")
_CLASSES = Parameter("classes")


class Cnn(ModelDefinition):
    """Residual network of basic blocks, as for CIFAR-10 in He et al. 2015: stem, three stages, mean, classifier."""

    name = "cnn"
    summary = "residual CNN: stem, three stages of basic blocks with batch normalisation, global mean, classifier"
    needs = ("convolution", "batch_norm", "relu", "add", "spatial_mean", "matmul")
    source = "ResNet (MLPerf image classification, tf_cnn_benchmarks): https://arxiv.org/abs/1512.03385 section 4.2"
    parameters = {  # noqa: RUF012
        "batch": _BATCH,
        "size": Parameter("height and width of an image, a multiple of 4"),
        "width": Parameter("channels of the first stage"),
        "blocks": Parameter("blocks in a stage", most=64),
        "classes": _CLASSES,
    }
    sets = {  # noqa: RUF012
        "small": {"batch": 16, "size": 16, "width": 16, "blocks": 1, "classes": 10},
        "medium": {"batch": 32, "size": 32, "width": 32, "blocks": 2, "classes": 100},
        "large": {"batch": 256, "size": 64, "width": 64, "blocks": 5, "classes": 1000},
    }

    seed = 98

    def input_specs(self, p: Parameters) -> List[Inputs]:
        return [Inputs("images", (p["batch"], 3, p["size"], p["size"]))]

    def run(self, b: Backend, w: Weights, inputs: Sequence[Array], p: Parameters, training: bool) -> Array:
        """Run the stem, the stages, where a shortcut with a stride is a projection, the mean and the classifier."""

        def normalised(x: Array, channels: int, out: int, kernel: int, stride: int = 1) -> Array:
            x = b.convolution(
                x, w(initial.filters, (out, channels, kernel, kernel)), (stride, stride), (kernel // 2,) * 2
            )
            return b.batch_norm(x, w(initial.gain, out), w(initial.bias, out), training)

        channels = p["width"]
        x = b.relu(normalised(inputs[0], 3, channels, 3))
        for stage in range(3):
            for block in range(p["blocks"]):
                out, stride = p["width"] * 2**stage, 2 if stage and not block else 1
                y = b.relu(normalised(x, channels, out, 3, stride))
                y = normalised(y, out, out, 3)
                x = b.relu(b.add(y, normalised(x, channels, out, 1, stride) if stride > 1 else x))
                channels = out
        return b.matmul(b.spatial_mean(x), w(initial.matrix, channels, p["classes"]))


class Transformer(ModelDefinition):
    """Encoder block of Vaswani et al. 2017 with normalisation before each layer, and a classifier of every token."""

    name = "transformer"
    summary = (
        "transformer encoder block: attention and a feed-forward layer four times as wide, a class for every token"
    )
    needs = ("layer_norm", "matmul", "reshape", "transpose", "scale", "softmax", "add", "relu")
    source = "BERT's block (MLPerf language): https://arxiv.org/abs/1706.03762 section 3.1"
    parameters = {  # noqa: RUF012
        "batch": _BATCH,
        "length": Parameter("tokens of a sequence"),
        "width": Parameter("width of the model, a multiple of the heads"),
        "heads": Parameter("heads", most=1024),
        "classes": _CLASSES,
    }
    sets = {  # noqa: RUF012
        "small": {"batch": 4, "length": 64, "width": 128, "heads": 4, "classes": 32},
        "medium": {"batch": 8, "length": 128, "width": 512, "heads": 8, "classes": 1000},
        "large": {"batch": 64, "length": 512, "width": 1024, "heads": 16, "classes": 32000},
    }

    seed = 97

    def input_specs(self, p: Parameters) -> List[Inputs]:
        return [Inputs("features", (p["batch"] * p["length"], p["width"]))]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"] * p["length"])

    def run(self, b: Backend, w: Weights, inputs: Sequence[Array], p: Parameters, training: bool) -> Array:
        """Run attention and feed-forward layer, each with a residual connection."""
        width, each = p["width"], p["width"] // p["heads"]
        x = inputs[0]
        h = b.layer_norm(x, w(initial.gain, width), w(initial.bias, width))

        def heads() -> Array:
            split = b.reshape(b.matmul(h, w(initial.matrix, width, width)), (p["batch"], p["length"], p["heads"], each))
            return b.transpose(split, (0, 2, 1, 3))

        q, k, v = heads(), heads(), heads()
        scores = b.scale(b.matmul(q, k, transpose_b=True), each**-0.5)
        mixed = b.transpose(b.matmul(b.softmax(scores), v), (0, 2, 1, 3))
        mixed = b.reshape(mixed, (p["batch"] * p["length"], width))
        x = b.add(x, b.matmul(mixed, w(initial.matrix, width, width)))
        h = b.layer_norm(x, w(initial.gain, width), w(initial.bias, width))
        h = b.relu(b.matmul(h, w(initial.matrix, width, 4 * width)))
        return b.matmul(
            b.add(x, b.matmul(h, w(initial.matrix, 4 * width, width))), w(initial.matrix, width, p["classes"])
        )


class Recommender(ModelDefinition):
    """Neural collaborative filtering (He et al. 2017): a product of embeddings, a perceptron over others."""

    name = "recommender"
    summary = "neural collaborative filtering: embeddings of users and items, their product, a perceptron, two classes"
    needs = ("gather", "multiply", "join", "relu", "matmul")
    source = "NCF (MLPerf recommendation v0.5 and v0.6): https://arxiv.org/abs/1708.05031 figure 3"
    parameters = {  # noqa: RUF012
        "batch": _BATCH,
        "users": Parameter("users"),
        "items": Parameter("items"),
        "width": Parameter("width of an embedding"),
        "classes": Parameter("classes", least=2),
    }
    sets = {  # noqa: RUF012
        "small": {"batch": 256, "users": 2000, "items": 1000, "width": 32, "classes": 2},
        "medium": {"batch": 4096, "users": 20000, "items": 10000, "width": 64, "classes": 2},
        "large": {"batch": 65536, "users": 138493, "items": 26744, "width": 64, "classes": 2},
    }

    seed = 96

    def input_specs(self, p: Parameters) -> List[Inputs]:
        return [Inputs("indices", (p["batch"],), p["users"]), Inputs("indices", (p["batch"],), p["items"])]

    def run(self, b: Backend, w: Weights, inputs: Sequence[Array], p: Parameters, training: bool) -> Array:
        """Concatenate the product of two embeddings and the perceptron over two others; run the last layer."""
        width, narrow = p["width"], p["width"] // 2 or 1

        def embeddings() -> List[Array]:
            tables = (w(InitialWeight, (p[rows], width), 1.0) for rows in ("users", "items"))
            return [b.gather(table, indices) for table, indices in zip(tables, inputs)]

        product_of = b.multiply(*embeddings())
        x = b.join(*embeddings())
        for size in ((2 * width, 2 * width), (2 * width, width), (width, narrow)):
            x = b.relu(b.matmul(x, w(initial.matrix, *size)))
        return b.matmul(b.join(product_of, x), w(initial.matrix, width + narrow, p["classes"]))


class Unet3d(ModelDefinition):
    """3D U-Net (Cicek et al. 2016) with two levels and a skip connection; it classifies every voxel."""

    name = "unet3d"
    summary = "3D U-Net of two levels: convolutions, pooling, upsampling, a skip connection, a class for every voxel"
    needs = ("convolution", "batch_norm", "relu", "pool", "upsample", "join_channels", "channels_to_rows", "matmul")
    source = "3D U-Net (MLPerf medical imaging): https://arxiv.org/abs/1606.06650 figure 2"
    parameters = {  # noqa: RUF012
        "batch": _BATCH,
        "size": Parameter("edge length of a volume, an even number", least=2),
        "width": Parameter("channels of the first level"),
        "classes": _CLASSES,
    }
    sets = {  # noqa: RUF012
        "small": {"batch": 1, "size": 16, "width": 8, "classes": 3},
        "medium": {"batch": 2, "size": 32, "width": 16, "classes": 3},
        "large": {"batch": 2, "size": 128, "width": 32, "classes": 3},
    }

    seed = 95

    def input_specs(self, p: Parameters) -> List[Inputs]:
        return [Inputs("images", (p["batch"], 1, p["size"], p["size"], p["size"]))]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"] * p["size"] ** 3)

    def run(self, b: Backend, w: Weights, inputs: Sequence[Array], p: Parameters, training: bool) -> Array:
        """Run both levels, upsample, join the skip connection, and classify."""

        def twice(x: Array, channels: int, out: int) -> Array:
            for number in (channels, out):
                x = b.convolution(x, w(initial.filters, (out, number, 3, 3, 3)), (1, 1, 1), (1, 1, 1))
                x = b.relu(b.batch_norm(x, w(initial.gain, out), w(initial.bias, out), training))
            return x

        width = p["width"]
        fine = twice(inputs[0], 1, width)
        coarse = twice(b.pool(fine, 2), width, 2 * width)
        joined = twice(b.join_channels(b.upsample(coarse), fine), 3 * width, width)
        return b.matmul(b.channels_to_rows(joined, width), w(initial.matrix, width, p["classes"]))


MODELS: Dict[str, ModelDefinition] = {m.name: m for m in (Cnn(), Transformer(), Recommender(), Unet3d())}


def model_parameters() -> Dict[str, Parameter]:
    """Return the parameter ``model`` and the parameters of all models, with 0 for those that a model does not have."""
    parameters: Dict[str, Any] = {"model": Parameter("the model", choices=tuple(MODELS))}
    for model in MODELS.values():
        for name, parameter in model.parameters.items():
            parameters[name] = parameter._replace(default=0, least=0)
    return parameters
