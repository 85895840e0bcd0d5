"""Benchmarks of small projects for tests, and how they are run."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pi_runners.execution.benchmark import Benchmark, Metric
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessEnd, ProcessRequest

THROUGHPUT = Metric(pattern=r"throughput: (\S+)", unit="images/s", better="higher")


def benchmark_of(folder: Path, program: str, metric: Metric = THROUGHPUT, **changes: Any) -> Benchmark:
    """Return a benchmark of a project with one program."""
    folder.mkdir(exist_ok=True)
    (folder / "bench.py").write_text(program)
    benchmark = Benchmark(
        project="demo",
        command=("python", "bench.py"),
        metric=metric,
        warmup_runs=1,
        files={"bench.py": hashlib.sha256(program.encode()).hexdigest()},
        directory=folder,
    )
    return replace(benchmark, **changes)


def run_benchmark(
    tmp_path: Path,
    benchmark: Benchmark,
    *,
    runs: int = 2,
    settings: Mapping[str, Any] = MappingProxyType({}),
    **limits: Any,
) -> ProcessEnd:
    """Run a benchmark with this interpreter, as a block does.

    ``settings`` is the part of the request that applies settings after imports.
    """
    timeout = limits.pop("timeout_seconds", 60.0)
    request = ProcessRequest(
        python=Path(sys.executable),
        program=write_program(tmp_path / "programs"),
        content={**benchmark.request(runs=runs, timeout_seconds=timeout), **settings},
        timeout_seconds=benchmark.process_seconds(runs=runs, timeout_seconds=timeout),
        part="benchmark",
        **limits,
    )
    return FreshProcesses(interval_seconds=0.2).run(request)
