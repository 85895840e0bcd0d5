"""Communication patterns: the operation, the numbers that every rank sends, and the check of the received numbers.

Every rank sends its own numbers, which change with every stretch of calls. A check therefore detects missing messages,
messages of a wrong rank and messages of an earlier stretch. The numbers are small integers, which every element type
represents exactly, as well as their sums. All elements are compared.
"""

from __future__ import annotations

import hashlib
import math
import random
from abc import ABC, abstractmethod
from array import array
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from pi_runners.harness.contract import LEARNING_RATE
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.indicators.programs.models import MODELS

_VALUES = 61
"""Buffers contain the numbers 1 to this prime number; those of two ranks, buffers or stretches are shifted."""
_CHUNK = _VALUES * 2**14
"""Elements that are copied or compared in one step. The numbers repeat after 61, so all chunks are equal."""
_BUFFERS = 10
_SMALL, _MEDIUM, _LARGE = 10, 10 * 1024, 1024 * 1024
"""Bytes of the small, medium and large buffers of a payload: three kinds as in TF-gRPC-Bench, with other sizes."""
_GRADIENT_TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Accepted relative error of the mean gradient; the gradient of a single rank has a far larger error."""


class WrongResultError(Exception):
    """Raised when a rank has a wrong result of the operation."""

    def __init__(self, message: str, error: float, tolerance: float) -> None:
        super().__init__(message)
        self.finite = error if error == error and abs(error) < 1e300 else None
        self.tolerance = tolerance


def buffer_bytes(payload: str) -> List[int]:
    """Return the sizes of the ten buffers: the kinds in turn (uniform), random, or mostly large (skewed)."""
    if payload == "skewed":
        return [_LARGE] * 6 + [_MEDIUM] * 3 + [_SMALL]
    if payload == "random":
        generator = random.Random(0)
        return [generator.choice((_SMALL, _MEDIUM, _LARGE)) for _ in range(_BUFFERS)]
    return [(_SMALL, _MEDIUM, _LARGE)[i % 3] for i in range(_BUFFERS)]


class Pattern(ABC):
    """Operation of one rank.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        operations: Operations in one call; a sample is the time of one operation.
        tolerance: Maximum accepted relative error.
    """

    operations = 1
    tolerance = 1e-3

    def __init__(self, torch: Any, dist: Any, rank: int, request: Dict[str, Any]) -> None:
        """Make the buffers.

        Args:
            torch: The framework.
            dist: Its package of operations between processes.
            rank: Number of this process.
            request: Parameters, device, element type and settings.
        """
        self._torch, self._dist = torch, dist
        self.rank, self.size = rank, request["parameters"]["processes"]
        self._request, self._device = request, request["device"]
        self._dtype = getattr(torch, request["dtype"])
        self._make()

    def _make(self) -> None:
        self._array = self._empty(self._request["parameters"]["elements"])

    @abstractmethod
    def prepare(self, stretch: int, calls: int) -> None:
        """Fill the buffers for a stretch of calls."""

    @abstractmethod
    def run(self) -> None:
        """Run the operation once."""

    @abstractmethod
    def check(self, stretch: int, calls: int) -> float:
        """Return the largest relative error of this rank's buffers after a stretch of calls.

        Raises:
            WrongResultError: If it exceeds the tolerance or is NaN.
        """

    def synchronise(self, result: Any) -> None:
        """Wait for the GPU; Gloo's operations are complete when they return."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def state(self) -> str:
        """Return a hash of the state that must be equal on all ranks at the end."""
        return ""

    def _empty(self, elements: int, dtype: Any = None) -> Any:
        return self._torch.zeros(elements, device=self._device, dtype=dtype or self._dtype)

    def _numbers(self, count: int, sender: int, stretch: int, buffer: int = 0) -> Any:
        """Return the first elements that a rank sends in a stretch."""
        places = self._torch.arange(count, device=self._device)
        return (places + (3 * sender + stretch + 7 * buffer)) % _VALUES + 1

    def _fill(self, tensor: Any, numbers: Callable[[int], Any]) -> None:
        chunk = numbers(min(_CHUNK, tensor.numel())).to(tensor.dtype)
        for start in range(0, tensor.numel(), _CHUNK):
            part = tensor[start : start + _CHUNK]
            part.copy_(chunk[: part.numel()])

    def _compare(self, tensor: Any, numbers: Callable[[int], Any], origin: str) -> float:
        """Compare all elements with the expected numbers."""
        chunk = numbers(min(_CHUNK, tensor.numel()))
        plain = chunk.to(tensor.dtype)
        worst = 0.0
        for start in range(0, tensor.numel(), _CHUNK):
            part = tensor[start : start + _CHUNK]
            if self._torch.equal(part, plain[: part.numel()]):
                continue
            expected = chunk[: part.numel()].double()
            error = (part.double() - expected).abs() / expected.abs().clamp(min=1.0)
            # Not `error > tolerance`, which is false for NaN.
            wrong = ~(error <= self.tolerance)
            if bool(wrong.any()):
                place = int(wrong.nonzero()[0])
                raise WrongResultError(
                    "rank {} has {} in element {} of what {}, instead of {}".format(
                        self.rank, float(part[place]), start + place, origin, float(expected[place])
                    ),
                    float(error[place]),
                    self.tolerance,
                )
            worst = max(worst, float(error.max()))
        return worst


