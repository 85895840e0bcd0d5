"""Inference in ONNX Runtime with the models that `torch_program` trained in float32.

The first run exports them. Settings: `model_type` (`float16`), `quantisation` (`int8`: dynamic) and
`graph_optimisation` (`disable`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime import quantization
from onnxruntime.transformers.float16 import convert_float_to_float16

from benchmarks.reduced_precision.digits import SIDE, Array, load, relative_error
from benchmarks.reduced_precision.experiment import KINDS, print_result, read_arguments, read_weights
from benchmarks.reduced_precision.torch_program import build, forward


class Classifier(torch.nn.Module):
    """A model with the function that computes its logits, as the exporter needs it."""

    def __init__(self, kind: str, model: Any) -> None:
        super().__init__()
        self.kind, self.model = kind, model

    def forward(self, images: Any) -> Any:
        """Return the logits of images."""
        return forward(self.kind, self.model, images)


def export(kind: str, weights: Path, path: Path) -> None:
    """Write a trained model as ONNX."""
    model = build(kind)
    stored, _ = read_weights(weights)
    names = model.state_dict()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in zip(names, stored, strict=True)})
    example = torch.zeros(2, SIDE * SIDE)
    shapes = {"images": {0: torch.export.Dim("samples")}}
    options = {"dynamic_shapes": shapes, "external_data": False, "verbose": False}
    torch.onnx.export(Classifier(kind, model).eval(), (example,), str(path), **options)


def changed_model(path: Path, settings: Mapping[str, str]) -> bytes:
    """Return a model as the settings change it."""
    if settings.get("model_type") == "float16":
        model: bytes = convert_float_to_float16(onnx.load(path), keep_io_types=True).SerializeToString()
        return model
    if settings.get("quantisation") == "int8":
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "model.onnx"
            # ONNX Runtime's integer convolution on CPUs has unsigned weights.
            quantization.quantize_dynamic(path, target, weight_type=quantization.QuantType.QUInt8)
            return target.read_bytes()
    return path.read_bytes()


def infer(model: bytes, settings: Mapping[str, str], images: Array) -> Array:
    """Return the logits of images."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if settings.get("graph_optimisation") == "disable":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: images})
    return np.asarray(logits, np.float32)


def main() -> None:
    """Test every model with the weights of every seed."""
    arguments = read_arguments()
    _, _, images, classes = load()
    for kind in KINDS:
        for seed in range(arguments.seeds):
            path = arguments.folder / f"{kind}-{seed}.onnx"
            if not arguments.settings:
                export(kind, path.with_suffix(".npz"), path)
            logits = infer(changed_model(path, arguments.settings), arguments.settings, images)
            reference = logits if not arguments.settings else infer(path.read_bytes(), {}, images)
            print_result(kind, seed, logits, classes, relative_error(logits, reference))


if __name__ == "__main__":
    main()
