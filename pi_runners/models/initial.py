"""Initial values of the weights of whole models: random numbers, the same in every framework."""

from __future__ import annotations

import math
import zlib
from typing import List, NamedTuple, Tuple

from pi_runners.harness.contract import Array, Backend
from pi_runners.harness.random_inputs import random_bytes


class InitialWeight(NamedTuple):
    """Initial value of a weight: uniform random numbers, the same in every framework.

    Attributes:
        name: Name of the layer and the weight, such as ``stage1.block1.convolution1.filters``.
        shape: Canonical shape; see :class:`Layers`.
        scale: Factor of the random numbers in (-1, 1).
        offset: Mean of the numbers.
    """

    name: str
    shape: Tuple[int, ...]
    scale: float
    offset: float = 0.0

    @property
    def raw(self) -> bytes:
        """The random bytes of the weight, which depend on its name alone."""
        return random_bytes(zlib.crc32(self.name.encode()), math.prod(self.shape))

    def make(self, backend: Backend, raw: bytes = b"") -> Array:
        """Return the weight as an array of a backend, filters in its native layout, from its or other bytes."""
        if len(self.shape) > 2:
            return backend.filters(raw or self.raw, self.shape, self.scale)
        return backend.array(raw or self.raw, self.shape, self.scale, self.offset)


def filters(name: str, shape: Tuple[int, ...]) -> InitialWeight:
    """Return filters of variance 2 / inputs, which keeps the size of activations (He et al. 2015, arXiv 1502.01852)."""
    return InitialWeight(name + ".filters", shape, (6.0 / math.prod(shape[1:])) ** 0.5)


def matrix(name: str, inputs: int, outputs: int) -> InitialWeight:
    """Return a matrix of variance 1 / inputs."""
    return InitialWeight(name + ".matrix", (inputs, outputs), (3.0 / inputs) ** 0.5)


def dense(name: str, inputs: int, outputs: int, with_bias: bool = True) -> List[InitialWeight]:
    """Return a matrix, and a bias if there is one."""
    return [matrix(name, inputs, outputs), *([bias(name, outputs)] if with_bias else [])]


def bias(name: str, width: int) -> InitialWeight:
    """Return a small bias."""
    return InitialWeight(name + ".bias", (width,), 0.1)


def gain(name: str, width: int, mean: float = 1.0) -> InitialWeight:
    """Return gains of a normalisation."""
    return InitialWeight(name + ".gain", (width,), 0.1 * mean, mean)


def norm(name: str, width: int, mean: float = 1.0) -> List[InitialWeight]:
    """Return gains and offsets of a normalisation."""
    return [gain(name, width, mean), bias(name, width)]


def table(name: str, rows: int, width: int) -> InitialWeight:
    """Return an embedding table of small numbers."""
    return InitialWeight(name + ".table", (rows, width), 0.05)


def recurrent(name: str, inputs: int, hidden: int) -> Tuple[InitialWeight, InitialWeight, InitialWeight]:
    """Return input weights, recurrent weights and biases of a recurrent layer."""
    scale = hidden**-0.5
    return (
        InitialWeight(name + ".input", (4 * hidden, inputs), scale),
        InitialWeight(name + ".recurrent", (4 * hidden, hidden), scale),
        InitialWeight(name + ".bias", (4 * hidden,), scale),
    )
