"""How long a framework takes until its first result, and the memory it holds then.

In a fresh process, one after the other:

1. the framework's own modules are imported (timed),
2. our backend module is imported, which is read from an archive and compiled anew each time (not timed),
3. the backend is made and puts an array of one element on the device, which starts the device (timed),
4. the inputs are made (not timed),
5. the function is compiled where the framework compiles, and called for the first time (timed),
6. it is called again (timed, not part of the sample),
7. the first result is checked (not timed).

A sample is the sum of 1, 3 and 5. Modules of the standard library that the harness imported before are not counted;
the model file that ONNX Runtime loads is made by our backend in 5, and counts.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import time
from operator import mul
from typing import Any, Dict, List

from pi_runners.harness.contract import Backend, Parameters, SamplingPlan, random_bytes
from pi_runners.harness.timing import rounded
from pi_runners.indicators.checks import EVERY, Result, difference, pick, worst_error
from pi_runners.indicators.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.indicator import PROCESS_BYTES, ROUND_OFF, Indicator, Parameter, refuse_error

_PROCESSES = 1
"""Measured processes a run; the next rounds start more."""
_MODULES = {
    "jax": ("jax", "jax.numpy"),
    "numpy": ("numpy",),
    "onnxruntime": ("onnxruntime",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
"""What a user of each framework imports."""
_WORK = 2**29
"""Products of the reference, up to which all rows of the first result are compared: a second."""
_TIMED = ("import_seconds", "device_seconds", "first_call_seconds")
"""The parts of a sample."""


class Startup(Indicator):
    """Import, start of the device, first call of a small function, in fresh processes."""

    name = "startup"
    version = 2
    summary = "import of the framework plus the first call of a small function (tracing, compilation), fresh processes"
    corresponds = "python -X importtime, and the first step that tf_cnn_benchmarks leaves out as warm-up"
    flops_formula = "0: how long it takes is what is measured"
    bytes_formula = "0"
    source = "counted from the definition"
    sample = "seconds of the import, of the first array on the device, and of the first call, files in the page cache"
    parameters = {"n": Parameter("rows and columns of the matrices that the function multiplies", most=65536)}  # noqa: RUF012
    sets = {size: ({"n": n},) for size, n in (("small", 64), ("medium", 512), ("large", 4096))}  # noqa: RUF012

    dtypes = ("float32",)
    notes = (
        "Timed are the import of the framework, making an array of one element on the device (it starts the device), "
        "and the first call with what compiles it; a sample is their sum, and each is a metric of its own. Not timed "
        "are the import of the program's own modules, making the inputs and checking the first result.",
        "Up to version 1, making the inputs and importing the program's own backend counted as well, and no result "
        "was checked.",
    )

    def flops(self, parameters: Parameters) -> float:
        """Not what is measured."""
        return 0.0

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Not what is measured."""
        return 0.0

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Three small matrices, and two processes with the framework: this one waits for the measured one."""
        return 2 * PROCESS_BYTES + float(3 * 8 * parameters["n"] ** 2)

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Start processes one after the other; the first only warms the page cache."""
        request = {
            "backend": backend.name,
            "device": backend.device,
            "dtype": backend.dtype,
            "settings": backend.settings,
            "n": parameters["n"],
        }
        found: List[Dict[str, Any]] = []
        command = [sys.executable, "-I", plan.archive, "startup", json.dumps(request)]
        for _ in range(min(plan.samples, _PROCESSES) + 1):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if done.returncode:
                tail = done.stderr.decode("utf-8", "replace")[-2000:]
                return {"status": "crashed", "failure": "exit status {}: {}".format(done.returncode, tail)}
            document = json.loads(done.stdout.decode().splitlines()[-1])
            if "status" in document:
                return dict(document)
            if wrong := refuse_error(document["error"], document["tolerance"]):
                return wrong
            found.append(document)
        kept = found[1:]
        metrics = [document["metrics"] for document in kept]
        return {
            "status": "ok",
            "samples": rounded([sum(m[part] for part in _TIMED) for m in metrics]),
            "loops": 1,
            "steady": True,
            "error": max(document["error"] for document in kept),
            "tolerance": kept[0]["tolerance"],
            "metrics": {name: sorted(m[name] for m in metrics)[len(metrics) // 2] for name in metrics[0]},
        }


def start(text: str) -> Dict[str, Any]:
    """Import, call twice, and return what was measured; runs in a fresh process."""
    request = json.loads(text)
    from pi_runners.backends import make_backend
    from pi_runners.harness.settings import apply_settings

    name, n = request["backend"], request["n"]
    apply_settings(name, request["settings"])
    clock = _Stopwatch()
    for module in _MODULES[name]:
        importlib.import_module(module)
    import_seconds = clock.stop()
    held = resident_bytes()
    importlib.import_module("pi_runners.backends." + name)
    clock.start()
    backend = make_backend(name, request["device"], request["dtype"], request["settings"])
    backend.synchronise(backend.array(b"\x00", (1,)))
    device_seconds = clock.stop()
    raw = [random_bytes(81 + i, n * n) for i in range(2)]
    # So scaled, the products stay where tanh is not yet flat.
    matrices = [backend.array(part, (n, n), n**-0.25) for part in raw]
    backend.synchronise(matrices[-1])
    clock.start()
    run = backend.compile(lambda b, x, y: b.tanh(b.matmul(x, y)), matrices)
    result = run()
    backend.synchronise(result)
    first_call_seconds = clock.stop()
    clock.start()
    backend.synchronise(run())
    second_call_seconds = clock.stop()
    return {
        "error": _error(backend, result, raw, n),
        "tolerance": ROUND_OFF[backend.precision] * 8,
        "metrics": {
            "import_seconds": import_seconds,
            "device_seconds": device_seconds,
            "first_call_seconds": first_call_seconds,
            "second_call_seconds": second_call_seconds,
            "memory_after_import_bytes": held,
        },
    }


class _Stopwatch:
    """Takes the time between a start and a stop."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin."""
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._started


def _error(backend: Backend, result: Any, raw: List[bytes], n: int) -> float:
    """Return the largest relative error; infinity where the shape is wrong or an element is not finite."""
    made = Result(backend, result, (n, n))
    if not made.sound or not (made.whole or made.finite()):
        return math.inf
    numbers = whole_numbers(backend.dtype)
    width = field_bytes(n * 256**2 * numbers.step**2)
    columns = [pack(raw[1][k * n : (k + 1) * n], width, numbers) for k in range(n)]
    # Both factors are scaled by the fourth root, and the scale is the root of a sum of n squares, so scaled.
    unit, errors = numbers.denominator**2 * n**0.5, []
    for i in pick(n, max(1, min(EVERY // n, _WORK // n**2))):
        factors = numbers.row(raw[0][i * n : (i + 1) * n])
        expected = [math.tanh(x / unit) for x in unpack(sum(map(mul, factors, columns)), n, width)]
        errors.append(difference(made.row((i,)), expected, numbers.spread**2))
    return worst_error(errors)


def resident_bytes() -> float:
    """Return the main memory that this process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0.0
    import resource

    return float(pages * resource.getpagesize())
