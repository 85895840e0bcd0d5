"""Models of images."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from pi_runners.harness.contract import Array, Parameter, Parameters
from pi_runners.models.layers import Filters, Inputs, Layers
from pi_runners.models.network import BATCH, Network, Published

_CLASSES = 1000
_TORCHVISION = "https://pytorch.org/vision/stable/models/generated/torchvision.models.{}.html"
_SIZE = Parameter("height and width of an image, a multiple of 32", least=32, most=4096)


class _ImageNetwork(Network):
    """A classifier of RGB images."""

    parameters = {"batch": BATCH, "size": _SIZE}  # noqa: RUF012
    classes = _CLASSES
    probe = {"batch": 4, "size": 64}  # noqa: RUF012
    multiples = {"size": 32}  # noqa: RUF012

    def inputs(self, p: Parameters, mode: str) -> List[Inputs]:
        return [Inputs("images", (p["batch"], 3, p["size"], p["size"]))]


class ResNet50(_ImageNetwork):
    """Residual network of bottleneck blocks; the stride is in the 3 x 3 convolution, as in MLPerf's v1.5."""

    name = "resnet50"
    summary = "ResNet-50 v1.5: image classification"
    source = "https://arxiv.org/abs/1512.03385 table 1"
    published = Published(25_557_032, 4.09e9, {"batch": 1, "size": 224}, _TORCHVISION.format("resnet50"))
    blocks = {"residual_block": 16}  # noqa: RUF012
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 4, "size": 64}, "inference": {"batch": 1, "size": 128}},
        "medium": {"training": {"batch": 8, "size": 128}, "inference": {"batch": 4, "size": 224}},
        "large": {"training": {"batch": 256, "size": 224}, "inference": {"batch": 256, "size": 224}},
    }

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        normalised = n.normalised_convolution
        x = n.max_pool(n.relu(normalised("stem", inputs[0], Filters(64, 7, 2))), 3, 2, 1)
        for stage, blocks in enumerate((3, 4, 6, 3)):
            width = 64 * 2**stage
            for block in range(blocks):
                at = "stage{}.block{}.".format(stage + 1, block + 1)
                stride = 2 if stage and not block else 1
                y = n.relu(normalised(at + "reduce", x, Filters(width, 1)))
                y = n.relu(normalised(at + "convolution", y, Filters(width, 3, stride)))
                # Small gains keep the sum of sixteen blocks small, as training does.
                y = normalised(at + "expand", y, Filters(4 * width, 1), gain=0.25)
                x = n.relu(n.add(y, x if block else normalised(at + "shortcut", x, Filters(4 * width, 1, stride))))
        return n.dense("classifier", n.global_mean(x), _CLASSES)


class ResNet18(_ImageNetwork):
    """Residual network of basic blocks; images may be small, so that its size varies by a factor of thousands."""

    name = "resnet18"
    summary = "ResNet-18: image classification, of images of any size"
    source = "https://arxiv.org/abs/1512.03385 table 1"
    published = Published(11_689_512, 1.81e9, {"batch": 1, "size": 224}, _TORCHVISION.format("resnet18"))
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 4, "size": 32}, "inference": {"batch": 1, "size": 64}},
        "medium": {"training": {"batch": 64, "size": 32}, "inference": {"batch": 8, "size": 224}},
        "large": {"training": {"batch": 512, "size": 224}, "inference": {"batch": 512, "size": 224}},
    }
    parameters = {  # noqa: RUF012
        "batch": BATCH,
        "size": Parameter("height and width of an image, a multiple of 16", least=16, most=4096),
    }
    multiples = {"size": 16}  # noqa: RUF012

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        normalised = n.normalised_convolution
        x = n.max_pool(n.relu(normalised("stem", inputs[0], Filters(64, 7, 2))), 3, 2, 1)
        for stage in range(4):
            width = 64 * 2**stage
            for block in range(2):
                at = "stage{}.block{}.".format(stage + 1, block + 1)
                stride = 2 if stage and not block else 1
                y = n.relu(normalised(at + "convolution1", x, Filters(width, 3, stride)))
                y = normalised(at + "convolution2", y, Filters(width, 3), gain=0.5)
                x = n.relu(n.add(y, normalised(at + "shortcut", x, Filters(width, 1, stride)) if stride > 1 else x))
        return n.dense("classifier", n.global_mean(x), _CLASSES)


