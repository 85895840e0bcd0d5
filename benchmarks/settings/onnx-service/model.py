"""Writes a residual network as ONNX. Its weights are random: the speed does not depend on them."""

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

SIDE, CLASSES = 96, 100
STAGES = ((32, 2), (64, 2), (128, 2), (256, 2))
"""Channels and number of blocks of each stage; each stage after the first halves the side of the maps."""


class NetworkWriter:
    """Collects the nodes and weights of a graph."""

    def __init__(self) -> None:
        self.nodes: list = []
        self.weights: list = []
        self._generator = np.random.default_rng(0)

    def weight(self, values: np.ndarray) -> str:
        """Add a weight, and return its name."""
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Add a node, and return the name of its output."""
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def convolution(self, maps: str, inputs: int, outputs: int, *, side: int, stride: int) -> str:
        """Add a convolution with a batch normalisation, as frameworks export them."""
        scale = np.sqrt(2 / (inputs * side * side))
        filters = self.weight(scale * self._generator.normal(size=(outputs, inputs, side, side)))
        maps = self.node("Conv", maps, filters, strides=[stride] * 2, pads=[side // 2] * 4)
        ones, zeros = np.ones(outputs), np.zeros(outputs)
        statistics = [self.weight(values) for values in (ones, zeros, zeros, ones)]
        return self.node("BatchNormalization", maps, *statistics)

    def block(self, maps: str, inputs: int, outputs: int, stride: int) -> str:
        """Add two convolutions, and the input added to their result."""
        hidden = self.node("Relu", self.convolution(maps, inputs, outputs, side=3, stride=stride))
        hidden = self.convolution(hidden, outputs, outputs, side=3, stride=1)
        shortcut = self.convolution(maps, inputs, outputs, side=1, stride=stride)
        return self.node("Relu", self.node("Add", hidden, shortcut))

    def dense(self, features: str, inputs: int, outputs: int) -> str:
        """Add a dense layer."""
        matrix = self.weight(self._generator.normal(size=(inputs, outputs)) / np.sqrt(inputs))
        return self.node("Add", self.node("MatMul", features, matrix), self.weight(np.zeros(outputs)))


def write_model() -> bytes:
    """Return the network as an ONNX file."""
    writer = NetworkWriter()
    maps, channels = writer.node("Relu", writer.convolution("images", 3, 32, side=3, stride=2)), 32
    for stage, (outputs, blocks) in enumerate(STAGES):
        for block in range(blocks):
            maps = writer.block(maps, channels, outputs, 2 if stage and not block else 1)
            channels = outputs
    features = writer.node("Flatten", writer.node("GlobalAveragePool", maps))
    logits = writer.dense(features, channels, CLASSES)
    graph = helper.make_graph(
        writer.nodes,
        "classifier",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", CLASSES])],
        writer.weights,
    )
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return model.SerializeToString()
