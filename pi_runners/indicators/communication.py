"""Communication between processes: collectives, point to point, a parameter server, scaling of data-parallel training.

PyTorch's distributed package: Gloo between processes on the CPU, NCCL between GPUs, one process each.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List

from pi_runners.harness.contract import LEARNING_RATE, Backend, Parameters, Plan, Unsupported
from pi_runners.harness.timing import measure, rounded
from pi_runners.indicators.indicator import ITEM_BYTES, Indicator, Parameter
from pi_runners.indicators.models import MODELS

_BUFFERS = 10
_SMALL, _MEDIUM, _LARGE = 10, 10 * 1024, 1024 * 1024
"""Bytes of a payload's small, medium and large buffers: three kinds as in TF-gRPC-Bench, the sizes are ours."""
_PATTERNS = ("all_reduce", "broadcast", "latency", "bandwidth", "parameter_server", "scaling")


class Communication(Indicator):
    """One pattern of communication between processes of this machine."""

    name = "communication"
    summary = "all-reduce, broadcast, point to point, parameter server, scaling of data-parallel training (Gloo, NCCL)"
    corresponds = "TF-gRPC-Bench (https://arxiv.org/abs/1804.01138), DeepBench all-reduce (https://github.com/baidu-research/DeepBench)"
    flops_formula = "0 (scaling: of the training step, all processes together)"
    bytes_formula = "the payload of one message, pull or reduction (as nccl-tests' algorithm bandwidth)"
    source = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; https://arxiv.org/abs/1804.01138"
    sample = (
        "seconds per operation (latency: half of a round trip; parameter server: one push and pull by every worker)"
    )
    parameters = {  # noqa: RUF012
        "pattern": Parameter("what is done", choices=_PATTERNS),
        "processes": Parameter("processes; a parameter server is one of them", least=1, most=1024),
        "elements": Parameter("elements of the array that is sent; 0 where a payload says it", least=0, default=0),
        "payload": Parameter(
            "sizes of the ten buffers that a parameter server sends",
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
    backends = ("torch",)
    dtypes = ("float32", "float16", "bfloat16")

    def complaints(self, parameters: Parameters) -> List[str]:
        """Also refuse a pattern that lacks what it sends."""
        found = super().complaints(parameters)
        p = self.complete(parameters)
        if found:
            return found
        if p["pattern"] == "parameter_server" and p["payload"] == "none":
            return ["`payload` of a parameter server must be uniform, random or skewed"]
        if p["pattern"] in ("all_reduce", "broadcast", "latency", "bandwidth") and not p["elements"]:
            return ["`elements` of `{}` is not given".format(p["pattern"])]
        if p["pattern"] != "scaling" and p["processes"] < 2:
            return ["`processes` of `{}` must be 2 at least".format(p["pattern"])]
        return []

    def flops(self, parameters: Parameters) -> float:
        """Only training computes."""
        if parameters["pattern"] != "scaling":
            return 0.0
        model = MODELS["cnn"]
        return float(3 * parameters["processes"] * model.count(model.sets["small"])[0])

    def items(self, parameters: Parameters) -> float:
        """Images of a step, of all processes."""
        if parameters["pattern"] != "scaling":
            return 0.0
        return float(parameters["processes"] * MODELS["cnn"].sets["small"]["batch"])

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """The payload."""
        p = self.complete(parameters)
        if p["pattern"] == "parameter_server":
            return float((p["processes"] - 1) * 2 * sum(buffer_bytes(p["payload"])))
        if p["pattern"] == "scaling":
            return ITEM_BYTES[dtype] * MODELS["cnn"].count(MODELS["cnn"].sets["small"])[2]
        return float(ITEM_BYTES[dtype] * p["elements"])

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Two arrays in every process, and the framework itself."""
        return float(parameters["processes"] * (2 * self.bytes_moved(parameters, dtype) + 3e8))

    def measure(self, backend: Backend, parameters: Parameters, plan: Plan) -> Dict[str, Any]:
        """Start the processes; the first one measures."""
        p = self.complete(parameters)
        processes = p["processes"]
        if backend.device == "cuda" and _devices() < processes:
            raise Unsupported("{} processes need as many GPUs; there are {}".format(processes, _devices()))
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
            with open(os.path.join(folder, "errors"), "w+b") as errors:
                ranks = [subprocess.Popen(command + [str(r)], stdout=errors, stderr=errors) for r in range(processes)]
                ends = [rank.wait() for rank in ranks]
                errors.seek(0)
                tail = errors.read().decode("utf-8", "replace")[-2000:]
            if any(ends):
                return {"status": "crashed", "failure": "exit statuses {}: {}".format(ends, tail)}
            with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
                result: Dict[str, Any] = json.load(file)
                return result


def _devices() -> int:
    import torch

    return int(torch.cuda.device_count())


def buffer_bytes(payload: str) -> List[int]:
    """Return the sizes of the ten buffers: equal thirds of each kind in turn, drawn, or mostly large ones."""
    if payload == "skewed":
        return [_LARGE] * 6 + [_MEDIUM] * 3 + [_SMALL]
    if payload == "random":
        generator = random.Random(0)
        return [generator.choice((_SMALL, _MEDIUM, _LARGE)) for _ in range(_BUFFERS)]
    return [(_SMALL, _MEDIUM, _LARGE)[i % 3] for i in range(_BUFFERS)]


def take_part(path: str, rank_text: str) -> None:
    """Be one of the processes of a measurement."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    from pi_runners.harness.settings import apply_settings

    apply_settings("torch", request["settings"])
    import torch
    import torch.distributed as dist

    rank, p, device = int(rank_text), request["parameters"], request["device"]
    # Gloo may look for a network; the processes of this machine meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        # Together the processes use the machine once.
        torch.set_num_threads(max(1, torch.get_num_threads() // p["processes"]))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method="file://" + os.path.join(request["folder"], "meeting"),
        rank=rank,
        world_size=p["processes"],
    )
    part = _Part(torch, dist, rank, request)
    plan = Plan(**request["plan"])
    calls = getattr(part, p["pattern"])()
    if device == "cuda":
        torch.cuda.synchronize()
    document = _time_together(part, calls, plan)
    if rank == 0:
        with open(os.path.join(request["folder"], "result.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
    dist.destroy_process_group()


def _time_together(part: Any, call: Callable[[], Any], plan: Plan) -> Dict[str, Any]:
    """Let the first process time a call, and the others join in exactly as often.

    Before every stretch of calls the first process tells the others how many follow; none ends it.
    """
    if part.rank:
        while True:
            count = part.agree(0)
            if not count:
                return {}
            for _ in range(count):
                call()
    error = part.check()
    if not error <= part.tolerance:
        part.agree(0)
        return {"status": "wrong-result", "failure": "relative error {:.3g}".format(error), "error": error}

    def stretch() -> Any:
        result = None
        for _ in range(part.stretch):
            result = call()
        return result

    def run() -> Any:
        part.agree(part.stretch)
        return stretch()

    timing = measure(run, part.synchronise, plan)
    part.agree(0)
    each = part.stretch * part.halves
    document = timing.document()
    document["samples"] = rounded([seconds / each for seconds in timing.samples])
    return {**document, "error": error, "tolerance": part.tolerance}


class _Part:
    """What one process does in each pattern."""

    stretch = 20
    tolerance = 1e-3

    def __init__(self, torch: Any, dist: Any, rank: int, request: Dict[str, Any]) -> None:
        self._torch, self._dist = torch, dist
        self.rank, self._size = rank, request["parameters"]["processes"]
        self._p, self._request = request["parameters"], request
        self._device, self._dtype = request["device"], getattr(torch, request["dtype"])
        self.halves = 2 if self._p["pattern"] == "latency" else 1
        self._array = torch.full(
            (max(1, self._p["elements"]),), float(rank + 1), device=self._device, dtype=self._dtype
        )
        self._word = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._call: Callable[[], Any] = lambda: None

    def synchronise(self, result: Any) -> None:
        """Wait for the GPU; Gloo has sent and received when it returns."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def agree(self, count: int) -> int:
        """Tell the others, or be told, how many calls follow."""
        self._word.fill_(count)
        self._dist.broadcast(self._word, src=0)
        return int(self._word.item())

    def check(self) -> float:
        """Do it once and compare; the others are asked to join in."""
        self.agree(1)
        expected = self._expected()
        found = float(self._call())
        return abs(found - expected) / max(1.0, abs(expected))

    def _expected(self) -> float:
        pattern = self._p["pattern"]
        if pattern == "all_reduce":
            return float(self._size * (self._size + 1) / 2)
        return 0.0 if pattern == "scaling" else 1.0

    def all_reduce(self) -> Callable[[], Any]:
        """Sum over all processes, of fresh numbers every time."""

        def call() -> Any:
            self._array.fill_(float(self.rank + 1))
            self._dist.all_reduce(self._array)
            return self._array[-1]

        self._call = call
        return call

    def broadcast(self) -> Callable[[], Any]:
        """From the first process to all."""

        def call() -> Any:
            self._dist.broadcast(self._array, src=0)
            return self._array[-1]

        self._call = call
        return call

    def latency(self) -> Callable[[], Any]:
        """There and back."""

        def call() -> Any:
            if self.rank == 0:
                self._dist.send(self._array, 1)
                self._dist.recv(self._array, 1)
            else:
                self._dist.recv(self._array, 0)
                self._dist.send(self._array, 0)
            return self._array[-1]

        self._call = call
        return call

    def bandwidth(self) -> Callable[[], Any]:
        """There; one byte back at the end, so that the sender knows."""
        self.stretch = 5
        answer = self._torch.ones(1, device=self._device, dtype=self._dtype)

        def call() -> Any:
            if self.rank == 0:
                self._dist.send(self._array, 1)
                self._dist.recv(answer, 1)
            else:
                self._dist.recv(self._array, 0)
                self._dist.send(answer, 0)
            return answer[-1]

        self._call = call
        return call

    def parameter_server(self) -> Callable[[], Any]:
        """Every worker pushes ten buffers to the server, which answers with ten of the same sizes."""
        self.stretch = 2
        sizes = buffer_bytes(self._p["payload"])
        buffers = [self._torch.ones(size, dtype=self._torch.uint8, device=self._device) for size in sizes]

        def call() -> Any:
            workers = range(1, self._size) if self.rank == 0 else [0]
            first, second = (self._dist.recv, self._dist.send) if self.rank == 0 else (self._dist.send, self._dist.recv)
            for step in (first, second):
                for other in workers:
                    for buffer in buffers:
                        step(buffer, other)
            return buffers[-1][-1]

        self._call = call
        return call

    def scaling(self) -> Callable[[], Any]:
        """One data-parallel step: gradients on the own batch, their mean over all, one update."""
        self.stretch = 1
        from pi_runners.backends.torch import TorchBackend

        torch, dist = self._torch, self._dist
        model = MODELS["cnn"]
        p = model.sets["small"]
        backend = TorchBackend(self._device, self._request["dtype"], self._request["settings"])
        weights = [w.requires_grad_() for w in model.make_weights(backend, p)]
        inputs = model.inputs(backend, p)
        labels = backend.integers(model.labels(p), (model.rows(p),))

        def call() -> Any:
            loss = backend.cross_entropy(model.forward(backend, weights, inputs, p, True), labels)
            gradients = torch.autograd.grad(loss, weights)
            # One message for all gradients, as data-parallel frameworks bundle them.
            together = torch.cat([g.reshape(-1) for g in gradients])
            dist.all_reduce(together)
            together /= self._size
            own = torch.cat([g.reshape(-1) for g in gradients])
            place = 0
            with torch.no_grad():
                for weight in weights:
                    count = weight.numel()
                    weight.sub_(together[place : place + count].reshape(weight.shape), alpha=LEARNING_RATE)
                    place += count
            # Every process has the same batch here, so that the mean is what each of them has.
            return (together - own).norm() / own.norm()

        self._call = call
        return call
