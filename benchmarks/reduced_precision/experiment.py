"""The experiment, the same for all frameworks: train each model with each seed, and test it.

A run without settings stores its trained weights. A run with settings trains from the same initial weights on the same
batches, and also tests the stored weights: the difference of these logits is the error of the forward pass.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.reduced_precision.digits import Array, accuracy, batches, load, loss, relative_error

KINDS = ("mlp", "cnn", "transformer")
"""A network of three dense layers, one of three convolutions, and two transformer blocks over the rows of pixels."""


class Framework(Protocol):
    """A framework under given settings."""

    def train(self, kind: str, seed: int, images: Array, classes: Array) -> list[Array]:
        """Return the weights after training from initial weights that depend on the seed alone.

        Args:
            kind: One of :data:`KINDS`.
            seed: Seed of the initial weights.
            images: Images of each step, with the shape (steps, batch, 64).
            classes: Their classes, with the shape (steps, batch).
        """

    def logits(self, kind: str, weights: Sequence[Array], images: Array) -> Array:
        """Return the logits of a model with the given weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of a program.

    Attributes:
        settings: Settings by name; empty for the reference.
        seeds: Number of seeds.
        folder: Folder of the reference's trained weights.
    """

    settings: Mapping[str, str]
    seeds: int
    folder: Path


def read_arguments() -> Arguments:
    """Return the arguments of this process, and bind it to one processor.

    Sums over several threads would have another order in every run.
    """
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[os.getpid() % len(processors)]})
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    settings = dict(text.split("=", 1) for text in options.settings)
    return Arguments(settings=settings, seeds=options.seeds, folder=options.folder)


def run_training(framework: Framework, arguments: Arguments) -> None:
    """Train and test every model with every seed, and print a line of JSON for each."""
    images, classes, test_images, test_classes = load()
    for kind in KINDS:
        for seed in range(arguments.seeds):
            path = arguments.folder / f"{kind}-{seed}.npz"
            order = batches(len(images), seed)
            weights = framework.train(kind, seed, images[order], classes[order])
            logits = framework.logits(kind, weights, test_images)
            error = 0.0
            if arguments.settings:
                stored, reference = read_weights(path)
                error = relative_error(framework.logits(kind, stored, test_images), reference)
            else:
                np.savez(path, *weights, logits=logits)
            print_result(kind, seed, logits, test_classes, error)


def print_result(kind: str, seed: int, logits: Array, classes: Array, error: float) -> None:
    """Print the result of one model and one seed as a line of JSON."""
    record = {
        "model": kind,
        "seed": seed,
        "loss": loss(logits, classes),
        "accuracy": accuracy(logits, classes),
        "forward_error": error,
    }
    print(json.dumps(record), flush=True)


def read_weights(path: Path) -> tuple[list[Array], Array]:
    """Return stored weights and the logits of the test images that the reference computed with them."""
    with np.load(path) as file:
        count = len(file.files) - 1
        return [file[f"arr_{number}"] for number in range(count)], file["logits"]
