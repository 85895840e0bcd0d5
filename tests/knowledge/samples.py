"""Invented observations for tests of the store, files and the estimator; none of them is a measurement."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from knowledge.catalogue.slower import SlowerRule
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import Accelerator, Cpu, Driver, HardwareProfile
from knowledge.domain.observation import IndicatorRun, Observation, Status
from knowledge.domain.stack import PackageVersion, make_stack
from knowledge.hardware.detect import detect
from knowledge.hardware.nvml import NvmlReading, group_devices
from knowledge.hardware.profiles import find_profile
from tests.conftest import MACHINES

MACHINE = HardwareProfile(
    name="made-up", cpu=Cpu(architecture="x86_64", microarchitecture="zen4", vendor="AuthenticAMD"), libc="glibc"
)
RUN = IndicatorRun(
    name="matmul", version=1, backend="numpy", device="cpu", dtype="float32", parameters={"m": 8, "n": 8, "k": 8}
)


def observation(
    version: str = "2.0.0",
    *,
    seconds: float = 1.0,
    round: int = 0,
    arm: int = 0,
    reference: bool = False,
    status: Status = "ok",
    block: str = "b1",
    hardware: HardwareProfile = MACHINE,
) -> Observation:
    """Build an observation of NumPy."""
    return Observation(
        indicator=RUN,
        framework="numpy",
        stack=make_stack(
            [PackageVersion(name="numpy", version=version)], python="3.11.7", platform="manylinux_2_28_x86_64"
        ),
        hardware=hardware,
        block=block,
        round=round,
        arm=arm,
        reference=reference,
        started_at="2026-01-01T00:00:00Z",
        status=status,
        samples=(seconds, seconds * 1.01, seconds * 0.99) if status == "ok" else (),
        loops=1,
        failure="" if status == "ok" else "made to fail",
    )


def block(ratios: dict[str, float], *, rounds: int = 6, drift: float = 0.0, name: str = "b1") -> Iterator[Observation]:
    """Yield a block in which ``version`` has ``1 / ratio`` of the first one's time; rounds have a drift."""
    noise = (0.0, 0.004, -0.003, 0.001, -0.002, 0.003, -0.001, 0.002)
    for number in range(rounds):
        for arm, (version, ratio) in enumerate(ratios.items()):
            level = 1.0 + drift * number + noise[(number + 3 * arm) % len(noise)]
            yield observation(version, seconds=level / ratio, round=number, arm=arm, reference=arm == 0, block=name)


def invented_blocks(framework: str, ratios: dict[str, float], *, device: str, hardware: str) -> Iterator[Observation]:
    """Yield invented blocks in which versions of a framework have given ratios of speed: of operations and models.

    Args:
        framework: Distribution that provides the framework.
        ratios: Speed of each version relative to the first one; settings follow a version, as in ``2.20.0 xla=on``.
        device: ``cpu`` or ``cuda``.
        hardware: Name or file of a hardware profile.
    """
    machine = find_profile(hardware)
    backend = FRAMEWORKS[framework]
    arms = list(ratios)
    numbered = {str(number): ratio for number, ratio in enumerate(ratios.values())}
    for name in ("matmul", "sort", "resnet50", "bert_base"):
        run = IndicatorRun(name=name, version=1, backend=backend, device=device, dtype="float32", parameters={"m": 8})
        if name in ("resnet50", "bert_base"):
            run = replace(run, name="model", parameters={"model": name, "mode": "training", "batch": 8})
        for observation in block(numbered, rounds=8, name=f"made-up-{framework}-{name}"):
            version, *settings = arms[observation.arm].split()
            stack = make_stack(
                [PackageVersion(name=framework, version=version)], python="3.12.0", platform="manylinux_2_28_x86_64"
            )
            yield replace(
                observation,
                indicator=run,
                framework=framework,
                stack=stack,
                hardware=machine,
                settings=dict(setting.split("=") for setting in settings),
            )


InventedArm = tuple[str, Mapping[str, str], float]
"""Version of a framework, settings, and log speed-up over the first arm."""


def invented_arms(
    arms: Sequence[InventedArm],
    *,
    framework: str = "torch",
    indicator: str = "model",
    parameters: Mapping[str, str | int],
    hardware: HardwareProfile,
    noise: float = 0.003,
    rounds: int = 12,
    flops: float = 1e9,
) -> Iterator[Observation]:
    """Yield an invented block with one reference, the first arm; on the GPU, if the hardware has one."""
    drifts = random.Random(0)
    # Further arms do not change the others.
    noises = [random.Random(number + 1) for number in range(len(arms))]
    backend, dtype = ("program", "any") if indicator == "benchmark" else (FRAMEWORKS[framework], "float32")
    run = IndicatorRun(
        name=indicator,
        version=1,
        backend=backend,
        device="cuda" if hardware.gpu else "cpu",
        dtype=dtype,
        parameters=dict(parameters),
    )
    for round_ in range(rounds):
        drift = drifts.gauss(0, 0.01)
        for number, (version, settings, gain) in enumerate(arms):
            packages = [PackageVersion(name=n, version=v) for n, v in {framework: version, "numpy": "2.4.6"}.items()]
            seconds = 0.1 * math.exp(drift + noises[number].gauss(0, noise) - gain)
            yield Observation(
                indicator=run,
                framework=framework,
                stack=make_stack(packages, python="3.11.7", platform="manylinux_2_36_x86_64"),
                hardware=hardware,
                block="mine",
                round=round_,
                arm=number,
                reference=number == 0,
                started_at=f"2026-11-26T00:{round_:02}:{number:02}+00:00",
                status="ok",
                samples=(seconds, seconds * 1.001, seconds * 0.999),
                loops=1,
                settings=dict(settings),
                flops=flops,
            )


def slower_rule(**fields: Any) -> SlowerRule:
    """Build a rule about a documented slow-down of a whole program.

    Args:
        fields: Fields that differ from `torch` 2, which takes twice the time of `torch` 1.
    """
    usual: dict[str, Any] = {
        "kind": "slower",
        "id": "slower",
        "packages": ("torch",),
        "versions": ">=2",
        "than": "1",
        "workload": "a program",
        "whole": True,
        "ratios": (2.0,),
        "source": "https://example.org",
    }
    return SlowerRule(**usual | fields)


def accelerator(*, numa_node: int | None, **facts: Any) -> Accelerator:
    return Accelerator(vendor="nvidia", numa_nodes=() if numa_node is None else (numa_node,), **facts)


def recorded(name: str) -> HardwareProfile:
    folder = MACHINES / name
    reading = NvmlReading()
    if (folder / "nvml.json").exists():
        nvml = json.loads((folder / "nvml.json").read_text())
        driver = Driver(version=nvml["driver"], newest_cuda=nvml["newest_cuda"])
        devices = [accelerator(**device) for device in nvml["devices"]]
        reading = NvmlReading(accelerators=group_devices(devices, nvml["interconnect"]), driver=driver)
    about = json.loads((folder / "about.json").read_text())
    return detect(folder, nvml=reading, machine=about["machine"])
