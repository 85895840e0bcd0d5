"""Energy: a tree of power zones as Linux makes it, a stand-in for NVIDIA's driver, and the energy over a window."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from advisor.campaign.prometheus import PrometheusSink
from knowledge.store.engine import open_knowledge_base
from pi_runners.execution import telemetry
from pi_runners.execution.energy import EnergyMeter, energy_figures, gpu_counters, processor_counters
from pi_runners.execution.telemetry import Sampler
from pi_runners.harness.timing import SampleWindow
from tests.knowledge.samples import observation

RANGE_MICROJOULES = 262_143_328_850
"""Of an Intel processor: its counter has 32 bits of 61 microjoules."""
NOBODY = 65534


class PowerZones:
    """A copy of the directory of power zones, in which a zone has a counter of microjoules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, zone: str, name: str, microjoules: int = 0) -> Path:
        """Create a zone; Linux lists the parts of a package below it, too."""
        package = zone.rpartition(":")[0] if zone.count(":") == 2 else ""
        path = self.folder / package / zone
        path.mkdir(parents=True)
        (path / "name").write_text(f"{name}\n")
        (path / "max_energy_range_uj").write_text(f"{RANGE_MICROJOULES}\n")
        (path / "energy_uj").write_text(f"{microjoules}\n")
        if package:
            (self.folder / zone).symlink_to(path)
        return path / "energy_uj"


@pytest.fixture
def zones(tmp_path: Path) -> PowerZones:
    return PowerZones(tmp_path)


def count(counter: Path, joules: float) -> None:
    """Advance a counter, which starts at 0 again after its range."""
    counter.write_text(f"{(int(counter.read_text()) + round(joules * 1e6)) % (RANGE_MICROJOULES + 1)}\n")


def test_packages_and_their_memory_count_and_nothing_counts_twice(zones: PowerZones) -> None:
    counters = {
        zones.add("intel-rapl:0", "package-0", 7): 100,
        zones.add("intel-rapl:0:0", "core"): 60,
        zones.add("intel-rapl:0:1", "dram"): 10,
        zones.add("intel-rapl:1", "package-1-die-0", 9): 200,
        zones.add("intel-rapl:1:0", "uncore"): 50,
        zones.add("intel-rapl:1:1", "dram"): 20,
        zones.add("intel-rapl:2", "psys"): 900,
        zones.add("intel-rapl-mmio:0", "package-0"): 100,
    }
    meter = EnergyMeter(processor_counters(zones.folder))
    first = meter.joules(0.0)
    for counter, joules in counters.items():
        count(counter, joules)

    second = meter.joules(1.0)

    assert first == {"cpu": 0.0, "dram": 0.0}
    assert second == pytest.approx({"cpu": 300.0, "dram": 30.0})


def test_a_counter_that_wraps_is_continued(zones: PowerZones) -> None:
    counter = zones.add("intel-rapl:0", "package-0", RANGE_MICROJOULES - 30_000_000)
    meter = EnergyMeter(processor_counters(zones.folder))
    energies = []
    for second in range(4):
        energies.append(meter.joules(second)["cpu"])
        count(counter, 50)

    assert int(counter.read_text()) < RANGE_MICROJOULES / 2
    assert energies == pytest.approx([0.0, 50.0, 100.0, 150.0])


@pytest.mark.parametrize("size", ["", "262143328850\n"])
def test_a_counter_that_was_reset_counts_no_more(zones: PowerZones, size: str) -> None:
    counter = zones.add("intel-rapl:0", "package-0", 90_000_000_000)
    (counter.parent / "max_energy_range_uj").write_text(size)
    meter = EnergyMeter(processor_counters(zones.folder))
    meter.joules(0.0)
    counter.write_text("1000000\n")

    # After a wrap, it would have been 172 kJ in a second.
    assert meter.joules(1.0) == {}
    count(counter, 50)
    assert meter.joules(2.0) == {}


def test_a_counter_that_stands_still_is_not_reported(zones: PowerZones) -> None:
    # As in virtual machines that have the register and do not count.
    zones.add("intel-rapl:0", "package-0", 5)
    moving = zones.add("intel-rapl:0:0", "dram")
    meter = EnergyMeter(processor_counters(zones.folder))
    meter.joules(0.0)
    count(moving, 3)

    assert meter.joules(1.0) == pytest.approx({"dram": 3.0})


