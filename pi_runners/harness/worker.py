"""Runs the indicators of one request in this interpreter and writes one JSON line for each."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from typing import Any, Dict

from pi_runners.backends import make_backend
from pi_runners.harness.contract import Backend, Unsupported
from pi_runners.harness.timing import measure
from pi_runners.indicators import INDICATORS


def main() -> int:
    """Read the request named by the first argument and append results to the file named by the second."""
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    with open(sys.argv[2], "a", encoding="utf-8") as output:
        for entry in request["indicators"]:
            document = run_indicator(request, entry)
            # One line an indicator, at once: a crash in the next one must not lose this one.
            output.write(json.dumps(document) + "\n")
            output.flush()
            os.fsync(output.fileno())
    return 0


def run_indicator(request: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    """Run one indicator; every way it can fail is a result."""
    document: Dict[str, Any] = {
        "indicator": entry["name"],
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": describe_process(),
    }
    try:
        backend = make_backend(request["backend"], request["device"], request["dtype"])
        document["environment"].update(backend.describe())
    except Unsupported as error:
        return dict(document, status="unsupported", failure=str(error))
    except BaseException:
        # BaseException: a framework may call `sys.exit` or raise what is no Exception while it is imported.
        return dict(document, status="import-error", failure=traceback.format_exc()[-2000:])
    try:
        document.update(_measure(backend, request, entry))
    except Unsupported as error:
        document.update(status="unsupported", failure=str(error))
    except BaseException as error:
        document.update(status=_failure_class(error), failure=traceback.format_exc()[-2000:])
    document["environment"]["load_after"] = load_average()
    return document


def _measure(backend: Backend, request: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    trial = INDICATORS[entry["name"]].prepare(backend, entry["parameters"])
    # The check comes first: it sees the first call, before a training step has moved its weights.
    error = trial.check(trial.run())
    if not error <= trial.tolerance:
        failure = "relative error {:.3g} is above the tolerance {:.3g}".format(error, trial.tolerance)
        finite = error if error == error and abs(error) < 1e300 else None
        return {"status": "wrong-result", "failure": failure, "error": finite, "tolerance": trial.tolerance}
    timing = measure(
        trial.run, backend.synchronise, request["samples"], request["min_seconds"], request["max_warmup_seconds"]
    )
    return {
        "status": "ok",
        # Eleven decimals are a hundredth of a nanosecond: more digits are the clock's noise.
        "samples": [round(seconds, 11) for seconds in timing.samples],
        "loops": timing.loops,
        "warmup_seconds": round(timing.warmup_seconds, 6),
        "steady": timing.steady,
        "error": error,
        "tolerance": trial.tolerance,
    }


def _failure_class(error: BaseException) -> str:
    text = "{} {}".format(type(error).__name__, error).lower()
    memory = ("memoryerror", "outofmemory", "out of memory", "resourceexhausted", "oom when allocating")
    return "out-of-memory" if any(word in text for word in memory) else "error"


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
