"""The four scenarios of MLPerf Inference, with MLCommons' LoadGen if it is installed, otherwise with a simple loop.

The simple loop issues and times queries in Python. Unlike LoadGen, it has no early-stopping estimate of percentiles, no
query sampling and no log of every query, and Server queries are not issued independently of the system's state.
"""

from __future__ import annotations

import math
import os
import queue
import random
import re
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional

SCENARIOS = ("SingleStream", "MultiStream", "Server", "Offline")
STREAMS = 8
"""Samples of a MultiStream query, as in MLPerf Inference."""
_PERCENTILE = {"SingleStream": 0.90, "MultiStream": 0.99, "Server": 0.99}
_SEARCH_STEPS = 6
_QUERIES = 128
"""Minimum number of queries of a test. MLPerf requires far more: high percentiles of short tests are less precise."""

Serve = Callable[[int], None]
"""Function that processes a number of samples, and returns when they are done."""


def run_scenario(
    scenario: str, serve: Serve, seconds: float, bound: float, batch: int, instruments: Optional[str]
) -> Dict[str, float]:
    """Run one test of a scenario.

    Args:
        scenario: One of :data:`SCENARIOS`.
        serve: The system under test.
        seconds: Minimum duration.
        bound: Maximum latency of 99 % of the queries in the Server scenario, in seconds.
        batch: Maximum batch of ``serve`` in the Offline scenario.
        instruments: Directory of measuring libraries, which may contain LoadGen.

    Returns:
        ``seconds``, the result (smaller is better): the 90th (SingleStream) or 99th (MultiStream) percentile of the
        latency, or seconds per sample (Offline, and Server at the highest rate within the bound). Further metrics, and
        ``loadgen``: 1 if MLCommons' LoadGen was used.
    """
    library = _library(instruments)
    runner = _LoadGen(library, serve, batch) if library is not None else _SimpleLoop(serve, batch)
    figures = _highest_rate(runner, seconds, bound) if scenario == "Server" else runner.run(scenario, seconds, 0.0)
    return {**figures, "loadgen": float(library is not None)}


def _highest_rate(runner: Any, seconds: float, bound: float) -> Dict[str, float]:
    """Find the highest arrival rate with 99 % of the latencies within the bound, by bisection of its logarithm."""
    one = runner.run("SingleStream", seconds, 0.0)["p50_seconds"]
    low, high = 0.0, math.log(1.0 / one)
    # The lowest rate: a server that is busy 1 % of the time reaches any bound that it can reach at all.
    low = high - math.log(100.0)
    best: Dict[str, float] = {}
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        figures = runner.run("Server", seconds, math.exp(middle))
        if figures["p99_seconds"] <= bound:
            best, low = dict(figures, queries_per_second=math.exp(middle), seconds=math.exp(-middle)), middle
        else:
            high = middle
    if not best:
        raise BoundError("the latency bound is exceeded at all rates down to {:.3g} queries/s".format(math.exp(low)))
    return dict(best, bound_seconds=bound)


class BoundError(Exception):
    """Raised when the latency bound is exceeded at all rates."""


def _library(instruments: Optional[str]) -> Any:
    if instruments and instruments not in sys.path:
        # At the end of the path: packages of the measured stack take precedence.
        sys.path.append(instruments)
    try:
        import mlperf_loadgen

        return mlperf_loadgen
    except ImportError:
        return None


class _SimpleLoop:
    """A simple loop over queries, without LoadGen."""

    def __init__(self, serve: Serve, batch: int) -> None:
        self._serve = serve
        self._batch = batch

    def run(self, scenario: str, seconds: float, rate: float) -> Dict[str, float]:
        """Run one test of at least this duration."""
        if scenario == "Server":
            return _percentiles(self._poisson_latencies(seconds, rate), "Server")
        size = {"SingleStream": 1, "MultiStream": STREAMS, "Offline": self._batch}[scenario]
        latencies: List[float] = []
        started = time.perf_counter()
        while time.perf_counter() - started < seconds or len(latencies) < _QUERIES:
            query_started = time.perf_counter()
            self._serve(size)
            latencies.append(time.perf_counter() - query_started)
        if scenario == "Offline":
            seconds_per_sample = sum(latencies) / len(latencies) / size
            return {
                "seconds": seconds_per_sample,
                "samples_per_second": 1 / seconds_per_sample,
                "queries": float(len(latencies) * size),
            }
        return _percentiles(latencies, scenario)

    def _poisson_latencies(self, seconds: float, rate: float) -> List[float]:
        """Answer queries of a Poisson process one by one, and return the latencies from arrival to answer."""
        generator = random.Random(0)
        count = max(_QUERIES, int(seconds * rate))
        arrivals: queue.Queue[Optional[float]] = queue.Queue()

        def arrive() -> None:
            due = time.perf_counter()
            for _ in range(count):
                due += generator.expovariate(rate)
                time.sleep(max(0.0, due - time.perf_counter()))
                arrivals.put(due)
            arrivals.put(None)

        source = threading.Thread(target=arrive, daemon=True)
        source.start()
        latencies: List[float] = []
        for due in iter(arrivals.get, None):
            self._serve(1)
            latencies.append(time.perf_counter() - due)
        return latencies


