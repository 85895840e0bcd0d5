"""Invented histories of daily runs, with planted changes; none of them is a measurement.

`python -m tests.knowledge.histories` stores the example of the documentation in the user's knowledge base.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from knowledge.domain.hardware import Accelerator, Cpu, Driver, HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.store.engine import open_knowledge_base
from knowledge.store.state_hash import default_address

FIRST_DAY = datetime(2026, 1, 1, 6, tzinfo=UTC)
NODE = HardwareProfile(
    name="detected",
    cpu=Cpu(architecture="x86_64", microarchitecture="zen4", model="AMD EPYC 9354", sockets=1, cores=32, threads=64),
    libc="glibc",
    libc_version="2.36",
    accelerators=(Accelerator(vendor="nvidia", model="NVIDIA H100 80GB HBM3", count=1),),
    driver=Driver(version="550.54.14"),
)
ENVIRONMENT = {"kernel": "6.1.0-18", "python_build": "main", "clock_resolution_seconds": 1e-9, "torch_threads": 32}
TELEMETRY = {
    "gpu_clock_megahertz_mean": 1980.0,
    "gpu_temperature_celsius_mean": 60.0,
    "throttled": 0.0,
    "other_cpu_percent_mean": 1.0,
    "stolen_cpu_percent_mean": 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What is measured on a day; a change is made with :func:`dataclasses.replace`."""

    seconds: float = 0.1
    packages: Mapping[str, str] = field(default_factory=lambda: {"numpy": "2.4.6", "torch": "2.13.0"})
    python: str = "3.11.7"
    hardware: HardwareProfile = NODE
    environment: Mapping[str, Any] = field(default_factory=lambda: ENVIRONMENT)
    telemetry: Mapping[str, float] = field(default_factory=lambda: TELEMETRY)
    loops: int = 10


def history(
    days: Mapping[int, Day],
    *,
    length: int = 60,
    noise: float = 0.01,
    seed: int = 1,
    indicator: str = "matmul",
    framework: str = "torch",
    rounds: int = 2,
    time: Callable[[int], datetime] = lambda day: FIRST_DAY + timedelta(days=day),
) -> Iterator[Observation]:
    """Yield the observations of daily blocks.

    Args:
        days: What is measured from each day on, until the next one.
        length: Number of days.
        noise: Standard deviation of the logarithm of a day's seconds.
        seed: Seed of the noise.
        indicator: Name of the indicator.
        framework: Framework and backend.
        rounds: Rounds of a block.
        time: When the block of a day starts.
    """
    generator = random.Random(seed)
    run = IndicatorRun(
        name=indicator, version=1, backend=framework, device="cuda", dtype="float32", parameters={"m": 64}
    )
    for number in range(length):
        day = days[max(first for first in days if first <= number)]
        seconds = day.seconds * math.exp(generator.gauss(0, noise))
        packages = [PackageVersion(name=name, version=version) for name, version in day.packages.items()]
        for round_ in range(rounds):
            yield Observation(
                indicator=run,
                framework=framework,
                stack=make_stack(packages, python=day.python, platform="manylinux_2_36_x86_64"),
                hardware=day.hardware,
                block=f"{framework}-{indicator}-{number:04}",
                round=round_,
                arm=0,
                reference=True,
                started_at=f"{time(number) + timedelta(minutes=round_):%Y-%m-%dT%H:%M:%SZ}",
                status="ok",
                samples=(seconds, seconds * 1.001, seconds * 0.999),
                loops=day.loops,
                environment=dict(day.environment),
                telemetry=dict(day.telemetry),
                schema=2,
            )


def slower(day: Day, percent: float, **changes: Any) -> Day:
    """Return a day on which everything takes longer, with other changes."""
    return replace(day, seconds=day.seconds * (1 + percent / 100), **changes)


def example() -> Iterator[Observation]:
    """Yield 100 days of a machine: a slower release on the 41st day, and a throttled GPU from the 91st day on."""
    usual = Day()
    hot = {
        **TELEMETRY,
        "gpu_clock_megahertz_mean": 1395.0,
        "gpu_temperature_celsius_mean": 87.0,
        "throttled": 1.0,
    }
    upgraded = replace(usual, packages={"numpy": "2.4.6", "torch": "2.14.0"})
    for seed, (indicator, loss) in enumerate({"conv2d": 6.0, "softmax": 0.0}.items(), start=1):
        slow = slower(upgraded, loss)
        days = {0: usual, 40: slow, 90: slower(slow, 35, telemetry=hot)}
        yield from history(days, length=100, seed=seed, indicator=indicator)


if __name__ == "__main__":
    with open_knowledge_base(default_address()) as store:
        store.add(example())
