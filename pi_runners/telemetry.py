"""The machine beside a run: utilisation, memory, power, temperature and clocks, sampled from outside the process."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil

INTERVAL_SECONDS = 1.0
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksThrottleReasons.html: what slows a GPU down although it is
# asked for more: software and hardware power caps, thermal slow-downs, the power brake.
_POWER_REASONS = 0x4 | 0x80
_HEAT_REASONS = 0x20 | 0x40
# Hardware slow-down (0x8) has one of the others as its cause, where the driver tells it.
_THROTTLE_REASONS = _POWER_REASONS | _HEAT_REASONS | 0x8
_FLAGS = ("throttled", "throttled_by_heat", "throttled_by_power")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The machine at one time.

    Attributes:
        time: Seconds since the epoch.
        figures: By name, with the unit in the name.
        seconds: Length of the interval before that time, which the figures describe.
    """

    time: float
    figures: dict[str, float]
    seconds: float = INTERVAL_SECONDS


class Sampler:
    """Reads the machine in intervals while a process runs, and ends a process that takes too much memory.

    Memory is watched from outside, as what the process and its children hold: a limit of address space would stop
    frameworks that reserve far more than they use.
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
        self._gpu = _open_gpu()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="telemetry")

    def __enter__(self) -> Sampler:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            tree = _Tree(self._pid)
        except psutil.NoSuchProcess:
            # It ended before anybody looked.
            return
        before = _Clockwork.read(tree)
        # The first reading comes soon, so that short runs have one.
        wait = self._interval / 4
        while not self._done.wait(wait):
            wait = self._interval
            now = _Clockwork.read(tree)
            figures = now.since(before)
            before = now
            held = tree.resident_bytes()
            figures["memory_bytes"] = held
            figures.update(_cpu_figures())
            if self._gpu is not None:
                figures.update(self._gpu())
            self.readings.append(Reading(time=time.time(), figures=figures, seconds=self._interval))
            if self._limit is not None and held > self._limit:
                self.exceeded = True
                self._stop()
                return


def summarise(readings: Iterable[Reading], started: float, ended: float) -> dict[str, float]:
    """Return mean and largest of each figure over a stretch of time.

    Args:
        readings: Of one process.
        started: Begin, seconds since the epoch.
        ended: End, seconds since the epoch.
    """
    # A reading speaks of the interval before it.
    inside = [r for r in readings if started <= r.time <= ended + r.seconds]
    found: dict[str, float] = {}
    for name in sorted({name for r in inside for name in r.figures}):
        values = [r.figures[name] for r in inside if name in r.figures]
        if name in _FLAGS:
            found[name] = max(values)
        else:
            found[f"{name}_mean"] = float(f"{statistics.fmean(values):.4g}")
            found[f"{name}_max"] = float(f"{max(values):.4g}")
    return found


class _Tree:
    """A process and what it started."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def _members(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []

    def _sum(self, figure: Callable[[psutil.Process], float]) -> float:
        total = 0.0
        for member in self._members():
            with contextlib.suppress(psutil.Error):
                total += figure(member)
        return total

    def resident_bytes(self) -> float:
        """Main memory that all of them hold."""
        return self._sum(lambda p: float(p.memory_info().rss))

    def cpu_seconds(self) -> float:
        """Processor time that all of them took."""
        return self._sum(lambda p: float(sum(p.cpu_times()[:2])))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clockwork:
    """Processor time so far: of all work, of idling, stolen by other machines, of the measured process."""

    busy: float
    idle: float
    stolen: float
    ours: float

    @classmethod
    def read(cls, tree: _Tree) -> _Clockwork:
        times = psutil.cpu_times()
        stolen = getattr(times, "steal", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guest time is counted in user time already.
        counted = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return cls(busy=counted - idle - stolen, idle=idle, stolen=stolen, ours=tree.cpu_seconds())

    def since(self, before: _Clockwork) -> dict[str, float]:
        """Return shares of all processors, in per cent, since an earlier reading."""
        busy, stolen = self.busy - before.busy, self.stolen - before.stolen
        total = busy + stolen + self.idle - before.idle
        if total <= 0:
            return {}
        ours = max(0.0, self.ours - before.ours)
        return {
            "cpu_percent": 100 * busy / total,
            "other_cpu_percent": 100 * max(0.0, busy - ours) / total,
            "stolen_cpu_percent": 100 * stolen / total,
        }


def _cpu_figures() -> dict[str, float]:
    found: dict[str, float] = {}
    with contextlib.suppress(NotImplementedError, FileNotFoundError, AttributeError):
        if (frequency := psutil.cpu_freq()) is not None:
            found["cpu_clock_megahertz"] = float(frequency.current)
    with contextlib.suppress(NotImplementedError, AttributeError):
        temperatures = [entry.current for group in psutil.sensors_temperatures().values() for entry in group]
        if temperatures:
            found["cpu_temperature_celsius"] = float(max(temperatures))
    return found


def _open_gpu() -> Callable[[], dict[str, float]] | None:
    """Return what reads all GPUs, or none where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        # An absent driver is normal; a broken one must not stop a measurement.
        return None
    return (lambda: _read_gpus(pynvml, devices)) if devices else None


def _read_gpus(nvml: Any, devices: list[Any]) -> dict[str, float]:
    """Return the busiest GPU's figures; memory and power are sums."""

    def slowed(device: Any, reasons: int) -> float:
        return float(bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device) & reasons))

    readers: dict[str, tuple[Callable[[Any], float], Callable[[list[float]], float]]] = {
        "gpu_percent": (lambda d: nvml.nvmlDeviceGetUtilizationRates(d).gpu, max),
        "gpu_memory_bytes": (lambda d: nvml.nvmlDeviceGetMemoryInfo(d).used, sum),
        "gpu_power_watts": (lambda d: nvml.nvmlDeviceGetPowerUsage(d) / 1000, sum),
        "gpu_temperature_celsius": (lambda d: nvml.nvmlDeviceGetTemperature(d, nvml.NVML_TEMPERATURE_GPU), max),
        "gpu_clock_megahertz": (lambda d: nvml.nvmlDeviceGetClockInfo(d, nvml.NVML_CLOCK_SM), max),
        "throttled": (lambda d: slowed(d, _THROTTLE_REASONS), max),
        "throttled_by_heat": (lambda d: slowed(d, _HEAT_REASONS), max),
        "throttled_by_power": (lambda d: slowed(d, _POWER_REASONS), max),
    }
    found: dict[str, float] = {}
    for name, (read, combine) in readers.items():
        # Slices and virtual GPUs do not tell everything; older versions of the package do not ask for everything.
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            found[name] = float(combine([float(read(device)) for device in devices]))
    return found
