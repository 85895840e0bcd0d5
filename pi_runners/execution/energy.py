"""Energy: counters of GPUs, processors and memory, and what they counted over the timed calls of a run.

Nothing is subtracted: the energy contains idle power and what other programs on the machine used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from knowledge.domain.observation import ENERGY_WINDOW, JOULES_PER_CALL
from pi_runners.harness.timing import SampleWindow

POWERCAP = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:[0-9a-f]+")
_JOULES_PER_MICROJOULE = 1e-6
_JOULES_PER_MILLIJOULE = 1e-3
_MOST_WATTS = 2000.0
"""Power above which a counter that decreased was reset and did not wrap: over twice the highest limit of a processor
that was published with its counters (764 W, https://github.com/intel/powertelemetry/issues/3)."""
_STILL_SECONDS = 0.5
"""Time without a change after which a counter does not work. NVML's counter changes every 20 to 100 ms
(https://petsc.org/main/manualpages/Log/PetscLogGpuEnergyMeter, https://ml.energy/blog/energy/measurement/
thermally-stable-profiling-for-accurate-gpu-energy-measurement), RAPL's about every millisecond
(https://docs.green-coding.io/docs/measuring/metric-providers/psu-energy-dc-rapl-msr-machine). In some virtual machines
it never does."""
_LEAST_SECONDS = 2.0
"""Shortest window: 20 changes of NVML's counter, so that one change more or less at each end is at most 10 %."""
_LEAST_INTERVALS = 5
"""Shortest window, in intervals between readings. If the power jumps at both ends of the window, from 0 or to 0,
interpolation is wrong by at most a quarter of an interval at each end: together by at most 10 % of the energy."""
_TIMED_SHARE = 0.9
"""Minimum share of the window in which calls were timed; in the rest the harness did other work."""


@dataclass(slots=True, kw_only=True)
class EnergyCounter:
    """A counter of energy, and the energy since its first reading.

    Attributes:
        kind: What it counts: ``gpu``, ``cpu`` or ``dram``.
        read: Returns the counter in joules; raises ``OSError`` or ``ValueError`` if it cannot be read.
        range_joules: Value after which it starts at 0 again; ``None`` if it does not, or if this is unknown.
    """

    kind: str
    read: Callable[[], float]
    range_joules: float | None = None
    _last: float | None = field(default=None, init=False)
    _read_at: float = field(default=0.0, init=False)
    _changed_at: float = field(default=0.0, init=False)
    _joules: float = field(default=0.0, init=False)
    _was_reset: bool = field(default=False, init=False)

    def joules(self, now: float) -> float | None:
        """Read the counter.

        Args:
            now: Time of the reading, in seconds.

        Returns:
            Joules since the first reading; ``None`` if the counter cannot be read, stands still or was reset.
        """
        try:
            value = self.read()
        except (OSError, ValueError):
            return None
        if self._last is None:
            self._last, self._read_at, self._changed_at = value, now, now
        difference = value - self._last
        if difference < 0:
            difference += self.range_joules or 0.0
            self._was_reset |= not 0 <= difference <= _MOST_WATTS * (now - self._read_at)
        if difference:
            self._changed_at = now
        self._last, self._read_at = value, now
        self._joules += difference
        if self._was_reset or now - self._changed_at >= _STILL_SECONDS:
            return None
        return self._joules


class EnergyMeter:
    """All energy counters of the machine."""

    def __init__(self, counters: Iterable[EnergyCounter]) -> None:
        """Create a meter of these counters."""
        self._counters = tuple(counters)

    def joules(self, now: float) -> dict[str, float]:
        """Return the joules since the first reading, by kind.

        A kind is missing unless all of its counters can be read: the sum over some of them would be too low.

        Args:
            now: Time of the reading, in seconds.
        """
        readings = [(counter.kind, counter.joules(now)) for counter in self._counters]
        totals: dict[str, float] = {}
        for kind in sorted({kind for kind, _ in readings}):
            values = [joules for k, joules in readings if k == kind and joules is not None]
            if len(values) == sum(counter.kind == kind for counter in self._counters):
                totals[kind] = sum(values)
        return totals


def gpu_counters(nvml: Any, devices: Iterable[Any]) -> list[EnergyCounter]:
    """Return the counters of GPUs: millijoules since the driver was loaded, on Volta and newer GPUs.

    It is the energy of the whole board, also if the run uses a part of it (MIG). Older GPUs have no such counter, and
    nothing replaces it: the power that some GPUs report covers a quarter of the time (https://arxiv.org/abs/2312.02741).
    The function is `nvmlDeviceGetTotalEnergyConsumption`
    (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html).

    Args:
        nvml: The module `pynvml`, initialised.
        devices: Handles of the GPUs.
    """

    def reader(device: Any) -> Callable[[], float]:
        def read() -> float:
            try:
                return float(nvml.nvmlDeviceGetTotalEnergyConsumption(device)) * _JOULES_PER_MILLIJOULE
            except (nvml.NVMLError, AttributeError) as error:
                raise OSError(str(error)) from None

        return read

    return [EnergyCounter(kind="gpu", read=reader(device)) for device in devices]


def processor_counters(powercap: Path = POWERCAP) -> list[EnergyCounter]:
    """Return the RAPL counters of processors and their memory, which Linux has for Intel and AMD processors.

    Zones below a package other than ``dram`` (``core``, ``uncore``) are parts of the package, and the zone ``psys``
    contains the packages: neither is added (https://docs.kernel.org/power/powercap/powercap.html,
    https://github.com/powercap/powercap/issues/3). Since Linux 5.10, only root can read a counter (CVE-2020-8694,
    https://www.intel.com/content/www/us/en/developer/articles/technical/software-security-guidance/
    advisory-guidance/running-average-power-limit-energy-reporting.html), and container runtimes hide the directory
    (https://github.com/moby/moby/security/advisories/GHSA-jq35-85cj-fj4p).

    Args:
        powercap: Directory of the power zones.
    """
    counters = []
    for zone in sorted(powercap.glob("intel-rapl:*")):
        # A zone without a readable name may be a package: without its energy the sum would be too low.
        if _PACKAGE.fullmatch(zone.name) and (_text(zone / "name") or "package").startswith("package"):
            counters.append(_zone_counter("cpu", zone))
            parts = sorted(zone.glob(f"{zone.name}:*"))
            counters += [_zone_counter("dram", part) for part in parts if _text(part / "name") == "dram"]
    return counters


def _zone_counter(kind: str, zone: Path) -> EnergyCounter:
    size = _text(zone / "max_energy_range_uj")

    def read() -> float:
        return int((zone / "energy_uj").read_text()) * _JOULES_PER_MICROJOULE

    return EnergyCounter(
        kind=kind, read=read, range_joules=int(size) * _JOULES_PER_MICROJOULE if size.isdecimal() else None
    )


def _text(path: Path) -> str:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def energy_figures(
    readings: Iterable[tuple[float, Mapping[str, float]]], window: SampleWindow, loops: int
) -> dict[str, float]:
    """Return the energy over the timed calls of a run, interpolated linearly between readings.

    Nothing is subtracted: neither idle power nor the energy of other programs. There is no figure of a kind if its
    counters could not be read at all readings from the last one before the window to the first one after it, and no
    figure at all if the window is too short for the counters or the readings, or if other work took over 10 % of it.

    Args:
        readings: Time in seconds since the epoch and joules by kind, in order.
        window: Period of the timed calls.
        loops: Calls in each stretch of the window.

    Returns:
        For each kind ``KIND_energy_joules`` over the window and ``KIND_joules_per_call``, and the length of the window,
        ``energy_window_seconds``.
    """
    ended = window.started + window.seconds
    used = _around(list(readings), window.started, ended)
    intervals = [after - before for (before, _), (after, _) in pairwise(used)]
    if (
        not intervals
        or min(intervals) <= 0
        or window.seconds < max(_LEAST_SECONDS, _LEAST_INTERVALS * max(intervals))
        or window.timed_seconds < _TIMED_SHARE * window.seconds
    ):
        return {}
    figures: dict[str, float] = {}
    for kind in sorted(set.intersection(*(set(joules) for _, joules in used))):
        first, second, *_, last_but_one, last = ((time, joules[kind]) for time, joules in used)
        energy = _between(last_but_one, last, ended) - _between(first, second, window.started)
        if energy > 0:
            figures[f"{kind}_energy_joules"] = energy
            figures[f"{kind}{JOULES_PER_CALL}"] = energy / (window.stretches * loops)
    if figures:
        figures[ENERGY_WINDOW] = window.seconds
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def _around(
    readings: Sequence[tuple[float, Mapping[str, float]]], started: float, ended: float
) -> Sequence[tuple[float, Mapping[str, float]]]:
    """Return the readings from the last one before a period to the first one after it; none if it is not covered."""
    before = [number for number, (time, _) in enumerate(readings) if time <= started]
    after = [number for number, (time, _) in enumerate(readings) if time >= ended]
    return readings[before[-1] : after[0] + 1] if before and after else ()


def _between(first: tuple[float, float], second: tuple[float, float], time: float) -> float:
    """Return the joules at a time between two readings."""
    share = (time - first[0]) / (second[0] - first[0])
    return first[1] + share * (second[1] - first[1])
