"""Runs the indicators of one request in this interpreter and writes one JSON line for each."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from typing import Any, Callable, Dict, Optional

from pi_runners.backends import make_backend
from pi_runners.harness.contract import Backend, SamplingPlan, Unsupported
from pi_runners.harness.origin import is_ours
from pi_runners.harness.settings import apply_settings
from pi_runners.indicators import INDICATORS


def main() -> int:
    """Do what the first argument names: ``measure`` a request, or play a part that an indicator asked for."""
    part, arguments = sys.argv[1], sys.argv[2:]
    if part == "startup":
        from pi_runners.indicators.startup import start

        sys.stdout.write(json.dumps(describe_end(lambda: start(*arguments))) + "\n")
    elif part == "rank":
        from pi_runners.indicators.communication_rank import take_part

        take_part(*arguments)
    else:
        measure_request(*arguments)
    return 0


def measure_request(request_path: str, output_path: str) -> None:
    """Read a request and append one result for each of its indicators."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        apply_settings(request["backend"], request["settings"])
        refused = None
    except Unsupported as error:
        refused = str(error)
    with open(output_path, "a", encoding="utf-8") as output:
        for number, entry in enumerate(request["indicators"]):
            started = time.time(), time.perf_counter()
            if refused is not None:
                document: Dict[str, Any] = {"status": "unsupported", "failure": refused}
            else:
                document = run_indicator(request, entry)
            document.update(number=number, started=started[0], seconds=time.perf_counter() - started[1])
            # What sets the machine's time moves this clock and not the other; samples come from the other.
            document["clock_jump"] = round(time.time() - started[0] - document["seconds"], 3)
            # One line an indicator, at once: a crash in the next one must not lose this one.
            output.write(json.dumps(document) + "\n")
            output.flush()
            os.fsync(output.fileno())


def run_indicator(request: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    """Run one indicator; every way it can fail is a result."""
    document: Dict[str, Any] = {"environment": describe_process()}
    try:
        backend = make_backend(request["backend"], entry["device"], entry["dtype"], request["settings"])
        document["environment"].update(backend.describe())
    except Unsupported as error:
        return dict(document, status="unsupported", failure=str(error))
    except BaseException as error:
        # BaseException: a framework may call `sys.exit` or raise what is no Exception while it is imported.
        status = "harness-error" if is_ours(error) else "import-error"
        return dict(document, status=status, failure=traceback.format_exc()[-2000:])
    document.update(describe_end(lambda: _measure(backend, request, entry), request.get("instruments")))
    document["environment"]["load_after"] = load_average()
    return document


def describe_end(measure: Callable[[], Dict[str, Any]], instruments: Optional[str] = None) -> Dict[str, Any]:
    """Return what a measurement returns, or how it failed: the framework's failure, or ours."""
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
    measured = INDICATORS[entry["name"]].measure(backend, entry["parameters"], plan)
    if "metrics" in measured:
        measured["metrics"] = {name: float("{:.6g}".format(value)) for name, value in measured["metrics"].items()}
    return measured


def failure_class(error: BaseException) -> str:
    """Return the status that a framework's exception stands for; many say in words what they have no kernel for."""
    text = "{} {}".format(type(error).__name__, error).lower()
    memory = ("memoryerror", "outofmemory", "out of memory", "resourceexhausted", "oom when allocating")
    absent = (
        "notimplemented",
        "not implemented",
        "unimplemented",
        "registered kernels",
        "allowed values",
        "does not support",
    )
    if any(word in text for word in memory):
        return "out-of-memory"
    return "unsupported" if any(word in text for word in absent) else "error"


def load_average() -> Any:
    """Return the machine's one-minute load average, or none where the system has none."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def describe_process() -> Dict[str, Any]:
    """Return what may change speed outside the stack."""
    described: Dict[str, Any] = {
        "python": platform.python_version(),
        "python_build": " ".join(platform.python_build()),
        "python_compiler": platform.python_compiler(),
        "kernel": platform.release(),
        "clock_resolution_seconds": time.get_clock_info("perf_counter").resolution,
        "load_before": load_average(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    try:
        with open("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") as file:
            described["cpu_governor"] = file.read().strip()
    except OSError:
        described["cpu_governor"] = None
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS"):
        if name in os.environ:
            described[name] = os.environ[name]
    return described