@contextlib.contextmanager
def reading_as_a_user() -> Iterator[None]:
    """Read files as an ordinary user, also if the tests run as root."""
    user = os.geteuid()
    os.seteuid(user or NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_counters_that_only_root_may_read_are_not_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:
        zones = PowerZones(Path(folder))
        zones.folder.chmod(0o755)
        counters = [zones.add(f"intel-rapl:{number}", f"package-{number}") for number in range(2)]
        counters[0].chmod(0o000 if os.geteuid() else 0o400)
        meter = EnergyMeter(processor_counters(zones.folder))
        with reading_as_a_user():
            # The sum over the other package would be too low.
            assert meter.joules(0.0) == {}
            assert counters[1].read_text()
            with pytest.raises(PermissionError):
                counters[0].read_text()


def test_a_package_that_vanishes_is_not_reported_and_fails_nothing(zones: PowerZones) -> None:
    counters = [zones.add(f"intel-rapl:{number}", f"package-{number}") for number in range(2)]
    meter = EnergyMeter(processor_counters(zones.folder))
    meter.joules(0.0)
    count(counters[0], 5)
    shutil.rmtree(counters[1].parent)

    assert meter.joules(1.0) == {}


def test_a_zone_without_a_name_may_be_a_package(zones: PowerZones) -> None:
    # Home Assistant's kernel lists links to zones that do not exist.
    zones.add("intel-rapl:0", "package-0")
    (zones.folder / "intel-rapl:1").symlink_to(zones.folder / "missing")

    assert EnergyMeter(processor_counters(zones.folder)).joules(0.0) == {}


def test_a_machine_without_power_zones_has_no_counters(tmp_path: Path) -> None:
    assert processor_counters(tmp_path / "missing") == []
    assert EnergyMeter([]).joules(0.0) == {}


class NVMLError(Exception):
    """Error of the driver."""


def driver(*gpus: Iterator[int]) -> Any:
    """Return a stand-in for `pynvml`: the machine of the tests has no GPU. A GPU without further energies is lost."""

    def read(device: int) -> int:
        for millijoules in gpus[device]:
            return millijoules
        raise NVMLError("GPU is lost")

    return SimpleNamespace(NVMLError=NVMLError, nvmlDeviceGetTotalEnergyConsumption=read)


def test_the_energy_of_all_gpus_is_added() -> None:
    meter = EnergyMeter(gpu_counters(driver(iter([1000, 301_000]), iter([5, 50_005])), [0, 1]))
    meter.joules(0.0)

    assert meter.joules(1.0) == pytest.approx({"gpu": 350.0})
    # Both are lost now.
    assert meter.joules(2.0) == {}


def test_a_gpu_or_a_package_of_nvidia_without_the_counter_has_no_energy() -> None:
    old = driver(iter([]), iter([5]))

    assert EnergyMeter(gpu_counters(old, [0, 1])).joules(0.0) == {}
    del old.nvmlDeviceGetTotalEnergyConsumption
    assert EnergyMeter(gpu_counters(old, [1])).joules(0.0) == {}


def readings(*, watts: float = 50.0, end: float = 20.0, interval: float = 1.0) -> list[tuple[float, dict[str, float]]]:
    """Return readings of a processor that draws 10 W until second 5 and then a constant power."""
    times = [interval * number for number in range(round(end / interval) + 1)]
    return [(t, {"cpu": 10 * min(t, 5.0) + watts * max(0.0, t - 5.0)}) for t in times]


def window(started: float = 6.25, seconds: float = 8.0, share: float = 1.0, stretches: int = 4) -> SampleWindow:
    return SampleWindow(started, seconds, share * seconds, stretches)


def test_energy_is_interpolated_over_the_timed_calls() -> None:
    figures = energy_figures(readings(), window(), loops=10)

    assert figures == {
        "cpu_energy_joules": 400.0,
        "cpu_joules_per_call": 10.0,
        "energy_window_seconds": 8.0,
    }


def test_a_jump_of_the_power_at_the_ends_of_a_window_is_at_most_10_percent() -> None:
    # The worst case: the power rises from 0 W in the middle of an interval, and falls to 0 W in another one.
    energy = [(float(t), {"gpu": 100 * min(max(t - 5.5, 0.0), 5.0)}) for t in range(20)]

    figures = energy_figures(energy, window(5.5, 5.0), loops=1)

    assert figures["gpu_energy_joules"] == pytest.approx(500.0, rel=0.1)
    assert figures["gpu_energy_joules"] != 500.0


@pytest.mark.parametrize(
    ("energy", "period"),
    [
        ([], window()),
        # It ends after the last reading, or starts before the first one.
        (readings(end=14.0), window()),
        (readings()[7:], window()),
        # Fewer than five intervals, and less than the resolution of NVML's counter.
        (readings(), window(seconds=4.9)),
        (readings(interval=0.125), window(seconds=1.9)),
        # The sampler was held up for several seconds, or the clock was set back.
        (readings()[:8] + readings()[12:], window()),
        (readings()[:10] + readings()[8:], window()),
        # The harness worked in most of the period.
        (readings(), window(share=0.5)),
        # A counter could not be read in the middle.
        (readings()[:9] + [(9.0, {})] + readings()[10:], window()),
    ],
)
def test_there_is_no_energy_without_enough_readings(
    energy: list[tuple[float, dict[str, float]]], period: SampleWindow
) -> None:
    assert energy_figures(energy, period, loops=1) == {}


def test_a_reading_that_fails_outside_of_the_window_does_not_matter() -> None:
    energy = [(0.0, {}), *readings()[1:-1], (20.0, {})]

    assert energy_figures(energy, window(), loops=1)["cpu_energy_joules"] == 400.0


def test_the_sampler_reads_counters_before_and_after_a_real_process(
    zones: PowerZones, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = zones.add("intel-rapl:0", "package-0")
    counters = processor_counters(zones.folder)
    monkeypatch.setattr(telemetry, "processor_counters", lambda: counters)
    run = f"""
import os, time
start = time.monotonic()
while time.monotonic() < start + 4.5:
    with open({str(counter)!r} + ".new", "w") as file:
        file.write(str(round((time.monotonic() - start) * 70e6)))
    os.replace(file.name, {str(counter)!r})
    time.sleep(0.01)
"""

    with (
        subprocess.Popen([sys.executable, "-c", run]) as child,
        Sampler(child.pid, memory_limit_bytes=None, stop=lambda: None, interval_seconds=0.1) as sampler,
    ):
        child.wait()

    energy = [(r.time, r.joules) for r in sampler.readings]
    assert sampler.readings[0].figures == sampler.readings[-1].figures == {}
    figures = energy_figures(energy, window(energy[-1][0] - 3.2, 3.0), loops=1)
    assert figures["cpu_energy_joules"] == pytest.approx(210.0, rel=0.1)


def test_prometheus_does_not_show_the_energy_of_an_earlier_run(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    runs = [observation(round=number) for number in range(2)]

    with open_knowledge_base("sqlite://", shipped=False) as store:
        sink = PrometheusSink(store.add, tmp_path / "figures.prom", store=store)
        sink.add([replace(runs[0], telemetry={"cpu_energy_joules": 400.0})])
        first = (tmp_path / "figures.prom").read_text()
        sink.add([runs[1]])

    assert "seshat_telemetry_cpu_energy_joules 400.0" in first
    assert "cpu_energy_joules" not in (tmp_path / "figures.prom").read_text()


def test_on_a_machine_without_counters_readings_have_no_energy() -> None:
    if any(map(os.access, Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj"), [os.R_OK] * 64)):
        pytest.skip("this machine has counters")
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"]) as child,
        Sampler(child.pid, memory_limit_bytes=None, stop=lambda: None, interval_seconds=0.2) as sampler,
    ):
        child.wait()

    assert sampler.readings
    assert all(r.figures and not r.joules for r in sampler.readings)


@pytest.mark.parametrize(
    ("supplies", "plugged", "expected"),
    [
        ({"BAT0": None}, False, True),
        ({"BAT0": None}, True, False),
        ({"BAT0": None}, None, None),
        # A wireless mouse, in a desktop computer and in a laptop.
        ({"hidpp_battery_0": "Device"}, False, None),
        ({"BAT0": "System", "hidpp_battery_0": "Device"}, False, True),
    ],
)
def test_a_machine_on_its_battery_is_marked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    supplies: dict[str, str | None],
    plugged: bool | None,
    expected: bool | None,
) -> None:
    for name, scope in supplies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text("Battery\n")
        if scope:
            (tmp_path / name / "scope").write_text(f"{scope}\n")
    # psutil reads fixed paths, and the machine of the tests has no battery.
    monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(percent=50, power_plugged=plugged))

    assert telemetry._is_on_battery(tmp_path) is expected