def _percentiles(latencies: List[float], scenario: str) -> Dict[str, float]:
    ordered = sorted(latencies)

    def at(fraction: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(fraction * len(ordered)) - 1)]

    figures = {"p50_seconds": at(0.5), "p90_seconds": at(0.9), "p99_seconds": at(0.99), "queries": float(len(ordered))}
    return dict(figures, seconds=at(_PERCENTILE[scenario]))


class _LoadGen:
    """MLCommons' LoadGen, which issues the queries and computes the figures."""

    def __init__(self, library: Any, serve: Serve, batch: int) -> None:
        self._library = library
        self._serve = serve
        self._batch = batch

    def run(self, scenario: str, seconds: float, rate: float) -> Dict[str, float]:
        """Run one test, and read LoadGen's summary."""
        lg = self._library
        settings = lg.TestSettings()
        settings.scenario = getattr(lg.TestScenario, scenario)
        settings.mode = lg.TestMode.PerformanceOnly
        settings.min_duration_ms = int(seconds * 1000)
        settings.max_duration_ms = int(seconds * 10000)
        settings.min_query_count = 1 if scenario == "Offline" else _QUERIES
        if scenario == "Server":
            settings.server_target_qps = rate
            settings.min_query_count = max(_QUERIES, int(seconds * rate))
        if scenario == "Offline":
            settings.offline_expected_qps = self._expected_rate(seconds)
        with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
            self._test(settings, folder)
            with open(os.path.join(folder, "mlperf_log_summary.txt"), encoding="utf-8") as file:
                return _read_summary(file.read(), scenario)

    def _expected_rate(self, seconds: float) -> float:
        """Return the expected rate, from which LoadGen computes the number of samples in its single Offline query."""
        self._serve(self._batch)
        started = time.perf_counter()
        self._serve(self._batch)
        return self._batch / (time.perf_counter() - started)

    def _test(self, settings: Any, folder: str) -> None:
        lg = self._library
        waiting: queue.Queue[Any] = queue.Queue()

        def answer(samples: Any) -> None:
            step = self._batch if len(samples) > STREAMS else len(samples)
            for start in range(0, len(samples), step):
                part = samples[start : start + step]
                self._serve(len(part))
                lg.QuerySamplesComplete([lg.QuerySampleResponse(s.id, 0, 0) for s in part])

        def work() -> None:
            for samples in iter(waiting.get, None):
                answer(samples)

        # The Server scenario answers in its own thread, so that arrivals do not wait for answers.
        worker = threading.Thread(target=work, daemon=True)
        is_server = settings.scenario == lg.TestScenario.Server
        if is_server:
            worker.start()
        issue = waiting.put if is_server else answer
        system = lg.ConstructSUT(issue, lambda: None)
        library = lg.ConstructQSL(1024, 1024, lambda _: None, lambda _: None)
        logs = lg.LogSettings()
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        logs.enable_trace = False
        try:
            lg.StartTestWithLogSettings(system, library, settings, logs)
        finally:
            lg.DestroyQSL(library)
            lg.DestroySUT(system)
            waiting.put(None)
            if is_server:
                worker.join()


def _read_summary(text: str, scenario: str) -> Dict[str, float]:
    def number(pattern: str) -> float:
        match = re.search(pattern + r"\s*:\s*([0-9.eE+-]+)", text)
        if match is None:
            raise ValueError("LoadGen's summary has no `{}`: {}".format(pattern, text[:500]))
        return float(match.group(1))

    if scenario == "Offline":
        rate = number("Samples per second")
        return {"seconds": 1 / rate, "samples_per_second": rate}
    latencies = ((n, number(r"{}\.00 percentile latency \(ns\)".format(n))) for n in (50, 90, 99))
    figures = {"p{}_seconds".format(n): nanoseconds / 1e9 for n, nanoseconds in latencies}
    return dict(figures, seconds=figures["p{:.0f}_seconds".format(100 * _PERCENTILE[scenario])])
