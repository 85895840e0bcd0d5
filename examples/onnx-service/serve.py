"""Answers requests with an image classifier in ONNX Runtime: a program for `advisor workload profile`."""

import argparse
import json
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def build() -> bytes:
    """Return a small image classifier with random weights, as an ONNX file."""
    generator = np.random.default_rng(0)
    weights = {
        "first": (32, 3, 3, 3),
        "second": (64, 32, 3, 3),
        "third": (128, 64, 3, 3),
        "dense": (128, 10),
    }
    layers = [
        helper.make_node("Conv", ["images", "first"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "third"], ["e"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "dense"], ["i"]),
        helper.make_node("Softmax", ["i"], ["scores"]),
    ]
    graph = helper.make_graph(
        layers,
        "classifier",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [
            numpy_helper.from_array((generator.standard_normal(shape) / 8).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def answer(session: onnxruntime.InferenceSession, request: str) -> str:
    """Return the class of each image of a request, as JSON."""
    images = np.asarray(json.loads(request), dtype=np.float32).reshape(-1, 3, 32, 32)
    (scores,) = session.run(None, {"images": images})
    return json.dumps(scores.argmax(axis=1).tolist())


def main() -> None:
    """Answer requests, and print the mean time of an answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    session = onnxruntime.InferenceSession(build(), providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).standard_normal((options.batch, 3 * 32 * 32)).round(3)
    request = json.dumps(images.tolist())
    start = time.perf_counter()
    for _ in range(options.requests):
        answer(session, request)
    print(f"{(time.perf_counter() - start) / options.requests * 1e3:.2f} ms for a request", flush=True)


if __name__ == "__main__":
    main()
