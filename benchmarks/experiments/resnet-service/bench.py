"""Answer requests with a ResNet-50 in ONNX Runtime, one image each, and print the seconds of all answers."""

import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

REQUESTS = 100
LEVELS = ((64, 3), (128, 4), (256, 6), (512, 3))


class Network:
    """The nodes and weights of an ONNX graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.generator = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Add a node, and return the name of its output."""
        name = f"node{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """Add random weights, and return their name."""
        name = f"weight{len(self.weights)}"
        values = self.generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def convolution(self, images: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        """Add a convolution; its normalisation is part of its weights, as in exported models."""
        kernel, bias, padding = self.weight(outputs, inputs, size, size), self.weight(outputs), [size // 2] * 4
        return self.add("Conv", images, kernel, bias, pads=padding, strides=[stride, stride])


def build() -> bytes:
    """Return a ResNet-50 (https://arxiv.org/abs/1512.03385) with random weights, as an ONNX file."""
    network = Network()
    hidden = network.add("Relu", network.convolution("images", 3, 64, 7, 2))
    hidden = network.add("MaxPool", hidden, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = 64
    for width, blocks in LEVELS:
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            inner = network.add("Relu", network.convolution(hidden, channels, width, 1))
            inner = network.add("Relu", network.convolution(inner, width, width, 3, stride))
            inner = network.convolution(inner, width, 4 * width, 1)
            if block == 0:
                hidden = network.convolution(hidden, channels, 4 * width, 1, stride)
            hidden, channels = network.add("Relu", network.add("Add", inner, hidden)), 4 * width
    pooled = network.add("Flatten", network.add("GlobalAveragePool", hidden))
    network.add("MatMul", pooled, network.weight(channels, 1000))
    graph = helper.make_graph(
        network.nodes,
        "resnet50",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info(network.nodes[-1].output[0], TensorProto.FLOAT, ["batch", 1000])],
        network.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def main() -> None:
    """Answer requests."""
    session = onnxruntime.InferenceSession(build(), providers=["CPUExecutionProvider"])
    request = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32).tobytes()
    start = 0.0
    for number in range(REQUESTS + 5):
        if number == 5:
            start = time.perf_counter()
        images = np.frombuffer(request, dtype=np.float32).reshape(-1, 3, 224, 224)
        session.run(None, {"images": images})
    print(f"seconds: {time.perf_counter() - start:.6f}")


if __name__ == "__main__":
    main()
