"""What an indicator and a backend agree on."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

Parameters = Dict[str, Any]


class Unsupported(Exception):
    """Raised when a backend cannot run an indicator with these parameters on this device."""


class Call(NamedTuple):
    """One computation, ready to be timed.

    Attributes:
        run: Starts the computation and returns its result, which the device may still be working on.
        read: Returns one element of a result by its logical index, as a Python float.
    """

    run: Callable[[], Any]
    read: Callable[[Any, Tuple[int, ...]], float]


class Trial(NamedTuple):
    """A computation with its check.

    Attributes:
        run: As in :class:`Call`.
        check: Takes a result; returns the relative error of the result against a reference.
        tolerance: Largest relative error accepted.
    """

    run: Callable[[], Any]
    check: Callable[[Any], float]
    tolerance: float


class Backend:
    """How one framework spells the computations. Subclasses import the framework when they are made.

    Arrays are made from bytes: byte ``b`` stands for ``(b - 127.5) / 127.5``, so that every framework computes on
    the very same numbers.
    """

    name = ""

    def __init__(self, device: str, dtype: str) -> None:
        self.device = device
        self.dtype = dtype

    def synchronise(self, result: Any) -> None:
        """Wait until the device has finished what led to ``result``."""

    def describe(self) -> Dict[str, Any]:
        """Return versions and build facts of the framework, text or numbers by name."""
        raise Unsupported("this backend does not describe itself")

    def matmul(self, a: bytes, b: bytes, m: int, k: int, n: int) -> Call:
        """Multiply ``a`` (m, k) with ``b`` (k, n)."""
        raise Unsupported("the {} backend has no matmul".format(self.name))

    def conv2d(self, x: bytes, w: bytes, parameters: Parameters) -> Call:
        """Convolve ``x`` (batch, channels, size, size) with ``w`` (filters, channels, kernel, kernel)."""
        raise Unsupported("the {} backend has no conv2d".format(self.name))

    def training_step(self, images: bytes, labels: Sequence[int], weights: List[bytes], parameters: Parameters) -> Call:
        """One SGD step of a small CNN.

        The result's element ``(0,)`` is the loss before the step and ``(1,)`` the squared norm of the gradient.
        """
        raise Unsupported("the {} backend has no training_step".format(self.name))


def values(raw: bytes) -> List[float]:
    """Return the numbers that bytes stand for."""
    return [(byte - 127.5) / 127.5 for byte in raw]


def random_bytes(seed: int, count: int) -> bytes:
    """Return reproducible random bytes."""
    import random

    return random.Random(seed).getrandbits(8 * count).to_bytes(count, "little")
