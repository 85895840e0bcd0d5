"""Telemetry of the machine during a run: utilisation, memory, power, energy, temperature and clocks."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pi_runners.execution.energy import EnergyMeter, gpu_counters, processor_counters

INTERVAL_SECONDS = 1.0
# Reasons for which a GPU lowers its clocks under load: software and hardware power limits, temperature, power brake.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksThrottleReasons.html
_POWER_REASONS = 0x4 | 0x80
_HEAT_REASONS = 0x20 | 0x40
# Hardware slow-down (0x8) is caused by one of the others, which some drivers do not report.
_THROTTLE_REASONS = _POWER_REASONS | _HEAT_REASONS | 0x8
_FLAGS = ("throttled", "throttled_by_heat", "throttled_by_power", "on_battery")
_POWER_SUPPLIES = Path("/sys/class/power_supply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Telemetry of one interval.

    Attributes:
        time: End of the interval, seconds since the epoch.
        figures: Values by name; the name contains the unit.
        seconds: Length of the interval.
        joules: Energy since the process started, by kind: see :class:`pi_runners.execution.energy.EnergyMeter`.
    """

    time: float
    figures: dict[str, float]
    seconds: float = INTERVAL_SECONDS
    joules: Mapping[str, float] = field(default_factory=dict)