class MobileNetV2(_ImageNetwork):
    """Inverted residual blocks with depthwise convolutions."""

    name = "mobilenet_v2"
    summary = "MobileNetV2: image classification with depthwise convolutions"
    source = "https://arxiv.org/abs/1801.04381 table 2"
    published = Published(3_504_872, 0.30e9, {"batch": 1, "size": 224}, _TORCHVISION.format("mobilenet_v2"))
    blocks = {"inverted_residual_block": 17}  # noqa: RUF012
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 8, "size": 64}, "inference": {"batch": 1, "size": 224}},
        "medium": {"training": {"batch": 16, "size": 128}, "inference": {"batch": 8, "size": 224}},
        "large": {"training": {"batch": 512, "size": 224}, "inference": {"batch": 512, "size": 224}},
    }

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        normalised = n.normalised_convolution
        x = n.relu6(normalised("stem", inputs[0], Filters(32, 3, 2)))
        width, number = 32, 0
        for expansion, filters, blocks, first in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for block in range(blocks):
                number += 1
                at, stride = "block{}.".format(number), first if not block else 1
                y, wide = x, width * expansion
                if expansion > 1:
                    y = n.relu6(normalised(at + "expand", y, Filters(wide, 1)))
                y = n.relu6(normalised(at + "depthwise", y, Filters(wide, 3, stride, wide)))
                y = normalised(at + "project", y, Filters(filters, 1))
                x = n.add(x, y) if stride == 1 and width == filters else y
                width = filters
        x = n.relu6(normalised("head", x, Filters(1280, 1)))
        return n.dense("classifier", n.global_mean(x), _CLASSES)


class VisionTransformer(_ImageNetwork):
    """Vision transformer with patches of 16 x 16, twelve blocks of width 768."""

    name = "vit_b16"
    summary = "ViT-B/16: image classification with a transformer"
    source = "https://arxiv.org/abs/2010.11929 table 1"
    published = Published(86_567_656, 17.56e9, {"batch": 1, "size": 224}, _TORCHVISION.format("vit_b_16"))
    blocks = {"encoder_block": 12}  # noqa: RUF012
    parameters = {"batch": BATCH, "size": _SIZE._replace(most=224)}  # noqa: RUF012
    optimiser = "adamw"
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 1, "size": 64}, "inference": {"batch": 1, "size": 96}},
        "medium": {"training": {"batch": 2, "size": 128}, "inference": {"batch": 1, "size": 224}},
        "large": {"training": {"batch": 256, "size": 224}, "inference": {"batch": 256, "size": 224}},
    }

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Split the images into patches, run the blocks with normalisation before each layer, classify."""
        x = n.as_sequence(n.convolution("patches", inputs[0], Filters(768, 16, 16, bias=True)))
        x = n.add_positions("positions", n.prepend_token("class", x), 197)
        for block in range(12):
            at = "block{}.".format(block + 1)
            x = n.add(x, n.self_attention(at + "attention", n.layer_norm(at + "norm1", x, 1e-6), 12))
            y = n.gelu(n.dense(at + "widen", n.layer_norm(at + "norm2", x, 1e-6), 3072))
            x = n.add(x, n.dense(at + "narrow", y, 768))
        return n.dense("classifier", n.token(n.layer_norm("norm", x, 1e-6), 0), _CLASSES)


class UNet(_ImageNetwork):
    """Encoder and decoder of images with skip connections; it classifies every pixel."""

    name = "unet"
    summary = "U-Net with batch normalisation: image segmentation"
    source = "https://arxiv.org/abs/1505.04597 figure 1"
    published = Published(
        31_037_698,
        0,
        {"batch": 1, "size": 32},
        "https://github.com/milesial/Pytorch-UNet (three channels, two classes, transposed convolutions; "
        "without the biases of the convolutions before a normalisation)",
    )
    blocks = {"convolution_block": 9}  # noqa: RUF012
    sets = {  # noqa: RUF012
        "small": {"training": {"batch": 1, "size": 32}, "inference": {"batch": 1, "size": 64}},
        "medium": {"training": {"batch": 1, "size": 96}, "inference": {"batch": 1, "size": 160}},
        "large": {"training": {"batch": 16, "size": 512}, "inference": {"batch": 32, "size": 512}},
    }
    probe = {"batch": 2, "size": 32}  # noqa: RUF012

    def logits_shape(self, p: Parameters, mode: str) -> Tuple[int, int]:
        return int(p["batch"] * p["size"] ** 2), 2

    def forward(self, n: Layers, inputs: Sequence[Array], p: Parameters, mode: str) -> Array:
        """Go down four levels and up again; each level has two convolutions."""

        def twice(name: str, x: Array, filters: int) -> Array:
            for number in ("1", "2"):
                x = n.relu(n.normalised_convolution(name + number, x, Filters(filters, 3)))
            return x

        levels = [twice("down0.", inputs[0], 64)]
        for level in range(1, 5):
            levels.append(twice("down{}.".format(level), n.max_pool(levels[-1], 2, 2), 64 * 2**level))
        x = levels.pop()
        for level in range(3, -1, -1):
            filters = 64 * 2**level
            x = n.transposed_convolution("up{}.enlarge".format(level), x, filters)
            x = twice("up{}.".format(level), n.join_channels(levels.pop(), x), filters)
        return n.rows(n.convolution("classifier", x, Filters(2, 1, bias=True)))
