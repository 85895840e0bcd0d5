"""One process (rank) of the communication indicator, which runs the stretches of calls that rank 0 requests.

A stretch is a number of calls of the operation. Before a stretch, every rank fills its buffers with its own numbers for
this stretch, and all ranks wait at a barrier. Then each rank times its calls, including the work of the device; the
time of the slowest rank is used, since a message is delivered when the last rank has it. After the stretch, every rank
checks its buffers. Buffers, barrier and check are not timed. The ranks exchange requests and timings through a file
store, not through the measured operations.
"""

from __future__ import annotations

import json
import os
import traceback
from datetime import timedelta
from typing import Any, Dict

from pi_runners.harness.contract import SamplingPlan, Unsupported
from pi_runners.harness.origin import MISUSE
from pi_runners.harness.timing import measure_stretches, rounded, time_calls
from pi_runners.indicators.processes.communication_patterns import PATTERNS, WrongResultError

PEER_TIMEOUT_SECONDS = 120.0
"""Maximum wait for another rank; importing the framework takes long on a busy machine."""
_CHECKED_CALLS = 3
"""Stretches of one call before the measurement; several, so that the result of one cannot pass for the next one's."""


def run_rank(path: str, rank_text: str) -> None:
    """Run one rank, and write its result as a document into the directory of the request.

    Args:
        path: Path of the request.
        rank_text: Number of the rank.
    """
    rank = int(rank_text)
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        document = _measure(request, rank)
    except BaseException as error:
        _write(request["folder"], rank, _failure(error))
        # At once: a normal exit could wait for other ranks in a library.
        os._exit(1)
    _write(request["folder"], rank, document)


def _measure(request: Dict[str, Any], rank: int) -> Dict[str, Any]:
    from pi_runners.harness.settings import apply_settings

    apply_settings(request["settings"])
    import torch
    import torch.distributed as dist

    p, device = request["parameters"], request["device"]
    # Gloo may choose a network interface; processes of one machine use loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        # All processes together use each processor once.
        torch.set_num_threads(max(1, torch.get_num_threads() // p["processes"]))
    store = dist.FileStore(os.path.join(request["folder"], "meeting"), p["processes"])
    store.set_timeout(timedelta(seconds=PEER_TIMEOUT_SECONDS))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=p["processes"],
        timeout=timedelta(seconds=PEER_TIMEOUT_SECONDS),
    )
    stretches = Stretches(PATTERNS[p["pattern"]](torch, dist, rank, request), dist, store)
    document = stretches.lead(SamplingPlan(**request["plan"])) if rank == 0 else stretches.follow()
    dist.destroy_process_group()
    return document


class Stretches:
    """The stretches of one measurement; every rank numbers them in the same way."""

    def __init__(self, pattern: Any, dist: Any, store: Any) -> None:
        self._pattern, self._dist, self._store = pattern, dist, store
        self._number = 0
        self._error = 0.0

    def lead(self, plan: SamplingPlan) -> Dict[str, Any]:
        """Request the stretches of the check and of the measurement (rank 0)."""
        for _ in range(_CHECKED_CALLS):
            self._time(1)
        timing = measure_stretches(self._time, plan)
        self._store.set(self._key("calls"), "0")
        # Between its stretches, the ranks wait for each other and check their results: no window of timed calls.
        document = timing._replace(window=None).document()
        document["samples"] = rounded([seconds / self._pattern.operations for seconds in timing.samples])
        return {**document, **self._findings()}

    def follow(self) -> Dict[str, Any]:
        """Run the stretches that rank 0 requests, until it requests no more (other ranks)."""
        while True:
            calls = int(self._store.get(self._key("calls")))
            if not calls:
                return {"status": "ok", **self._findings()}
            self._store.set(self._key("seconds", self._pattern.rank), repr(self._run(calls)))
            self._number += 1

    def _time(self, calls: int) -> float:
        """Run a stretch on all ranks, and return the seconds per call of the slowest rank."""
        self._store.set(self._key("calls"), str(calls))
        seconds = [self._run(calls)]
        seconds += [float(self._store.get(self._key("seconds", rank))) for rank in range(1, self._pattern.size)]
        self._number += 1
        return max(seconds)

    def _run(self, calls: int) -> float:
        self._pattern.prepare(self._number, calls)
        self._dist.barrier()
        seconds = time_calls(self._pattern.run, self._pattern.synchronise, calls)
        # The check raises an error if the result is not finite, so `max` never sees NaN.
        self._error = max(self._error, self._pattern.check(self._number, calls))
        return seconds

    def _key(self, *words: Any) -> str:
        return "-".join(str(word) for word in ("stretch", self._number, *words))

    def _findings(self) -> Dict[str, Any]:
        return {"error": self._error, "tolerance": self._pattern.tolerance, "state": self._pattern.state()}


def _failure(error: BaseException) -> Dict[str, Any]:
    if isinstance(error, WrongResultError):
        return {"status": "wrong-result", "failure": str(error), "error": error.finite, "tolerance": error.tolerance}
    if isinstance(error, Unsupported):
        return {"status": "unsupported", "failure": str(error)}
    from pi_runners.harness.origin import failure_class

    # Patterns call PyTorch directly, and its C code has no frame: these exceptions seem to come from this program.
    status = "harness-error" if isinstance(error, (*MISUSE, ArithmeticError)) else failure_class(error)
    return {"status": status, "failure": traceback.format_exc()[-2000:]}


def document_path(folder: str, rank: int) -> str:
    """Return the path of a rank's document."""
    return os.path.join(folder, "rank-{}.json".format(rank))


def _write(folder: str, rank: int, document: Dict[str, Any]) -> None:
    path = document_path(folder, rank)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(path + ".new", path)