class AllReduce(Pattern):
    """Sum over all ranks, in place.

    Repeated sums would grow to infinity. A stretch of more than one call therefore sums numbers that cancel out: every
    call after the first sums zeros, which takes the same time.
    """

    def prepare(self, stretch: int, calls: int) -> None:
        self._fill(self._array, lambda count: self._summand(count, self.rank, stretch, calls))

    def run(self) -> None:
        self._dist.all_reduce(self._array)

    def check(self, stretch: int, calls: int) -> float:

        def total(count: int) -> Any:
            return sum(self._summand(count, rank, stretch, calls) for rank in range(self.size))

        return self._compare(self._array, total, "the all-reduce summed up")

    def _summand(self, count: int, rank: int, stretch: int, calls: int) -> Any:
        """Return numbers of alternating sign, so that partial sums stay small and exact."""
        if calls == 1:
            return self._numbers(count, rank, stretch) * (1 - 2 * (rank % 2))
        factor = 1 - 2 * (rank % 2)
        if self.size % 2 and rank >= self.size - 3:
            factor = (1, 1, -2)[rank - (self.size - 3)]
        return self._numbers(count, 0, stretch) * factor


class Broadcast(Pattern):
    """Broadcast from rank 0 to all ranks."""

    def prepare(self, stretch: int, calls: int) -> None:
        """Fill each rank's buffer with its own numbers, so that a missing message is detected."""
        self._fill(self._array, lambda count: self._numbers(count, self.rank, stretch))

    def run(self) -> None:
        self._dist.broadcast(self._array, src=0)

    def check(self, stretch: int, calls: int) -> float:
        return self._compare(self._array, lambda count: self._numbers(count, 0, stretch), "rank 0 broadcast")


class Messages(Pattern):
    """Buffers that ranks send to each other.

    Attributes:
        sent: Buffers that this rank sends.
        received: Buffers that it receives, by the number of the sender.
        origin: How a sender and the number of a buffer are named.
    """

    sent: List[Any]
    received: Dict[int, List[Any]]
    origin = "rank {} sent in buffer {}"

    def prepare(self, stretch: int, calls: int) -> None:
        """Fill the send buffers, and clear the receive buffers; sent numbers are never 0."""
        for number, buffer in enumerate(self.sent):
            self._fill(buffer, self._numbers_of(self.rank, stretch, number))
        for buffers in self.received.values():
            for buffer in buffers:
                buffer.zero_()

    def check(self, stretch: int, calls: int) -> float:
        return max(
            self._compare(buffer, self._numbers_of(other, stretch, number), self.origin.format(other, number))
            for other, buffers in self.received.items()
            for number, buffer in enumerate(buffers)
        )

    def _numbers_of(self, sender: int, stretch: int, buffer: int) -> Callable[[int], Any]:
        return lambda count: self._numbers(count, sender, stretch, buffer)


class Latency(Messages):
    """Rank 0 sends to rank 1, which answers with as many elements: a round trip is two messages."""

    operations = 2
    origin = "rank {} sent"
    answer: Optional[int] = None
    """Elements of the answer; ``None`` for as many as in the message."""

    def _make(self) -> None:
        elements = self._request["parameters"]["elements"]
        there, back = elements, self.answer or elements
        self._message = self._empty(there if self.rank == 0 else back)
        self._reply = self._empty(back if self.rank == 0 else there)
        self.sent, self.received = [self._message], {1 - self.rank: [self._reply]}

    def run(self) -> None:
        if self.rank == 0:
            self._dist.send(self._message, 1)
            self._dist.recv(self._reply, 1)
        else:
            self._dist.recv(self._reply, 0)
            self._dist.send(self._message, 0)


class Bandwidth(Latency):
    """A large message, which an answer of one element confirms."""

    operations = 1
    answer = 1


