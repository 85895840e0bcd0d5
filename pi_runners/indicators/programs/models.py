"""Small models with the structure of MLPerf's models, written once for all backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from pi_runners.harness.contract import Array, Backend, Parameter, Parameters
from pi_runners.harness.random_inputs import product, random_bytes
from pi_runners.indicators.checks.operation_counts import CountingBackend, Shape


class Weight(NamedTuple):
    """Initial value of a weight.

    Attributes:
        kind: ``filters`` or ``array``.
        shape: Shape of the weight.
        scale: Factor of the random numbers in (-1, 1).
        offset: Mean of the numbers.
    """

    kind: str
    shape: Tuple[int, ...]
    scale: float = 1.0
    offset: float = 0.0


class ModelDefinition(ABC):
    """A model: its weights, inputs and forward pass.

    Attributes:
        name: Name of the model.
        summary: Description in one line.
        source: Published model with the same structure.
        needs: Operations of a backend that the forward pass calls.
        parameters: Parameters by name.
        sets: Parameter sets by size.
    """

    name = ""
    summary = ""
    source = ""
    needs: Tuple[str, ...] = ()
    parameters: Dict[str, Parameter] = {}  # noqa: RUF012
    sets: Dict[str, Parameters] = {}  # noqa: RUF012

    @abstractmethod
    def weights(self, p: Parameters) -> List[Weight]:
        """Return the initial values of all weights."""

    @abstractmethod
    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        """Return a batch of random inputs."""

    @abstractmethod
    def input_shapes(self, p: Parameters) -> List[Shape]:
        """Return the shapes of a batch, channels first."""

    @abstractmethod
    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Return the logits (rows, classes)."""

    @abstractmethod
    def rows(self, p: Parameters) -> int:
        """Return the number of rows of the logits of a batch."""

    def make_weights(self, backend: Backend, p: Parameters) -> List[Array]:
        arrays = []
        for number, w in enumerate(self.weights(p)):
            raw = random_bytes(100 + number, product(w.shape))
            arrays.append(
                backend.filters(raw, w.shape, w.scale)
                if w.kind == "filters"
                else backend.array(raw, w.shape, w.scale, w.offset)
            )
        return arrays

    def labels(self, p: Parameters) -> List[int]:
        return [byte % p["classes"] for byte in random_bytes(99, self.rows(p))]

    def count(self, p: Parameters) -> Tuple[float, float, float]:
        """Return the operations of the forward pass, and the elements of all activations and of all weights."""
        counter = CountingBackend()
        weights = self.weights(p)
        inputs = self.input_shapes(p)
        self.forward(counter, [Shape(w.shape) for w in weights], inputs, p, True)
        return (
            counter.flops,
            counter.elements + sum(product(i.shape) for i in inputs),
            float(sum(product(w.shape) for w in weights)),
        )


def _he(shape: Tuple[int, ...]) -> float:
    """Return the scale of uniform numbers with variance 2 / inputs, which keeps the size of activations."""
    return float((6.0 / product(shape[1:])) ** 0.5)


def _dense(inputs: int, outputs: int) -> Weight:
    """Return a weight of uniform numbers with variance 1 / inputs."""
    return Weight("array", (inputs, outputs), (3.0 / inputs) ** 0.5)


