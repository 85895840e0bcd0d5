"""Test the method with other timers, A/A comparisons and an injected slow-down.

    python benchmarks/method.py agreement     medians against torch.utils.benchmark and pyperf on the same operations
    python benchmarks/method.py comparisons   A/A comparisons and a real slow-down of 5 %, as `advisor pi run` compares

Everything runs in environments that the program itself builds, in a folder that is removed. Results are in
`docs/reference/evidence/method.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.api.indexes import make_client
from advisor.api.options import IndexOptions
from advisor.campaign.stack_lock import StackLocker
from knowledge.domain.observation import Observation
from knowledge.evidence.compare import Comparison, compare_block
from knowledge.hardware.detect import detect
from pi_runners.execution.campaign import Block, run_block
from pi_runners.execution.environment import StackLock, build_environment
from pi_runners.execution.program_archive import write_program
from pi_runners.execution.subprocess_runner import FreshProcesses, ProcessEnd, ProcessRequest
from pi_runners.plan.matrix import IndicatorCase, choose_cases, plan_arms

PERCENT = 5
ROUNDS = 8
CASES = (
    *choose_cases(["matmul"])[:2],
    *choose_cases(["conv2d"])[:1],
    *choose_cases(["recurrent"])[1:2],
    *choose_cases(["attention", "embedding"]),
    *choose_cases(["elementwise"])[2:],
    *choose_cases(["softmax", "fft", "sort"]),
)

_TORCH = """
import json, statistics, sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.utils.benchmark as benchmark
from pi_runners.frameworks import make_backend
from pi_runners.harness.contract import SamplingPlan
from pi_runners.harness.timing import measure
from pi_runners.indicators import INDICATORS
backend = make_backend("torch", "cpu", "float32", {})
plan = SamplingPlan(samples=20, min_seconds=0.05, max_warmup_seconds=5.0)
for name, case in json.loads(sys.argv[2]):
    indicator = INDICATORS[name]
    run = indicator.prepare(backend, indicator.complete(case)).run
    timer = benchmark.Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    pairs = []
    for _ in range(int(sys.argv[3])):
        ours = statistics.median(measure(run, backend.synchronise, plan).samples)
        pairs.append((ours, timer.blocked_autorange(min_run_time=1.0).median))
    print(json.dumps([name, case, pairs]), flush=True)
"""

_PYPERF = """
import json, sys
sys.path.insert(0, {archive!r})
import pyperf
from pi_runners.frameworks import make_backend
from pi_runners.indicators import INDICATORS
indicator = INDICATORS[{name!r}]
backend = make_backend("numpy", "cpu", "float32", {{}})
run = indicator.prepare(backend, indicator.complete({case!r})).run
pyperf.Runner(values=5, processes=4).bench_func({name!r}, run)
"""

_SLOWED = """
import statistics, sys, time
from pi_runners.indicators import indicator
from pi_runners.harness.worker import main
original = indicator.measure
def slowed(run, synchronise, plan):
    delay = {share} * statistics.median(original(run, synchronise, plan._replace(samples=5)).samples)
    def slower():
        result = run()
        synchronise(result)
        end = time.perf_counter() + delay
        while time.perf_counter() < end:
            pass
        return result
    return original(slower, synchronise, plan)
indicator.measure = slowed
sys.exit(main())
"""


class Sink:
    """Stores observations in memory."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def add(self, observations: Iterable[Observation]) -> None:
        """Store observations."""
        self.observations += observations


class SlowingProcesses(FreshProcesses):
    """Runs the slowed arms with a program that spins after every call."""

    def __init__(self, slow_program: Path) -> None:
        super().__init__()
        self._slow_program = slow_program

    def run(self, job: ProcessRequest) -> ProcessEnd:
        """Run one job."""
        settings = dict(job.content["settings"])
        if settings.pop("injected", None) is None:
            return super().run(job)
        return super().run(replace(job, program=self._slow_program, content={**job.content, "settings": settings}))


def slow_program(archive: Path, directory: Path) -> Path:
    """Write a copy of the harness whose calls take longer, and return its path."""
    path = directory / "slowed.pyz"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            body = source.read(name)
            target.writestr(name, _SLOWED.format(share=PERCENT / 100) if name == "__main__.py" else body)
    return path


def lock(*requested: str) -> StackLock:
    """Lock a stack for this interpreter."""
    return StackLocker(make_client(IndexOptions(), Path.cwd()), detect()).lock(requested, sys.executable)