class ParameterServer(Messages):
    """Every worker pushes ten buffers to rank 0, and then pulls ten buffers of the same sizes."""

    def _make(self) -> None:
        sizes = buffer_bytes(self._request["parameters"]["payload"])
        others = range(1, self.size) if self.rank == 0 else [0]
        self.sent, *received = ([self._empty(size, self._torch.uint8) for size in sizes] for _ in (0, *others))
        self.received = dict(zip(others, received))

    def run(self) -> None:
        for part in (self._receive, self._send) if self.rank == 0 else (self._send, self._receive):
            part()

    def _send(self) -> None:
        for other in self.received:
            for buffer in self.sent:
                self._dist.send(buffer, other)

    def _receive(self) -> None:
        for other, buffers in self.received.items():
            for buffer in buffers:
                self._dist.recv(buffer, other)


class Scaling(Pattern):
    """A data-parallel step: gradients of the rank's own batch, mean over all ranks, update."""

    def _make(self) -> None:
        from pi_runners.frameworks.torch.operations import TorchBackend

        self.tolerance = _GRADIENT_TOLERANCE[self._request["dtype"]]
        self._model = MODELS["cnn"]
        self._p = self._model.sets["small"]
        self._backend = TorchBackend(self._device, self._request["dtype"], self._request["settings"])
        self._initial = self._model.make_weights(self._backend, self._p)
        self._weights = self._weights_again()
        self._mean: Any = None

    def prepare(self, stretch: int, calls: int) -> None:
        """Reset the weights, which are equal on all ranks, and the batch, which differs."""
        self._batch = self._batch_of(self.rank, stretch)
        with self._torch.no_grad():
            for weight, initial in zip(self._weights, self._initial):
                weight.copy_(initial)

    def run(self) -> None:
        self._mean = None
        # One message for all gradients, since data-parallel frameworks bundle them, too.
        self._mean = self._gradient(self._weights, self._batch)
        self._dist.all_reduce(self._mean)
        self._mean /= self.size
        self._update(self._weights, self._mean)

    def check(self, stretch: int, calls: int) -> float:
        """Compare the gradient with the mean over the batches of all ranks, and the update with the gradient."""
        with self._torch.no_grad():
            weights = self._joined(self._weights)
        if not bool(self._torch.isfinite(weights).all()):
            raise self._wrong("weights that are not finite after {} steps".format(calls), float("nan"))
        if calls > 1:
            return 0.0
        gradients = [self._gradient(self._weights_again(), self._batch_of(r, stretch)) for r in range(self.size)]
        expected = self._torch.stack([g.double() for g in gradients]).mean(0)
        error = float((self._mean.double() - expected).norm() / expected.norm())
        if not error <= self.tolerance:
            raise self._wrong("a gradient that is not the mean of all ranks' gradients", error)
        updated = self._weights_again()
        self._update(updated, self._mean)
        if not bool((weights == self._joined(updated)).all()):
            raise self._wrong("weights that are not those after one step", float("nan"))
        return error

    def state(self) -> str:
        numbers = self._joined(self._weights).detach().double().cpu().tolist()
        return hashlib.sha256(array("d", numbers).tobytes()).hexdigest()

    def _wrong(self, what: str, error: float) -> WrongResultError:
        message = "rank {} has {}: relative error {:.3g}".format(self.rank, what, error)
        return WrongResultError(message, error, self.tolerance)

    def _weights_again(self) -> List[Any]:
        return [w.clone().requires_grad_() for w in self._initial]

    def _joined(self, tensors: Sequence[Any]) -> Any:
        return self._torch.cat([t.reshape(-1) for t in tensors])

    def _batch_of(self, rank: int, stretch: int) -> Tuple[Any, Any]:
        seed = 1000 + 2 * (stretch * self.size + rank)
        shape = self._model.input_specs(self._p)[0].shape
        rows = self._model.rows(self._p)
        labels = [byte % self._p["classes"] for byte in random_bytes(seed + 1, rows)]
        images = self._backend.images(random_bytes(seed, math.prod(shape)), shape)
        return images, self._backend.integers(labels, (rows,))

    def _gradient(self, weights: Sequence[Any], batch: Tuple[Any, Any]) -> Any:
        images, labels = batch
        logits = self._model.forward(self._backend, weights, [images], self._p, True)
        loss = self._backend.cross_entropy(logits, labels)
        return self._joined(self._torch.autograd.grad(loss, weights))

    def _update(self, weights: Sequence[Any], gradient: Any) -> None:
        place = 0
        with self._torch.no_grad():
            for weight in weights:
                count = weight.numel()
                weight.sub_(gradient[place : place + count].reshape(weight.shape), alpha=LEARNING_RATE)
                place += count


PATTERNS: Dict[str, Callable[..., Pattern]] = {
    "all_reduce": AllReduce,
    "broadcast": Broadcast,
    "latency": Latency,
    "bandwidth": Bandwidth,
    "parameter_server": ParameterServer,
    "scaling": Scaling,
}
