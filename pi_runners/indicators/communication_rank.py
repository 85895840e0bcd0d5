"""One process (rank) of the communication indicator: it takes part in the stretches of calls that rank 0 asks for.

A stretch is a number of calls of the operation. Before it, every rank fills its buffers with numbers of its own for
this stretch, and all ranks meet at a barrier. Then each rank times its calls, the device's work included; the slowest
rank's time counts, since a message is delivered when the last one has it. After it, every rank checks what it holds.
Buffers, barrier and check are not timed, and neither is what the ranks tell each other about stretches: that goes
through the file in which they met, not through the operations that are measured.
"""

from __future__ import annotations

import json
import os
import traceback
from datetime import timedelta
from typing import Any, Dict, NoReturn

from pi_runners.harness.contract import SamplingPlan, Unsupported
from pi_runners.harness.origin import MISUSE
from pi_runners.harness.timing import measure_stretches, rounded, time_calls
from pi_runners.indicators.communication_patterns import PATTERNS, WrongResultError

MEETING_SECONDS = 120.0
"""Longest wait for another rank: the first time each must import the framework, which takes long on a busy machine."""
_CHECKED_CALLS = 3
"""Stretches of one call before anything is timed: what one left behind must not pass for the result of the next."""


def take_part(path: str, rank_text: str) -> None:
    """Be one rank; leave a document about how it went in the folder of the request."""
    rank = int(rank_text)
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        document = _measure(request, rank)
    except BaseException as error:
        _fail(request["folder"], rank, _failure(error))
    _write(request["folder"], rank, document)


def _measure(request: Dict[str, Any], rank: int) -> Dict[str, Any]:
    from pi_runners.harness.settings import apply_settings

    apply_settings("torch", request["settings"])
    import torch
    import torch.distributed as dist

    p, device = request["parameters"], request["device"]
    # Gloo may look for a network; the processes of this machine meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        # Together the processes use the machine once.
        torch.set_num_threads(max(1, torch.get_num_threads() // p["processes"]))
    store = dist.FileStore(os.path.join(request["folder"], "meeting"), p["processes"])
    store.set_timeout(timedelta(seconds=MEETING_SECONDS))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=p["processes"],
        timeout=timedelta(seconds=MEETING_SECONDS),
    )
    stretches = Stretches(PATTERNS[p["pattern"]](torch, dist, rank, request), dist, store)
    document = stretches.lead(SamplingPlan(**request["plan"])) if rank == 0 else stretches.follow()
    dist.destroy_process_group()
    return document


class Stretches:
    """The stretches of one measurement, counted alike by every rank."""

    def __init__(self, pattern: Any, dist: Any, store: Any) -> None:
        self._pattern, self._dist, self._store = pattern, dist, store
        self._number = 0
        self._error = 0.0

    def lead(self, plan: SamplingPlan) -> Dict[str, Any]:
        """Check, then measure; the other ranks follow."""
        for _ in range(_CHECKED_CALLS):
            self._time(1)
        timing = measure_stretches(self._time, plan)
        self._store.set(self._key("calls"), "0")
        document = timing.document()
        document["samples"] = rounded([seconds / self._pattern.operations for seconds in timing.samples])
        return {**document, **self._findings()}

    def follow(self) -> Dict[str, Any]:
        """Do what rank 0 asks for, until it asks for nothing more."""
        while True:
            calls = int(self._store.get(self._key("calls")))
            if not calls:
                return {"status": "ok", **self._findings()}
            self._store.set(self._key("seconds", self._pattern.rank), repr(self._run(calls)))
            self._number += 1

    def _time(self, calls: int) -> float:
        """Return the slowest rank's seconds per call over a stretch."""
        self._store.set(self._key("calls"), str(calls))
        seconds = [self._run(calls)]
        seconds += [float(self._store.get(self._key("seconds", rank))) for rank in range(1, self._pattern.size)]
        self._number += 1
        return max(seconds)

    def _run(self, calls: int) -> float:
        self._pattern.prepare(self._number, calls)
        self._dist.barrier()
        seconds = time_calls(self._pattern.run, self._pattern.synchronise, calls)
        # The check raises an error where the result is not finite, so that no NaN is lost here.
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
    from pi_runners.harness.worker import failure_class

    # Patterns call PyTorch themselves, and its C code leaves no frame: what it raises there looks like ours.
    status = "harness-error" if isinstance(error, (*MISUSE, ArithmeticError)) else failure_class(error)
    return {"status": status, "failure": traceback.format_exc()[-2000:]}


def _fail(folder: str, rank: int, document: Dict[str, Any]) -> NoReturn:
    """Leave a document and end at once: a library that waits for the other ranks could keep this one from ending."""
    _write(folder, rank, document)
    os._exit(1)


def document_path(folder: str, rank: int) -> str:
    """Return where a rank leaves its document."""
    return os.path.join(folder, "rank-{}.json".format(rank))


def _write(folder: str, rank: int, document: Dict[str, Any]) -> None:
    path = document_path(folder, rank)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(path + ".new", path)