def agreement(folder: Path, repetitions: int) -> None:
    """Print the ratio of the harness's medians to those of two established timers, measured alternately."""
    archive = write_program(folder)
    environment = build_environment(lock("torch==2.13.0"), folder)
    cases = json.dumps([[c.name, dict(c.parameters)] for c in CASES])
    command = [str(environment.python), "-I", "-c", _TORCH, str(archive), cases, str(repetitions)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    print("torch.utils.benchmark, same process, alternately")
    for line in completed.stdout.splitlines():
        name, _, pairs = json.loads(line)
        _print_ratio(name, [p[0] for p in pairs], [p[1] for p in pairs])
    print("pyperf, NumPy, fresh processes, alternately")
    environment = build_environment(lock("numpy", "pyperf"), folder)
    for case in CASES:
        ours, theirs = [], []
        for _ in range(repetitions):
            ours.append(statistics.median(_our_medians(environment.python, archive, case)))
            theirs.append(_pyperf_median(environment.python, archive, case, folder))
        _print_ratio(case.name, ours, theirs)


def _our_medians(python: Path, archive: Path, case: IndicatorCase) -> list[float]:
    entry = {"name": case.name, "parameters": dict(case.parameters), "device": "cpu", "dtype": "float32"}
    request = {
        "backend": "numpy",
        "settings": {},
        "samples": 5,
        "min_seconds": 0.1,
        "max_warmup_seconds": 5.0,
        "indicators": [entry],
    }
    job = ProcessRequest(python=python, program=archive, content=request, timeout_seconds=600)
    return [statistics.median(FreshProcesses().run(job).results[0]["samples"]) for _ in range(4)]


def _pyperf_median(python: Path, archive: Path, case: IndicatorCase, folder: Path) -> float:
    script, output = folder / "bench.py", folder / "bench.json"
    script.write_text(_PYPERF.format(archive=str(archive), name=case.name, case=dict(case.parameters)))
    output.unlink(missing_ok=True)
    subprocess.run([str(python), str(script), "-q", "-o", str(output)], capture_output=True, check=True)
    program = "import pyperf, sys; print(pyperf.Benchmark.load(sys.argv[1]).median())"
    completed = subprocess.run([str(python), "-c", program, str(output)], capture_output=True, text=True, check=True)
    return float(completed.stdout)


def _print_ratio(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    middle = statistics.median(ratios)
    verdict = "within" if abs(middle - 1) <= 0.03 else "OUTSIDE"
    print(
        f"  {name:12} ours {statistics.median(ours) * 1e3:8.4f} ms, theirs {statistics.median(theirs) * 1e3:8.4f} ms, "
        f"ratio {middle:.3f} (from {min(ratios):.3f} to {max(ratios):.3f}), {verdict} 3 %",
        flush=True,
    )


def comparisons(folder: Path, blocks: int) -> None:
    """Print how often equal arms differ significantly, and how often a slow-down is detected."""
    archive = write_program(folder)
    hardware = detect()
    first, control = plan_arms([(lock("numpy"), {})], CASES, device="cpu", control=True)
    arms = (first, control, replace(control, number=2, settings={"injected": PERCENT}))
    runner = SlowingProcesses(slow_program(archive, folder))
    results: list[Comparison] = []
    for number in range(blocks):
        sink = Sink()
        block = Block(name=f"b{number}", arms=arms, rounds=ROUNDS, hardware=hardware, samples=10, min_seconds=0.01)
        run_block(block, sink=sink.add, runner=runner, environments=folder)
        # One comparison at the 5 % level: undo the correction for the number of comparisons.
        count = 2 * len(CASES)
        results += compare_block(sink.observations, confidence=1 - 0.05 * count)
        print(f"  block {number + 1}/{blocks}", file=sys.stderr, flush=True)
    controls = [c for c in results if c.is_control]
    slowed = [c for c in results if not c.is_control]
    noise = sorted(c.ratio.deviation * math.sqrt(c.rounds) for c in results)
    print(f"{ROUNDS} rounds, {len(CASES)} indicators, {blocks} blocks of 3 arms (reference, A/A control, slowed)")
    print(
        f"noise: standard deviation of a round's log ratio {noise[len(noise) // 2]:.1%} in the median, "
        f"from {noise[0]:.1%} to {noise[-1]:.1%}"
    )
    print(f"A/A: {sum(c.significant for c in controls)} of {len(controls)} significant at the 5 % level")
    effect = [-c.ratio.mean for c in slowed]
    print(f"slow-down of {PERCENT} %: measured as {math.expm1(statistics.median(effect)):.1%} in the median")
    print(f"slow-down detected: {sum(_is_slow_down(c) for c in slowed)} of {len(slowed)}")
    # Limit by the noise: an effect of 3.24 standard errors is detected with 90 % power at the 5 % level.
    for least, most in ((0.0, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, 9.9), (9.9, math.inf)):
        allowed = math.log1p(PERCENT / 100) / 3.24
        group = [c for c in slowed if least <= c.ratio.deviation / allowed < most]
        if group:
            print(
                f"  standard error {least:g} to {most:g} times the {allowed:.2%} needed for 90 % power: "
                f"{sum(_is_slow_down(c) for c in group)} of {len(group)}"
            )


def _is_slow_down(c: Comparison) -> bool:
    return c.significant and c.speedup < 1


def main() -> None:
    """Run one of the experiments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("agreement", "comparisons"))
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="method-") as scratch:
        experiments: dict[str, Any] = {"agreement": agreement, "comparisons": comparisons}
        experiments[arguments.experiment](Path(scratch), arguments.repetitions)


if __name__ == "__main__":
    main()
