"""Runs the indicators of one request in this interpreter, and writes one JSON line for each."""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import time
import traceback
from typing import Any, Callable, Dict, Optional, TextIO

from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import Backend, SamplingPlan, Unsupported
from pi_runners.harness.origin import failure_class, is_ours
from pi_runners.harness.settings import allocator, apply_settings, huge_pages
from pi_runners.indicators import INDICATORS
from pi_runners.indicators.processes.communication_rank import run_rank
from pi_runners.indicators.processes.startup import start

_VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "TF_ENABLE_ONEDNN_OPTS", "TF_GPU_THREAD_MODE"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "KMP_AFFINITY", "KMP_BLOCKTIME", "TF_NUM_INTRAOP_THREADS"),
    *("TF_NUM_INTEROP_THREADS", "XLA_FLAGS", "TF_XLA_FLAGS"),
)
"""Environment variables that change speed."""


def main() -> int:
    """Run the part that the first argument names.

    ``measure`` measures the indicators of a request, ``benchmark`` the command of a request, and ``trial`` runs it
    once; ``startup`` and ``rank`` are child processes of indicators.
    """
    part, arguments = sys.argv[1], sys.argv[2:]
    if part == "startup":
        sys.stdout.write(json.dumps(describe_end(lambda: start(*arguments))) + "\n")
    elif part == "rank":
        run_rank(*arguments)
    else:
        measure_request(part, *arguments)
    return 0


def measure_request(part: str, request_path: str, output_path: str) -> None:
    """Read a request, and append the results to a file.

    Args:
        part: ``measure`` for one result of each indicator, ``benchmark`` and ``trial`` for one of the command.
        request_path: Path of the request.
        output_path: Path of the results, one JSON line each.
    """
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    if part in ("benchmark", "trial"):
        runs = [functools.partial(run_benchmark, request, is_trial=part == "trial")]
    else:
        runs = [functools.partial(run_indicator, request, entry) for entry in request["indicators"]]
    try:
        apply_settings(request.get("settings", {}), request.get("processors"))
    except Unsupported as error:
        runs = [functools.partial(dict, status="unsupported", failure=str(error)) for _ in runs]
    with open(output_path, "a", encoding="utf-8") as output:
        for number, run in enumerate(runs):
            _report(output, number, run)


def _report(output: TextIO, number: int, run: Callable[[], Dict[str, Any]]) -> None:
    """Append the result of a run, with its number and its times."""
    started = time.time(), time.perf_counter()
    document = run()
    document.update(number=number, started=started[0], seconds=time.perf_counter() - started[1])
    # A change of the system's time shows in this clock only; samples use the monotonic clock.
    document["clock_jump"] = round(time.time() - started[0] - document["seconds"], 3)
    # Flushed after each result, so that a crash in the next one does not lose it.
    output.write(json.dumps(document) + "\n")
    output.flush()
    os.fsync(output.fileno())


def run_benchmark(request: Dict[str, Any], *, is_trial: bool) -> Dict[str, Any]:
    """Run the command of a request, and return the result as JSON-ready values."""
    # Not at the top: what it imports of the standard library would be missing in the start-up time of a framework.
    from pi_runners.harness.program import measure_program, try_program

    environment = describe_process()
    document = describe_end(lambda: (try_program if is_trial else measure_program)(request))
    document["environment"] = {**environment, **document.get("environment", {}), "load_after": load_average()}
    return document


def run_indicator(request: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    """Run one indicator of a request, and return the result as JSON-ready values; a failure is a result, too."""
    document: Dict[str, Any] = {"environment": describe_process()}
    try:
        backend = make_backend(request["backend"], entry["device"], entry["dtype"], request["settings"])
        document["environment"].update(backend.describe())
    except Unsupported as error:
        return dict(document, status="unsupported", failure=str(error))
    except BaseException as error:
        # BaseException: while it is imported, a framework may call `sys.exit` or raise other exceptions.
        status = "harness-error" if is_ours(error) else "import-error"
        return dict(document, status=status, failure=traceback.format_exc()[-2000:])
    document.update(describe_end(lambda: _measure(backend, request, entry), request.get("instruments")))
    if document["status"] == "ok":
        try:
            document["environment"].update(backend.confirm_settings())
        except Unsupported as error:
            return {"environment": document["environment"], "status": "unsupported", "failure": str(error)}
    document["environment"]["load_after"] = load_average()
    return document


def describe_end(measure: Callable[[], Dict[str, Any]], instruments: Optional[str] = None) -> Dict[str, Any]:
    """Return the result of a measurement, or its failure; those of the libraries in ``instruments`` are ours."""
    try:
        return measure()
    except Unsupported as error:
        return {"status": "unsupported", "failure": str(error)}
    except BaseException as error:
        status = "harness-error" if is_ours(error, instruments) else failure_class(error)
        return {"status": status, "failure": traceback.format_exc()[-2000:]}


def _measure(backend: Backend, request: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    plan = SamplingPlan(
        samples=request["samples"],
        min_seconds=request["min_seconds"],
        max_warmup_seconds=request["max_warmup_seconds"],
        instruments=request.get("instruments"),
        archive=sys.argv[0],
    )
    document = INDICATORS[entry["name"]].measure(backend, entry["parameters"], plan)
    if "metrics" in document:
        document["metrics"] = {name: float("{:.6g}".format(value)) for name, value in document["metrics"].items()}
    return document


def load_average() -> Any:
    """Return the one-minute load average, or ``None`` if the system does not report it."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


@functools.lru_cache(maxsize=1)
def allowed_processors() -> Optional[int]:
    """Return the number of processors that this process may use.

    It is read once: an OpenMP library that binds its threads also binds the one that calls this function.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def describe_process() -> Dict[str, Any]:
    """Return facts outside the stack that may affect speed, by name."""
    facts: Dict[str, Any] = {
        "python": platform.python_version(),
        "python_build": " ".join(platform.python_build()),
        "python_compiler": platform.python_compiler(),
        "kernel": platform.release(),
        "clock_resolution_seconds": time.get_clock_info("perf_counter").resolution,
        "load_before": load_average(),
        "cpus_allowed": allowed_processors(),
        "allocator": allocator(),
        "transparent_huge_pages": huge_pages(),
    }
    try:
        with open("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") as file:
            facts["cpu_governor"] = file.read().strip()
    except OSError:
        facts["cpu_governor"] = None
    for name in _VARIABLES:
        if name in os.environ:
            facts[name] = os.environ[name]
    return facts