class Sampler:
    """Reads telemetry in intervals while a process runs, and calls ``stop`` when the process uses too much memory.

    The limit applies to the resident memory of the process and its children. A limit of the address space would stop
    frameworks that reserve far more memory than they use.
    """

    def __init__(
        self,
        pid: int,
        *,
        memory_limit_bytes: float | None,
        stop: Callable[[], None],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.readings: list[Reading] = []
        self.exceeded = False
        self._pid = pid
        self._limit = memory_limit_bytes
        self._stop = stop
        self._interval = interval_seconds
        self._done = threading.Event()
        self._nvml, self._gpus = _open_gpus()
        self._meter = EnergyMeter([*gpu_counters(self._nvml, self._gpus), *processor_counters()])
        self._thread = threading.Thread(target=self._watch, daemon=True, name="telemetry")

    def __enter__(self) -> Sampler:
        """Start the readings."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the readings."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            process = psutil.Process(self._pid)
        except psutil.NoSuchProcess:
            # The process has already ended.
            return
        self._add({})
        previous = _ProcessorTimes.read(process)
        # The first reading comes early, so that short runs have one.
        wait = self._interval / 4
        while not self._done.wait(wait):
            wait = self._interval
            current = _ProcessorTimes.read(process)
            figures = current.since(previous)
            previous = current
            memory_bytes = _sum_of_tree(process, lambda p: float(p.memory_info().rss))
            if memory_bytes:
                # A process that has just ended has no memory; the reading says nothing about the run.
                figures["memory_bytes"] = memory_bytes
            figures.update(_cpu_figures())
            if self._gpus:
                figures.update(_read_gpus(self._nvml, self._gpus))
            self._add(figures)
            if self._limit is not None and memory_bytes > self._limit:
                self.exceeded = True
                self._stop()
                return
        # The process has ended: energy is interpolated between readings before and after the timed calls.
        self._add({})

    def _add(self, figures: dict[str, float]) -> None:
        """Read the energy counters, and add a reading unless it is empty."""
        now = time.time()
        if (joules := self._meter.joules(now)) or figures:
            self.readings.append(Reading(time=now, figures=figures, seconds=self._interval, joules=joules))


def summarise(readings: Iterable[Reading], started: float, ended: float) -> dict[str, float]:
    """Return the mean and the maximum of each figure over a period.

    Args:
        readings: Readings of one process.
        started: Start of the period, seconds since the epoch.
        ended: End of the period, seconds since the epoch.

    Returns:
        Values by name with the suffix ``_mean`` or ``_max``; flags such as ``throttled`` have no suffix.
    """
    # A reading describes the interval before its time.
    relevant = [r for r in readings if started <= r.time <= ended + r.seconds]
    summary: dict[str, float] = {}
    for name in sorted({name for r in relevant for name in r.figures}):
        values = [r.figures[name] for r in relevant if name in r.figures]
        if name in _FLAGS:
            summary[name] = max(values)
        else:
            summary[f"{name}_mean"] = float(f"{statistics.fmean(values):.4g}")
            summary[f"{name}_max"] = float(f"{max(values):.4g}")
    return summary


def _sum_of_tree(root: psutil.Process, figure: Callable[[psutil.Process], float]) -> float:
    """Return the sum of a figure over a process and its descendants; one that has just ended counts as 0."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for member in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += figure(member)
    return total


def _cpu_seconds(root: psutil.Process) -> float:
    """Return the processor time of a process and its descendants, with that of their children that have ended."""
    return _sum_of_tree(root, lambda p: float(sum(p.cpu_times()[:4])))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessorTimes:
    """Processor time since boot: busy, idle, stolen by other virtual machines, and of the measured process."""

    busy: float
    idle: float
    stolen: float
    process: float

    @classmethod
    def read(cls, process: psutil.Process) -> _ProcessorTimes:
        times = psutil.cpu_times()
        stolen = getattr(times, "steal", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guest time is already included in user time.
        counted = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return cls(busy=counted - idle - stolen, idle=idle, stolen=stolen, process=_cpu_seconds(process))

    def since(self, before: _ProcessorTimes) -> dict[str, float]:
        """Return the shares of all processors since an earlier reading, in per cent."""
        busy, stolen = self.busy - before.busy, self.stolen - before.stolen
        total = busy + stolen + self.idle - before.idle
        if total <= 0:
            return {}
        process = max(0.0, self.process - before.process)
        return {
            "cpu_percent": 100 * busy / total,
            "other_cpu_percent": 100 * max(0.0, busy - process) / total,
            "stolen_cpu_percent": 100 * stolen / total,
        }


def _cpu_figures() -> dict[str, float]:
    figures: dict[str, float] = {}
    with contextlib.suppress(NotImplementedError, FileNotFoundError, AttributeError):
        if (frequency := psutil.cpu_freq()) is not None:
            figures["cpu_clock_megahertz"] = float(frequency.current)
    with contextlib.suppress(NotImplementedError, AttributeError):
        temperatures = [entry.current for group in psutil.sensors_temperatures().values() for entry in group]
        if temperatures:
            figures["cpu_temperature_celsius"] = float(max(temperatures))
    if (on_battery := _is_on_battery()) is not None:
        figures["on_battery"] = float(on_battery)
    return figures


def _is_on_battery(supplies: Path = _POWER_SUPPLIES) -> bool | None:
    """Return whether a battery powers the machine; ``None`` if it has none, or if this is unknown.

    On Linux, psutil also reports the battery of a wireless mouse as the machine's own, if there is no other. The kernel
    marks it with the scope ``Device``; a battery of the machine has another scope or none
    (https://git.zx2c4.com/linux-dev/commit/?id=25a0bc2dfc2ea732f40af2dae52426ead66ae76e).
    """
    scopes = []
    for supply in supplies.glob("*"):
        with contextlib.suppress(OSError):
            if (supply / "type").read_text().strip() == "Battery":
                scope = supply / "scope"
                scopes.append(scope.read_text().strip() if scope.exists() else "System")
    if scopes and all(scope == "Device" for scope in scopes):
        return None
    with contextlib.suppress(NotImplementedError, AttributeError, OSError, ValueError):
        if (battery := psutil.sensors_battery()) is not None and battery.power_plugged is not None:
            return not battery.power_plugged
    return None


def _open_gpus() -> tuple[Any, list[Any]]:
    """Return the module `pynvml` and the handles of all GPUs; none if there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        # A missing driver is normal, and a broken one must not stop a measurement.
        return None, []


def _read_gpus(nvml: Any, devices: list[Any]) -> dict[str, float]:
    """Return the figures of the busiest GPU; memory and power are sums over all GPUs."""

    def is_throttled(device: Any, reasons: int) -> float:
        return float(bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device) & reasons))

    readers: dict[str, tuple[Callable[[Any], float], Callable[[list[float]], float]]] = {
        "gpu_percent": (lambda d: nvml.nvmlDeviceGetUtilizationRates(d).gpu, max),
        "gpu_memory_bytes": (lambda d: nvml.nvmlDeviceGetMemoryInfo(d).used, sum),
        "gpu_power_watts": (lambda d: nvml.nvmlDeviceGetPowerUsage(d) / 1000, sum),
        "gpu_temperature_celsius": (lambda d: nvml.nvmlDeviceGetTemperature(d, nvml.NVML_TEMPERATURE_GPU), max),
        "gpu_clock_megahertz": (lambda d: nvml.nvmlDeviceGetClockInfo(d, nvml.NVML_CLOCK_SM), max),
        "throttled": (lambda d: is_throttled(d, _THROTTLE_REASONS), max),
        "throttled_by_heat": (lambda d: is_throttled(d, _HEAT_REASONS), max),
        "throttled_by_power": (lambda d: is_throttled(d, _POWER_REASONS), max),
    }
    figures: dict[str, float] = {}
    for name, (read, combine) in readers.items():
        # MIG instances, virtual GPUs and older versions of the package lack some figures.
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            figures[name] = float(combine([float(read(device)) for device in devices]))
    return figures
