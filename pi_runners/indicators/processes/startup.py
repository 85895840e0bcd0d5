"""Time from the import of a framework to its first result, and its memory after the import.

A fresh process runs these steps:

1. import the framework's modules (timed),
2. import this program's backend module, which is read from an archive and compiled each time (not timed),
3. create the backend and an array of one element on the device, which initialises the device (timed),
4. make the inputs (not timed),
5. compile the function, if the framework compiles, and call it for the first time (timed),
6. call it again (timed, but not part of the sample),
7. check the first result (not timed).

A sample is the sum of 1, 3 and 5. Modules of the standard library that the harness has already imported are not
included. The model file that ONNX Runtime loads is made in step 5 and is included.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import time
from operator import mul
from typing import Any, Dict, Iterator, List

from pi_runners.harness.contract import Backend, Parameter, Parameters, SamplingPlan
from pi_runners.harness.random_inputs import random_bytes
from pi_runners.harness.timing import rounded
from pi_runners.indicators.checks.exact import field_bytes, pack, unpack, whole_numbers
from pi_runners.indicators.checks.results import EVERY, Result, checker, difference, pick
from pi_runners.indicators.indicator import PROCESS_BYTES, ROUND_OFF, Indicator, refuse_error

_WORK = 2**29
"""Maximum number of products for the reference, about one second; within it, as many rows as possible are compared."""
_TIMED = ("import_seconds", "device_seconds", "first_call_seconds")
"""The parts of a sample."""


class Startup(Indicator):
    """Import, initialisation of the device and first call of a small function, in a fresh process."""

    name = "startup"
    needs = ("matmul", "tanh")
    version = 2
    summary = "import of the framework plus the first call of a small function (tracing, compilation), fresh processes"
    corresponds = "python -X importtime, and the first step that tf_cnn_benchmarks leaves out as warm-up"
    flops_formula = "0: the indicator measures time only"
    bytes_formula = "0"
    source = "counted from the definition"
    sample = "seconds of the import, of the first array on the device, and of the first call, files in the page cache"
    parameters = {"n": Parameter("rows and columns of the matrices that the function multiplies", most=65536)}  # noqa: RUF012
    sets = {size: ({"n": n},) for size, n in (("small", 64), ("medium", 512), ("large", 4096))}  # noqa: RUF012

    dtypes = ("float32",)
    notes = (
        "A sample is the sum of three times: the import of the framework, creating an array of one element on the "
        "device (which initialises the device), and the first call including compilation. Each is also a metric. The "
        "import of this program's modules, making the inputs and checking the first result are not timed.",
        "Version 1 also timed making the inputs and importing this program's backend, and did not check the result.",
    )

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the memory of three matrices, and of the framework in this and in the measured process."""
        return 2 * PROCESS_BYTES + float(3 * 8 * parameters["n"] ** 2)

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Run two processes; the first one only warms the page cache."""
        request = {
            "backend": backend.name,
            "device": backend.device,
            "dtype": backend.dtype,
            "settings": backend.settings,
            "n": parameters["n"],
            "imports": backend.imports or (backend.name,),
        }
        command = [sys.executable, "-I", plan.archive, "startup", json.dumps(request)]
        for _ in range(2):
            process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if process.returncode:
                tail = process.stderr.decode("utf-8", "replace")[-2000:]
                return {"status": "crashed", "failure": "exit status {}: {}".format(process.returncode, tail)}
            document: Dict[str, Any] = json.loads(process.stdout.decode().splitlines()[-1])
            if "status" in document:
                return document
            if wrong := refuse_error(document["error"], document["tolerance"]):
                return wrong
        samples = rounded([sum(document["metrics"][part] for part in _TIMED)])
        return {"status": "ok", "samples": samples, "loops": 1, "steady": True, **document}


def start(text: str) -> Dict[str, Any]:
    """Run the steps of the module's description in this fresh process, and return the times.

    Args:
        text: The request as JSON.
    """
    request = json.loads(text)
    from pi_runners.frameworks import make_backend
    from pi_runners.harness.settings import apply_settings

    name, n = request["backend"], request["n"]
    # The process has the affinity of the one that started it.
    apply_settings(request["settings"])
    started = time.perf_counter()
    for module in request["imports"]:
        importlib.import_module(module)
    import_seconds = time.perf_counter() - started
    memory_bytes = resident_bytes()
    importlib.import_module("pi_runners.frameworks.{}.operations".format(name))
    started = time.perf_counter()
    backend = make_backend(name, request["device"], request["dtype"], request["settings"])
    backend.synchronise(backend.array(b"\x00", (1,)))
    device_seconds = time.perf_counter() - started
    raw = [random_bytes(81 + i, n * n) for i in range(2)]
    # This scale keeps the products in the range where tanh is not flat.
    matrices = [backend.array(part, (n, n), n**-0.25) for part in raw]
    backend.synchronise(matrices[-1])
    started = time.perf_counter()
    run = backend.compile(lambda b, x, y: b.tanh(b.matmul(x, y)), matrices)
    result = run()
    backend.synchronise(result)
    first_call_seconds = time.perf_counter() - started
    started = time.perf_counter()
    backend.synchronise(run())
    second_call_seconds = time.perf_counter() - started
    return {
        "error": checker(backend, (n, n), lambda elements: _errors(elements, raw, backend.dtype))(result),
        "tolerance": ROUND_OFF[backend.precision] * 8,
        "metrics": {
            "import_seconds": import_seconds,
            "device_seconds": device_seconds,
            "first_call_seconds": first_call_seconds,
            "second_call_seconds": second_call_seconds,
            "memory_after_import_bytes": memory_bytes,
        },
    }


def _errors(elements: Result, raw: List[bytes], dtype: str) -> Iterator[float]:
    """Yield the relative errors of rows; infinity if an element of the others is not finite."""
    yield elements.error_of_others(elements.whole)
    numbers, n = whole_numbers(dtype), math.isqrt(len(raw[0]))
    width = field_bytes(n * 256**2 * numbers.step**2)
    columns = [pack(raw[1][k * n : (k + 1) * n], width, numbers) for k in range(n)]
    # Each factor is scaled by the fourth root of 1/n; errors are relative to the root of a sum of n squares.
    unit = numbers.denominator**2 * n**0.5
    for i in pick(n, max(1, min(EVERY // n, _WORK // n**2))):
        factors = numbers.row(raw[0][i * n : (i + 1) * n])
        expected = [math.tanh(x / unit) for x in unpack(sum(map(mul, factors, columns)), n, width)]
        yield difference(elements.row((i,)), expected, numbers.spread**2)


def resident_bytes() -> float:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0.0
    import resource

    return float(pages * resource.getpagesize())