def _norm(width: int) -> List[Weight]:
    return [Weight("array", (width,), 0.1, 1.0), Weight("array", (width,), 0.1)]


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

    def _stages(self, p: Parameters) -> List[Tuple[int, int, int]]:
        """Return input channels, output channels and stride of every block."""
        stages = []
        width = p["width"]
        for stage in range(3):
            for block in range(p["blocks"]):
                out = p["width"] * 2**stage
                stages.append((width, out, 2 if stage and not block else 1))
                width = out
        return stages

    def weights(self, p: Parameters) -> List[Weight]:
        """Return the weights of stem, blocks (two convolutions; a projection if there is a stride) and classifier."""

        def filters(out: int, channels: int, kernel: int) -> Weight:
            shape = (out, channels, kernel, kernel)
            return Weight("filters", shape, _he(shape))

        weights = [filters(p["width"], 3, 3), *_norm(p["width"])]
        for channels, out, stride in self._stages(p):
            weights += [filters(out, channels, 3), *_norm(out), filters(out, out, 3), *_norm(out)]
            if stride > 1:
                weights += [filters(out, channels, 1), *_norm(out)]
        return weights + [_dense(4 * p["width"], p["classes"])]

    def input_shapes(self, p: Parameters) -> List[Shape]:
        return [Shape((p["batch"], 3, p["size"], p["size"]))]

    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        shape = self.input_shapes(p)[0].shape
        return [backend.images(random_bytes(98, product(shape)), shape)]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"])

    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Run the stem, the stages, the mean and the classifier."""
        rest = iter(weights)

        def normalised(x: Array, stride: int, margin: int) -> Array:
            x = b.convolution(x, next(rest), (stride, stride), (margin, margin))
            return b.batch_norm(x, next(rest), next(rest), training)

        x = b.relu(normalised(inputs[0], 1, 1))
        for _, _, stride in self._stages(p):
            y = b.relu(normalised(x, stride, 1))
            y = normalised(y, 1, 1)
            x = b.relu(b.add(y, normalised(x, stride, 0) if stride > 1 else x))
        return b.matmul(b.spatial_mean(x), next(rest))


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

    def weights(self, p: Parameters) -> List[Weight]:
        """Return the weights of attention, feed-forward layer, their normalisations, and the classifier."""
        d = p["width"]
        block = [*_norm(d), *(_dense(d, d) for _ in range(4)), *_norm(d), _dense(d, 4 * d), _dense(4 * d, d)]
        return [*block, _dense(d, p["classes"])]

    def input_shapes(self, p: Parameters) -> List[Shape]:
        return [Shape((p["batch"] * p["length"], p["width"]))]

    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        shape = self.input_shapes(p)[0].shape
        return [backend.array(random_bytes(97, product(shape)), shape)]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"] * p["length"])

    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Run attention and feed-forward layer, each with a residual connection."""
        gain, offset, query, key, value, output, gain2, offset2, wide, narrow, classify = weights
        each = p["width"] // p["heads"]
        x = inputs[0]
        h = b.layer_norm(x, gain, offset)

        def heads(w: Array) -> Array:
            split = b.reshape(b.matmul(h, w), (p["batch"], p["length"], p["heads"], each))
            return b.transpose(split, (0, 2, 1, 3))

        q, k, v = heads(query), heads(key), heads(value)
        scores = b.scale(b.matmul(q, k, transpose_b=True), each**-0.5)
        mixed = b.transpose(b.matmul(b.softmax(scores), v), (0, 2, 1, 3))
        x = b.add(x, b.matmul(b.reshape(mixed, (p["batch"] * p["length"], p["width"])), output))
        h = b.relu(b.matmul(b.layer_norm(x, gain2, offset2), wide))
        return b.matmul(b.add(x, b.matmul(h, narrow)), classify)


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

    def weights(self, p: Parameters) -> List[Weight]:
        """Return the weights of four tables, three layers of the perceptron, and the last layer."""
        w = p["width"]
        tables = [Weight("array", (n, w)) for n in (p["users"], p["items"]) * 2]
        layers = [_dense(2 * w, 2 * w), _dense(2 * w, w), _dense(w, w // 2 or 1)]
        return [*tables, *layers, _dense(w + (w // 2 or 1), p["classes"])]

    def input_shapes(self, p: Parameters) -> List[Shape]:
        """Return the shapes of user indices and item indices."""
        return [Shape((p["batch"],)), Shape((p["batch"],))]

    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        raw = random_bytes(96, 8 * p["batch"])
        numbers = [int.from_bytes(raw[4 * i : 4 * i + 4], "little") for i in range(2 * p["batch"])]
        users = [n % p["users"] for n in numbers[: p["batch"]]]
        items = [n % p["items"] for n in numbers[p["batch"] :]]
        return [backend.integers(users, (p["batch"],)), backend.integers(items, (p["batch"],))]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"])

    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Concatenate the product of two embeddings and the perceptron over two others; run the last layer."""
        users, items = inputs
        product_of = b.multiply(b.gather(weights[0], users), b.gather(weights[1], items))
        x = b.join(b.gather(weights[2], users), b.gather(weights[3], items))
        for w in weights[4:7]:
            x = b.relu(b.matmul(x, w))
        return b.matmul(b.join(product_of, x), weights[7])


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

    def weights(self, p: Parameters) -> List[Weight]:
        """Return the weights of two convolutions on each level, two after upsampling, and the classifier."""
        w = p["width"]
        weights = []
        for channels, out in ((1, w), (w, w), (w, 2 * w), (2 * w, 2 * w), (3 * w, w), (w, w)):
            shape = (out, channels, 3, 3, 3)
            weights += [Weight("filters", shape, _he(shape)), *_norm(out)]
        return [*weights, _dense(w, p["classes"])]

    def input_shapes(self, p: Parameters) -> List[Shape]:
        """Return the shape of volumes with one channel."""
        return [Shape((p["batch"], 1, p["size"], p["size"], p["size"]))]

    def inputs(self, backend: Backend, p: Parameters) -> List[Array]:
        shape = self.input_shapes(p)[0].shape
        return [backend.images(random_bytes(95, product(shape)), shape)]

    def rows(self, p: Parameters) -> int:
        return int(p["batch"] * p["size"] ** 3)

    def forward(
        self, b: Backend, weights: Sequence[Array], inputs: Sequence[Array], p: Parameters, training: bool
    ) -> Array:
        """Run both levels, upsample, join the skip connection, and classify."""
        rest = iter(weights)

        def layer(x: Array) -> Array:
            x = b.convolution(x, next(rest), (1, 1, 1), (1, 1, 1))
            return b.relu(b.batch_norm(x, next(rest), next(rest), training))

        fine = layer(layer(inputs[0]))
        coarse = layer(layer(b.pool(fine, 2)))
        joined = layer(layer(b.join_channels(b.upsample(coarse), fine)))
        return b.matmul(b.channels_to_rows(joined, p["width"]), next(rest))


MODELS: Dict[str, ModelDefinition] = {m.name: m for m in (Cnn(), Transformer(), Recommender(), Unet3d())}


def model_parameters() -> Dict[str, Parameter]:
    """Return the parameter ``model`` and the parameters of all models, with 0 for those that a model does not have."""
    parameters: Dict[str, Any] = {"model": Parameter("the model", choices=tuple(MODELS))}
    for model in MODELS.values():
        for name, parameter in model.parameters.items():
            parameters[name] = parameter._replace(default=0, least=0)
    return parameters
