"""How long a framework takes until its first result, and the memory it holds then."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, Dict, List

from pi_runners.harness.contract import Backend, Parameters, Plan, random_bytes
from pi_runners.harness.timing import rounded
from pi_runners.indicators.indicator import Indicator, Parameter

_PROCESSES = 1
"""Measured processes a run; the next rounds start more."""


class Startup(Indicator):
    """Import, then the first call of a small function, in fresh processes."""

    name = "startup"
    summary = "import of the framework plus the first call of a small function (tracing, compilation), fresh processes"
    corresponds = "python -X importtime, and the first step that tf_cnn_benchmarks leaves out as warm-up"
    flops_formula = "0: how long it takes is what is measured"
    bytes_formula = "0"
    source = "counted from the definition"
    sample = "seconds from the start of the import to the first result, files in the page cache"
    parameters = {"n": Parameter("rows and columns of the matrices that the function multiplies", most=65536)}  # noqa: RUF012
    sets = {size: ({"n": n},) for size, n in (("small", 64), ("medium", 512), ("large", 4096))}  # noqa: RUF012

    dtypes = ("float32",)

    def flops(self, parameters: Parameters) -> float:
        """Not what is measured."""
        return 0.0

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Not what is measured."""
        return 0.0

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Three small matrices."""
        return float(3 * 8 * parameters["n"] ** 2)

    def measure(self, backend: Backend, parameters: Parameters, plan: Plan) -> Dict[str, Any]:
        """Start processes one after the other; the first only warms the page cache."""
        request = {
            "backend": backend.name,
            "device": backend.device,
            "dtype": backend.dtype,
            "settings": backend.settings,
            "n": parameters["n"],
        }
        found: List[Dict[str, float]] = []
        command = [sys.executable, "-I", plan.archive, "startup", json.dumps(request)]
        for _ in range(min(plan.samples, _PROCESSES) + 1):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if done.returncode:
                tail = done.stderr.decode("utf-8", "replace")[-2000:]
                return {"status": "crashed", "failure": "exit status {}: {}".format(done.returncode, tail)}
            found.append(json.loads(done.stdout.decode().splitlines()[-1]))
        kept = found[1:]
        middle = {name: sorted(f[name] for f in kept)[len(kept) // 2] for name in kept[0]}
        return {
            "status": "ok",
            "samples": rounded([f["import_seconds"] + f["first_call_seconds"] for f in kept]),
            "loops": 1,
            "steady": True,
            "metrics": middle,
        }


def start(text: str) -> Dict[str, float]:
    """Import, call twice, and return what was measured; runs in a fresh process."""
    request = json.loads(text)
    from pi_runners.harness.settings import apply_settings

    apply_settings(request["backend"], request["settings"])
    started = time.perf_counter()
    from pi_runners.backends import make_backend

    backend = make_backend(request["backend"], request["device"], request["dtype"], request["settings"])
    imported = time.perf_counter()
    held = resident_bytes()
    n = request["n"]
    matrices = [backend.array(random_bytes(81 + i, n * n), (n, n)) for i in range(2)]
    run = backend.compile(lambda b, x, y: b.tanh(b.matmul(x, y)), matrices)
    backend.synchronise(run())
    called = time.perf_counter()
    backend.synchronise(run())
    return {
        "import_seconds": imported - started,
        "first_call_seconds": called - imported,
        "second_call_seconds": time.perf_counter() - called,
        "memory_after_import_bytes": held,
    }


def resident_bytes() -> float:
    """Return the main memory that this process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return 0.0
    import resource

    return float(pages * resource.getpagesize())
