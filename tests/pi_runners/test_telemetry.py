"""Telemetry: summaries of readings, and readings of a fake NVIDIA driver."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pi_runners.execution.telemetry import Reading, Sampler, _cpu_seconds, _read_gpus, summarise


def test_readings_of_an_interval_are_summarised() -> None:
    readings = [
        Reading(time=float(t), figures={"gpu_percent": 10.0 * t, "throttled": float(t == 3)}) for t in range(10)
    ]

    figures = summarise(readings, 2.0, 4.0)

    # The reading at second 5 describes the second before it.
    assert figures == {"gpu_percent_mean": 35.0, "gpu_percent_max": 50.0, "throttled": 1.0}
    assert summarise(readings, 5.0, 6.0)["throttled"] == 0.0
    assert summarise([], 0.0, 1.0) == {}


class NVMLError(Exception):
    """Error of the driver."""


def fake_driver(reasons: int) -> Any:
    def refuse(device: int) -> None:
        raise NVMLError("not supported")

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        nvmlDeviceGetUtilizationRates=lambda d: SimpleNamespace(gpu=40 + d),
        nvmlDeviceGetMemoryInfo=lambda d: SimpleNamespace(used=1000),
        nvmlDeviceGetPowerUsage=refuse,
        nvmlDeviceGetTemperature=lambda d, kind: 60 + d,
        nvmlDeviceGetClockInfo=lambda d, kind: 1500,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda d: reasons,
    )


@pytest.mark.parametrize(("reasons", "throttled"), [(0x0, 0.0), (0x1, 0.0), (0x4, 1.0), (0x40, 1.0)])
def test_throttling_of_a_gpu_is_reported(reasons: int, throttled: float) -> None:
    figures = _read_gpus(fake_driver(reasons), [0, 1])

    assert figures == {
        "gpu_percent": 41.0,
        "gpu_memory_bytes": 2000.0,
        "gpu_temperature_celsius": 61.0,
        "gpu_clock_megahertz": 1500.0,
        "throttled": throttled,
        "throttled_by_heat": float(reasons == 0x40),
        "throttled_by_power": float(reasons == 0x4),
    }


def test_a_reading_counts_only_for_the_interval_before_it() -> None:
    readings = [Reading(time=t / 4, seconds=0.25, figures={"gpu_power_watts": float(t)}) for t in range(40)]

    figures = summarise(readings, 2.0, 3.0)

    assert figures == {"gpu_power_watts_mean": 10.5, "gpu_power_watts_max": 13.0}


def test_the_machine_can_be_read_more_often_than_once_a_second() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"]) as child,
        Sampler(child.pid, memory_limit_bytes=None, stop=lambda: None, interval_seconds=0.1) as sampler,
    ):
        child.wait()

    assert len(sampler.readings) > 3
    assert {r.seconds for r in sampler.readings} == {0.1}


@pytest.mark.parametrize(
    ("reasons", "power", "heat"),
    [(0x4, 1.0, 0.0), (0x80, 1.0, 0.0), (0x20, 0.0, 1.0), (0x44, 1.0, 1.0), (0x8, 0.0, 0.0)],
)
def test_throttling_by_power_and_by_heat_are_distinguished(reasons: int, power: float, heat: float) -> None:
    reading = Reading(time=0.0, figures=_read_gpus(fake_driver(reasons), [0]))

    figures = summarise([reading], 0.0, 1.0)

    assert (figures["throttled"], figures["throttled_by_power"], figures["throttled_by_heat"]) == (1.0, power, heat)


def test_a_figure_that_an_older_package_of_nvidia_lacks_is_omitted() -> None:
    driver = fake_driver(0)
    del driver.nvmlDeviceGetCurrentClocksThrottleReasons

    assert set(_read_gpus(driver, [0])) == {
        "gpu_percent",
        "gpu_memory_bytes",
        "gpu_temperature_celsius",
        "gpu_clock_megahertz",
    }


def test_a_process_that_has_ended_has_no_readings() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)

    with Sampler(child, memory_limit_bytes=None, stop=lambda: None) as sampler:
        pass

    assert sampler.readings == []


def test_the_processor_time_of_ended_children_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    run = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", run], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        seconds = _cpu_seconds(psutil.Process(process.pid))

        process.communicate(b"\n")
    # The system counts in hundredths of a second.
    assert seconds > 0.4 - 0.02
