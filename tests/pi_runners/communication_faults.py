"""Program of one of three processes that run every communication pattern with every fault and write the failed checks.

usage: python communication_faults.py FOLDER RANK
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

PROCESSES = 3
PATTERNS: dict[str, dict[str, Any]] = {
    "all_reduce": {"processes": 3, "elements": 100},
    "broadcast": {"processes": 3, "elements": 100},
    "latency": {"processes": 2, "elements": 1},
    "bandwidth": {"processes": 2, "elements": 100},
    "parameter_server": {"processes": 3, "payload": "random"},
    "scaling": {"processes": 3},
}
DELIVERY_FAULTS = ("none", "nothing", "zeros", "nan", "some ranks only", "stale", "last element", "middle element")
OPERATORS = ("MAX", "MIN", "PRODUCT", "AVG")


class FaultyDistributed:
    """PyTorch's operations between processes, with a fault in the delivered tensors."""

    def __init__(self, dist: Any, rank: int, fault: str) -> None:
        self._dist, self._rank, self._fault = dist, rank, fault
        self._earlier: dict[Any, Any] = {}

    def send(self, tensor: Any, dst: int) -> None:
        self._dist.send(tensor, dst)

    def recv(self, tensor: Any, src: int) -> None:
        self._deliver(tensor, lambda: self._dist.recv(tensor, src), (tensor.numel(), src))

    def broadcast(self, tensor: Any, src: int) -> None:
        source = 1 if self._fault == "wrong source" else src
        self._deliver(tensor, lambda: self._dist.broadcast(tensor, src=source), tensor.numel())

    def all_reduce(self, tensor: Any) -> None:
        operator = self._fault if self._fault in OPERATORS else "SUM"
        self._deliver(tensor, lambda: self._reduce(tensor, operator), tensor.numel())

    def _reduce(self, tensor: Any, operator: str) -> None:
        # Gloo does not support the operator AVG.
        name = "SUM" if operator == "AVG" else operator
        self._dist.all_reduce(tensor, getattr(self._dist.ReduceOp, name))
        if operator == "AVG":
            tensor.div_(PROCESSES)

    def _deliver(self, tensor: Any, operate: Callable[[], None], key: Any) -> None:
        before = tensor.clone()
        operate()
        delivered = tensor.clone()
        if self._fault == "nothing" or (self._fault == "some ranks only" and self._rank == 1):
            tensor.copy_(before)
        elif self._fault == "zeros":
            tensor.zero_()
        elif self._fault == "nan":
            tensor.fill_(float("nan") if tensor.is_floating_point() else 255)
        elif self._fault == "stale" and key in self._earlier:
            tensor.copy_(self._earlier[key])
        elif self._fault.endswith("element"):
            tensor[-1 if self._fault == "last element" else tensor.numel() // 2] += 1
        self._earlier[key] = delivered


def cases() -> list[tuple[str, str, str]]:
    """Return element type, pattern and fault of every case."""
    faulty = [(pattern, fault) for pattern in PATTERNS for fault in DELIVERY_FAULTS]
    faulty += [(pattern, fault) for pattern in ("all_reduce", "scaling") for fault in OPERATORS]
    faulty.append(("broadcast", "wrong source"))
    correct = [("bfloat16", pattern, "none") for pattern in PATTERNS]
    # A training step in float16 takes more than a second on processors without float16 instructions.
    correct += [("float16", pattern, "none") for pattern in PATTERNS if pattern != "scaling"]
    return [*(("float32", pattern, fault) for pattern, fault in faulty), *correct]


def main(folder: Path, rank: int) -> None:
    """Run every case, and write the messages of its checks."""
    import torch
    import torch.distributed as dist

    from pi_runners.indicators.processes import communication_patterns

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "rendezvous"), PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES, timeout=timedelta(seconds=60))
    messages = {}
    for dtype, pattern, fault in cases():
        parameters = PATTERNS[pattern]
        request = {"parameters": parameters, "device": "cpu", "dtype": dtype, "settings": {}}
        dist.barrier()
        if rank < parameters["processes"]:
            faulty = FaultyDistributed(dist, rank, fault)
            operation = communication_patterns.PATTERNS[pattern](torch, faulty, rank, request)
            messages[f"{dtype} {pattern} {fault}"] = [run(operation, stretch, calls) for stretch, calls in STRETCHES]
    (folder / f"messages-{rank}.json").write_text(json.dumps(messages))
    dist.destroy_process_group()


STRETCHES = ((0, 1), (1, 1), (2, 3))
"""Number and calls of each stretch of a case."""


def run(pattern: Any, stretch: int, calls: int) -> str:
    """Run one stretch, and return the message of its check; empty if it passes."""
    from pi_runners.indicators.processes.communication_patterns import WrongResultError

    pattern.prepare(stretch, calls)
    for _ in range(calls):
        pattern.run()
    try:
        pattern.check(stretch, calls)
    except WrongResultError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(Path(sys.argv[1]), int(sys.argv[2]))
