"""Blocks of models, as they occur in them: compilers fuse what a single operation does not contain.

A layer before each block has weights, so that training computes the gradient with respect to the input of the block,
as it does within a model. A small classifier after the block gives the loss.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Dict, List, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameter, Parameters
from pi_runners.models.layers import Filters, Inputs, Layers
from pi_runners.models.network import BATCH, Network, both

_CLASSES = 10
_WIDTH = Parameter("channels of the largest convolution, or width of a token", most=65536)


class _Block(Network):
    """A block of few layers, so that a larger share of the results is in memory at once."""

    live_elements = 0.85
    classes = _CLASSES

    @abstractmethod
    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        """Run the block."""


class _ImageBlock(_Block):
    """A block of a convolutional network."""

    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "size": Parameter("height and width of the input", most=4096),
        "width": _WIDTH,
    }

    def channels(self, p: Parameters) -> int:
        return int(p["width"])

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        return [Inputs("images", (p["batch"], self.channels(p), p["size"], p["size"]))]

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        x = self.block(n, n.batch_norm("entry", inputs[0]), p)
        return n.dense("classifier", n.global_mean(x), _CLASSES)


class ResidualBlock(_ImageBlock):
    """Bottleneck block of ResNet-50, without a change of size."""

    name = "residual_block"
    summary = "bottleneck block of ResNet-50: convolutions 1 x 1, 3 x 3, 1 x 1 and the shortcut"
    source = "https://arxiv.org/abs/1512.03385 figure 5"
    sets = {  # noqa: RUF012
        "small": both({"batch": 4, "size": 16, "width": 64}),
        "medium": both({"batch": 8, "size": 28, "width": 128}),
        "large": both({"batch": 256, "size": 28, "width": 128}),
    }
    probe = {"batch": 2, "size": 6, "width": 8}  # noqa: RUF012

    def channels(self, p: Parameters) -> int:
        return 4 * int(p["width"])

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        y = n.relu(n.normalised_convolution("block.reduce", x, Filters(p["width"], 1)))
        y = n.relu(n.normalised_convolution("block.convolution", y, Filters(p["width"], 3)))
        return n.relu(n.add(n.normalised_convolution("block.expand", y, Filters(self.channels(p), 1)), x))


class InvertedResidualBlock(_ImageBlock):
    """Inverted residual block of MobileNetV2, without a change of size."""

    name = "inverted_residual_block"
    summary = "inverted residual block of MobileNetV2: depthwise convolution between two products"
    source = "https://arxiv.org/abs/1801.04381 table 1"
    sets = {  # noqa: RUF012
        "small": both({"batch": 8, "size": 8, "width": 384}),
        "medium": both({"batch": 8, "size": 28, "width": 192}),
        "large": both({"batch": 512, "size": 28, "width": 192}),
    }
    probe = {"batch": 2, "size": 6, "width": 24}  # noqa: RUF012
    multiples = {"width": 6}  # noqa: RUF012

    def channels(self, p: Parameters) -> int:
        return int(p["width"]) // 6

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        y = n.relu6(n.normalised_convolution("block.expand", x, Filters(p["width"], 1)))
        y = n.relu6(n.normalised_convolution("block.depthwise", y, Filters(p["width"], 3, groups=p["width"])))
        return n.add(x, n.normalised_convolution("block.project", y, Filters(self.channels(p), 1)))


class ConvolutionBlock(_ImageBlock):
    """Two convolutions of a level of U-Net."""

    name = "convolution_block"
    summary = "level of U-Net: two 3 x 3 convolutions, each with batch normalisation"
    source = "https://arxiv.org/abs/1505.04597 figure 1"
    sets = {  # noqa: RUF012
        "small": both({"batch": 1, "size": 32, "width": 64}),
        "medium": both({"batch": 1, "size": 96, "width": 64}),
        "large": both({"batch": 16, "size": 256, "width": 128}),
    }
    probe = {"batch": 2, "size": 6, "width": 8}  # noqa: RUF012

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        for name in ("block.convolution1", "block.convolution2"):
            x = n.relu(n.normalised_convolution(name, x, Filters(p["width"], 3)))
        return x


class _SequenceBlock(_Block):
    """A block of a model of sequences."""

    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "length": Parameter("tokens of a sequence", most=65536),
        "width": _WIDTH,
    }

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        return [Inputs("features", (p["batch"], p["length"], p["width"]))]

    def items(self, p: Parameters, mode: str) -> float:
        return float(p["batch"] * p["length"])

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        x = self.block(n, n.layer_norm("entry", inputs[0]), p)
        return n.dense("classifier", n.token(x, -1), _CLASSES)


class EncoderBlock(_SequenceBlock):
    """Block of a transformer with normalisation before each layer."""

    name = "encoder_block"
    summary = "block of a transformer: attention with heads of 64, and two layers with four times the width between"
    source = "https://arxiv.org/abs/2010.11929 section 3.1"
    optimiser = "adamw"
    sets = {  # noqa: RUF012
        "small": both({"batch": 1, "length": 32, "width": 768}),
        "medium": both({"batch": 2, "length": 128, "width": 768}),
        "large": both({"batch": 64, "length": 512, "width": 1024}),
    }
    probe = {"batch": 2, "length": 6, "width": 128}  # noqa: RUF012
    multiples = {"width": 64}  # noqa: RUF012

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        x = n.add(x, n.self_attention("block.attention", n.layer_norm("block.norm1", x), p["width"] // 64))
        y = n.gelu(n.dense("block.widen", n.layer_norm("block.norm2", x), 4 * p["width"]))
        return n.add(x, n.dense("block.narrow", y, p["width"]))


class RecurrentBlock(_SequenceBlock):
    """One LSTM layer."""

    name = "recurrent_block"
    stored_elements = 8.0
    summary = "LSTM layer with as many hidden units as inputs"
    source = "https://arxiv.org/abs/1409.3215 section 3.4"
    sets = {  # noqa: RUF012
        "small": both({"batch": 4, "length": 20, "width": 256}),
        "medium": both({"batch": 16, "length": 20, "width": 512}),
        "large": both({"batch": 128, "length": 50, "width": 1024}),
    }
    probe = {"batch": 2, "length": 5, "width": 64}  # noqa: RUF012

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        return n.lstm("block.lstm", x, p["width"])[0]


class WordClassifier(_SequenceBlock):
    """Last layer of a language model, with its loss and update in training."""

    name = "word_classifier"
    summary = "last layer of a language model: a product with a row for each word, and the loss over the words"
    source = "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf"
    optimiser = "adamw"
    parameters = dict(_SequenceBlock.parameters, words=Parameter("words of the language"))  # noqa: RUF012
    sets = {  # noqa: RUF012
        "small": both({"batch": 1, "length": 16, "width": 768, "words": 8192}),
        "medium": both({"batch": 1, "length": 64, "width": 768, "words": 50257}),
        "large": both({"batch": 16, "length": 1024, "width": 1024, "words": 50257}),
    }
    probe = {"batch": 2, "length": 5, "width": 64, "words": 100}  # noqa: RUF012

    def logits_shape(self, p: Parameters, mode: str) -> Tuple[int, int]:
        return int(p["batch"] * p["length"]), int(p["words"])

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        return n.rows(self.block(n, n.layer_norm("entry", inputs[0]), p))

    def block(self, n: Layers, x: Array, p: Parameters) -> Array:
        return n.dense("classifier", x, p["words"])


BLOCKS: Dict[str, Network] = {
    block.name: block
    for block in (
        ResidualBlock(),
        InvertedResidualBlock(),
        ConvolutionBlock(),
        EncoderBlock(),
        RecurrentBlock(),
        WordClassifier(),
    )
}
