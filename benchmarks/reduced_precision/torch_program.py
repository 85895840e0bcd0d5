"""The models in PyTorch, in the usual way: modules in float32, with Adam.

Settings: `amp` (`bfloat16`, or `float16` with a gradient scaler) and `matmul_precision`; others are in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.reduced_precision.digits import CLASSES, LEARNING_RATE, SIDE, Array
from benchmarks.reduced_precision.experiment import read_arguments, run_training

WIDTH = 64


def build(kind: str) -> Any:
    """Return a model with random weights."""
    if kind == "mlp":
        layers = [nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)]
        return nn.Sequential(*layers)
    if kind == "cnn":
        return nn.Sequential(
            nn.Unflatten(1, (1, SIDE, SIDE)),
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, CLASSES),
        )
    block = nn.TransformerEncoderLayer(
        WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
    )
    return nn.ModuleDict(
        {
            "embedding": nn.Linear(SIDE, WIDTH),
            "positions": nn.Embedding(SIDE, WIDTH),
            "blocks": nn.TransformerEncoder(block, num_layers=2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False),
            "head": nn.Linear(WIDTH, CLASSES),
        }
    )


def forward(kind: str, model: Any, images: Any) -> Any:
    """Return the logits of images."""
    if kind != "transformer":
        return model(images)
    rows = images.reshape(-1, SIDE, SIDE)
    tokens = model["embedding"](rows) + model["positions"](torch.arange(SIDE))
    return model["head"](model["blocks"](tokens).mean(dim=1))


class TorchFramework:
    """PyTorch under given settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._amp = settings.get("amp", "off")
        if "matmul_precision" in settings:
            torch.set_float32_matmul_precision(settings["matmul_precision"])

    def _precision(self) -> AbstractContextManager[Any]:
        if self._amp == "off":
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast("cpu", dtype=getattr(torch, self._amp))
        return context

    def train(self, kind: str, seed: int, images: Array, classes: Array) -> list[Array]:
        """Train with Adam; float16 has a gradient scaler, as PyTorch's documentation demands."""
        torch.manual_seed(seed)
        model = build(kind)
        optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        scaler = torch.amp.GradScaler("cpu", enabled=self._amp == "float16")
        for batch, answers in zip(torch.from_numpy(images), torch.from_numpy(classes), strict=True):
            optimiser.zero_grad()
            with self._precision():
                loss = nn.functional.cross_entropy(forward(kind, model, batch), answers)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
        return [value.numpy() for value in model.state_dict().values()]

    def logits(self, kind: str, weights: Sequence[Array], images: Array) -> Array:
        """Evaluate without recording gradients."""
        model = build(kind)
        model.load_state_dict({name: torch.from_numpy(w) for name, w in zip(model.state_dict(), weights, strict=True)})
        with torch.no_grad(), self._precision():
            result: Array = np.asarray(forward(kind, model.eval(), torch.from_numpy(images)).float())
        return result


if __name__ == "__main__":
    arguments = read_arguments()
    run_training(TorchFramework(arguments.settings), arguments)
