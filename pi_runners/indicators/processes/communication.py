"""Communication between processes: collectives, point to point, a parameter server, scaling of data-parallel training.

PyTorch's distributed package: Gloo between processes on the CPU, NCCL between GPUs, one process each.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, List, Optional, Sequence

from pi_runners.harness.contract import Backend, Parameter, Parameters, SamplingPlan, Unsupported
from pi_runners.indicators.indicator import ITEM_BYTES, Indicator
from pi_runners.indicators.processes.communication_patterns import PATTERNS, buffer_bytes
from pi_runners.indicators.processes.communication_rank import document_path
from pi_runners.indicators.programs.models import MODELS

_TAIL = 2000


class Communication(Indicator):
    """One pattern of communication between processes of this machine."""

    name = "communication"
    version = 2
    summary = "all-reduce, broadcast, point to point, parameter server, scaling of data-parallel training (Gloo, NCCL)"
    corresponds = "TF-gRPC-Bench (https://arxiv.org/abs/1804.01138), DeepBench all-reduce (https://github.com/baidu-research/DeepBench)"
    flops_formula = "0 (scaling: of the training step, all processes together)"
    bytes_formula = "the payload of one message, pull or reduction (as nccl-tests' algorithm bandwidth)"
    source = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; https://arxiv.org/abs/1804.01138"
    sample = (
        "seconds per operation (latency: half of a round trip; parameter server: one push and pull by every worker)"
    )
    parameters = {  # noqa: RUF012
        "pattern": Parameter("communication pattern", choices=tuple(PATTERNS)),
        "processes": Parameter("number of processes, including a parameter server", least=1, most=1024),
        "elements": Parameter("elements of the array to send; 0 for patterns with a payload", least=0, default=0),
        "payload": Parameter(
            "sizes of the ten buffers of a parameter server",
            choices=("none", "uniform", "random", "skewed"),
            default="none",
        ),
    }
    sets = {  # noqa: RUF012
        size: (
            *({"pattern": p, "processes": count, "elements": n} for p in ("all_reduce", "broadcast")),
            {"pattern": "latency", "processes": 2, "elements": 1},
            {"pattern": "bandwidth", "processes": 2, "elements": n},
            *(
                {"pattern": "parameter_server", "processes": count + 1, "payload": payload}
                for payload in ("uniform", "random", "skewed")
            ),
            *({"pattern": "scaling", "processes": k} for k in (1, count)),
        )
        for size, count, n in (("small", 2, 2**18), ("medium", 4, 2**22), ("large", 8, 2**26))
    }
    notes = (
        "The timed region is the calls of the operation, including the work of the device. Each rank times its own "
        "calls; the time of the slowest rank is used. Before a sample, outside the timed region, the ranks fill their "
        "buffers with new numbers and wait for each other at a barrier. After it, every rank checks all elements that "
        "it received (scaling: the weights).",
        "An all-reduce sums in place. The ranks' numbers cancel out, so that sums do not grow to infinity over the "
        "calls of a sample: the first call sums these numbers, the others sum zeros. Single calls before the "
        "measurement sum other numbers.",
        "Scaling: the timed step is a forward pass, a backward pass, an all-reduce of all gradients in one message, "
        "and an update; every rank has its own batch. Single steps before the measurement are compared with the mean "
        "gradient of all ranks; at the end, all ranks must have the same weights.",
        "If a rank fails, the others are stopped, and the error output of the first failed rank is reported.",
        "Version 1 also timed filling the array of an all-reduce and a broadcast of one number before each stretch, "
        "used the time of rank 0 only, and checked one element on rank 0 only.",
    )
    needs = ("communication",)
    dtypes = ("float32", "float16", "bfloat16")

    def complaints(self, parameters: Parameters) -> List[str]:
        messages = super().complaints(parameters)
        p = self.complete(parameters)
        if messages:
            return messages
        if p["pattern"] == "parameter_server" and p["payload"] == "none":
            return ["`payload` of a parameter server must be uniform, random or skewed"]
        if p["pattern"] in ("all_reduce", "broadcast", "latency", "bandwidth") and not p["elements"]:
            return ["`elements` of `{}` is missing".format(p["pattern"])]
        if p["pattern"] != "scaling" and p["processes"] < 2:
            return ["`processes` of `{}` must be at least 2".format(p["pattern"])]
        if p["pattern"] in ("latency", "bandwidth") and p["processes"] > 2:
            return ["`processes` of `{}` must be 2".format(p["pattern"])]
        return []

    def flops(self, parameters: Parameters) -> float:
        """Return the operations of the training step; the other patterns do not compute."""
        if parameters["pattern"] != "scaling":
            return 0.0
        model = MODELS["cnn"]
        return float(3 * parameters["processes"] * model.count(model.sets["small"])[0])

    def items(self, parameters: Parameters) -> float:
        if parameters["pattern"] != "scaling":
            return 0.0
        return float(parameters["processes"] * MODELS["cnn"].sets["small"]["batch"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        p = self.complete(parameters)
        if p["pattern"] == "parameter_server":
            return float((p["processes"] - 1) * 2 * sum(buffer_bytes(p["payload"])))
        if p["pattern"] == "scaling":
            return ITEM_BYTES[dtype] * MODELS["cnn"].count(MODELS["cnn"].sets["small"])[2]
        return float(ITEM_BYTES[dtype] * p["elements"])

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of two arrays in each process, and of the framework there and in the process that waits."""
        processes = parameters["processes"]
        return float(processes * 2 * self.bytes_moved(parameters, dtype) + (processes + 1) * 3e8)

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Start one process for each rank, and return the results of rank 0."""
        p = self.complete(parameters)
        processes = p["processes"]
        if backend.device == "cuda" and _devices() < processes:
            raise Unsupported("{} processes need one GPU each; there are {}".format(processes, _devices()))
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            request = {
                "parameters": p,
                "device": backend.device,
                "dtype": backend.dtype,
                "settings": backend.settings,
                "plan": plan._asdict(),
                "folder": folder,
            }
            path = os.path.join(folder, "request.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(request, file)
            command = [sys.executable, "-I", plan.archive, "rank", path]
            return _run_ranks(command, folder, processes)


def _devices() -> int:
    import torch

    return int(torch.cuda.device_count())


def _run_ranks(command: Sequence[str], folder: str, processes: int) -> Dict[str, Any]:
    """Start the ranks and return their result; if one fails, all others are stopped.

    The ranks stay in the process group of this process, so that they are killed together with it.
    """
    ranks: List[subprocess.Popen[bytes]] = []
    ends: queue.Queue[int] = queue.Queue()
    try:
        for number in range(processes):
            with open(_errors_path(folder, number), "wb") as errors:
                rank = subprocess.Popen([*command, str(number)], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
            ranks.append(rank)
            threading.Thread(target=_report_end, args=(rank, number, ends), daemon=True).start()
        for _ in ranks:
            number = ends.get()
            if ranks[number].returncode or _document(folder, number) is None:
                return _failure(folder, number, ranks[number].returncode, processes)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return _result([_document(folder, number) or {} for number in range(processes)])


def _report_end(rank: subprocess.Popen[bytes], number: int, ends: queue.Queue[int]) -> None:
    rank.wait()
    ends.put(number)


def _failure(folder: str, first: int, exit_status: int, processes: int) -> Dict[str, Any]:
    """Return the failure: a wrong result of any rank, otherwise the failure of the rank that ended first."""
    documents = [_document(folder, number) for number in (first, *range(processes))]
    wrong = [d for d in documents if d is not None and d["status"] == "wrong-result"]
    if wrong:
        return wrong[0]
    how = _ending(exit_status)
    message = "rank {} of {} processes {}; the others were stopped\n".format(first, processes, how)
    if documents[0] is not None:
        return {**documents[0], "failure": message + documents[0]["failure"]}
    with open(_errors_path(folder, first), "rb") as errors:
        tail = errors.read()[-_TAIL:].decode("utf-8", "replace")
    return {"status": "crashed", "failure": message + tail}


def _ending(exit_status: int) -> str:
    if exit_status >= 0:
        return "ended with exit status {}".format(exit_status)
    try:
        return "was killed by {}".format(signal.Signals(-exit_status).name)
    except ValueError:
        return "was killed by signal {}".format(-exit_status)


def _result(documents: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the result of rank 0, with the largest error of all ranks."""
    states = [document.pop("state") for document in documents]
    others = [number for number, state in enumerate(states) if state != states[0]]
    if others:
        message = "after the last step, rank {} has other weights than rank 0".format(others[0])
        return {"status": "wrong-result", "failure": message}
    return {**documents[0], "error": max(document["error"] for document in documents)}


def _errors_path(folder: str, rank: int) -> str:
    return os.path.join(folder, "stderr-{}".format(rank))


def _document(folder: str, rank: int) -> Optional[Dict[str, Any]]:
    """Return the document of a rank, or ``None`` if the rank wrote none."""
    try:
        with open(document_path(folder, rank), encoding="utf-8") as file:
            document: Dict[str, Any] = json.load(file)
            return document
    except FileNotFoundError:
        return None
