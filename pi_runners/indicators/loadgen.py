"""The four scenarios of MLPerf Inference: by MLCommons' own LoadGen where it is there, otherwise by ours.

Ours issues queries from one Python thread and measures them with the same clock; what LoadGen does beside that (its
early-stopping estimate of a percentile, its query sampling, its log of every query, a second thread that issues Server
queries independently of the system's state) it does not.
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
"""Samples of one MultiStream query, as MLPerf Inference has them."""
_PERCENTILE = {"SingleStream": 0.90, "MultiStream": 0.99, "Server": 0.99}
_SEARCH_STEPS = 6
_QUERIES = 128
"""Fewest queries of a test: MLPerf asks for far more; a short test says less of the rarest."""

Serve = Callable[[int], None]
"""Answers this many samples, and returns when it is done."""


def run_scenario(
    scenario: str, serve: Serve, seconds: float, bound: float, batch: int, instruments: Optional[str]
) -> Dict[str, float]:
    """Run one scenario once.

    Args:
        scenario: One of :data:`SCENARIOS`.
        serve: The system under test.
        seconds: Least duration.
        bound: Latency that 99 % of the queries of a Server must keep, seconds.
        batch: Largest batch that ``serve`` is given in Offline.
        instruments: Directory in which LoadGen may be found.

    Returns:
        ``seconds``, the headline, smaller is better: the 90th (SingleStream) or 99th (MultiStream) percentile of
        latency, or seconds per sample (Server: at the highest rate within the bound, Offline). With it, what was
        measured on the way, and ``loadgen``: 1 where it was MLCommons' own.
    """
    library = _library(instruments)
    runner = _LoadGen(library, serve, batch) if library is not None else _Own(serve, batch)
    found = _highest_rate(runner, seconds, bound) if scenario == "Server" else runner.run(scenario, seconds, 0.0)
    return {**found, "loadgen": float(library is not None)}


def _highest_rate(runner: Any, seconds: float, bound: float) -> Dict[str, float]:
    """Search the highest rate of arrivals at which 99 % of the queries keep the bound: bisect its logarithm."""
    one = runner.run("SingleStream", seconds, 0.0)["p50_seconds"]
    low, high = 0.0, math.log(1.0 / one)
    # A server that is busy a hundredth of its time keeps any bound that it can keep.
    low = high - math.log(100.0)
    best: Dict[str, float] = {}
    for _ in range(_SEARCH_STEPS):
        middle = (low + high) / 2
        found = runner.run("Server", seconds, math.exp(middle))
        if found["p99_seconds"] <= bound:
            best, low = dict(found, queries_per_second=math.exp(middle), seconds=math.exp(-middle)), middle
        else:
            high = middle
    if not best:
        raise BoundError("no rate down to {:.3g} queries/s keeps the latency bound".format(math.exp(low)))
    return dict(best, bound_seconds=bound)


class BoundError(Exception):
    """Raised when the system does not keep the latency bound at any rate."""


def _library(instruments: Optional[str]) -> Any:
    if instruments and instruments not in sys.path:
        # Behind everything else: the measured stack wins wherever both hold something.
        sys.path.append(instruments)
    try:
        import mlperf_loadgen

        return mlperf_loadgen
    except ImportError:
        return None


class _Own:
    """Our own loop over queries."""

    def __init__(self, serve: Serve, batch: int) -> None:
        self._serve = serve
        self._batch = batch

    def run(self, scenario: str, seconds: float, rate: float) -> Dict[str, float]:
        """Issue queries for at least this long."""
        if scenario == "Server":
            return _percentiles(self._arrivals(seconds, rate), "Server")
        size = {"SingleStream": 1, "MultiStream": STREAMS, "Offline": self._batch}[scenario]
        latencies: List[float] = []
        started = time.perf_counter()
        while time.perf_counter() - started < seconds or len(latencies) < _QUERIES:
            begun = time.perf_counter()
            self._serve(size)
            latencies.append(time.perf_counter() - begun)
        if scenario == "Offline":
            each = sum(latencies) / len(latencies) / size
            return {"seconds": each, "samples_per_second": 1 / each, "queries": float(len(latencies) * size)}
        return _percentiles(latencies, scenario)

    def _arrivals(self, seconds: float, rate: float) -> List[float]:
        """Serve a Poisson stream one by one; return latencies from arrival to answer."""
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

    found = {"p50_seconds": at(0.5), "p90_seconds": at(0.9), "p99_seconds": at(0.99), "queries": float(len(ordered))}
    return dict(found, seconds=at(_PERCENTILE[scenario]))


class _LoadGen:
    """MLCommons' LoadGen: it issues queries and computes every figure itself."""

    def __init__(self, library: Any, serve: Serve, batch: int) -> None:
        self._library = library
        self._serve = serve
        self._batch = batch

    def run(self, scenario: str, seconds: float, rate: float) -> Dict[str, float]:
        """Run one test and read LoadGen's own summary."""
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
            settings.offline_expected_qps = self._expected(seconds)
        with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
            self._test(settings, folder)
            with open(os.path.join(folder, "mlperf_log_summary.txt"), encoding="utf-8") as file:
                return _read_summary(file.read(), scenario)

    def _expected(self, seconds: float) -> float:
        """Offline sends one query with all samples: it must be told about how many fill the duration."""
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

        # A Server answers on a thread of its own, so that arrivals do not wait for answers.
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
    found = {
        "p50_seconds": number(r"50\.00 percentile latency \(ns\)") / 1e9,
        "p90_seconds": number(r"90\.00 percentile latency \(ns\)") / 1e9,
        "p99_seconds": number(r"99\.00 percentile latency \(ns\)") / 1e9,
    }
    return dict(found, seconds=found["p{:.0f}_seconds".format(100 * _PERCENTILE[scenario])])
