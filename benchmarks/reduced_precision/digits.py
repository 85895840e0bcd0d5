"""The data of the experiment: handwritten digits of 8 x 8 pixels, which ship with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STEPS = 300
BATCH = 64
LEARNING_RATE = 1e-3
CLASSES = 10
SIDE = 8
"""Rows and columns of an image."""


def load() -> tuple[Array, Array, Array, Array]:
    """Return images and classes for training, and images and classes for the test: the same halves in every run.

    Images have the shape (samples, 64), with values from 0 to 1.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    split = train_test_split(images, digits.target, test_size=0.5, random_state=0, stratify=digits.target)
    return split[0], split[2], split[1], split[3]


def batches(samples: int, seed: int) -> Array:
    """Return the numbers of the samples of each step, with the shape (steps, batch).

    Args:
        samples: Number of samples for training.
        seed: Seed of the order: each pass over the samples has another one.
    """
    generator = np.random.default_rng(seed)
    passes = -(-STEPS * BATCH // samples)
    order = np.concatenate([generator.permutation(samples) for _ in range(passes)])
    return order[: STEPS * BATCH].reshape(STEPS, BATCH)


def loss(logits: Array, classes: Array) -> float:
    """Return the mean cross-entropy, computed in double precision."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    likelihoods = shifted[np.arange(len(classes)), classes] - np.log(np.exp(shifted).sum(axis=1))
    return float(-likelihoods.mean())


def accuracy(logits: Array, classes: Array) -> float:
    """Return the share of samples whose largest logit is that of their class."""
    return float((logits.argmax(axis=1) == classes).mean())


def relative_error(logits: Array, reference: Array) -> float:
    """Return the Euclidean norm of the difference of all logits, divided by that of the reference."""
    difference = logits.astype(np.float64) - reference.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(reference.astype(np.float64)))
