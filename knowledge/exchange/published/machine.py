"""The machine of a published measurement, by the catalogue of accelerators."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from knowledge.domain.hardware import Accelerator, Cpu, Driver, HardwareProfile
from knowledge.exchange.published.measurement import Measurement
from knowledge.hardware.accelerators import AcceleratorModel, closest_models, find_accelerator
from knowledge.hardware.partitions import part_of

_VENDORS = {
    "amd": r"radeon|instinct|\bmi\d{2,3}",
    "google": r"\btpu\b",
    "intel": r"gaudi|\barc\b|\bmax 1\d50",
    "apple": r"\bm[1-9]\b|apple",
}
_CPU = re.compile(r"cpu|none|xeon|epyc|ryzen|core i\d", re.IGNORECASE)


def is_cpu(gpu: str) -> bool:
    """Whether the text of a GPU says that there is none."""
    return _CPU.fullmatch(gpu) is not None


@cache
def find_model(gpu: str, table: str) -> AcceleratorModel | None:
    """Return the accelerator of a published name.

    Args:
        gpu: Name of the GPU.
        table: Text that may name the machine, such as ``Training performance: NVIDIA DGX-1 (8x V100 16GB)``; it counts
            if it names a variant of the same GPU.
    """
    spelling = gpu.replace("_", " ")
    model = find_accelerator(spelling)
    machine = table.rpartition(":")[2].strip()
    if model is not None and machine:
        described = find_accelerator(machine)
        if described is not None and described.name.startswith(model.name):
            return described
    return model


def make_hardware(m: Measurement) -> HardwareProfile:
    """Return the machine of a measurement."""
    driver = m.row.text("driver")
    nodes = m.configuration.nodes or 1
    count = max(1, m.gpus // nodes)
    accelerator = _accelerator(m, count)
    cpu = Cpu(architecture="x86_64", microarchitecture="", model=m.row.text("cpu"))
    return HardwareProfile(
        name=f"{_short(m)} x {count}" if accelerator else "cpu",
        cpu=cpu,
        accelerators=(accelerator,) if accelerator else (),
        driver=Driver(version=driver) if driver else None,
        nodes=nodes,
    )


def unknown_gpu(m: Measurement) -> str | None:
    """Return the name of a GPU that the catalogue does not contain; none if it does, or if there is no GPU."""
    if not m.gpu or is_cpu(m.gpu) or _model(m) is not None:
        return None
    return m.gpu


def hint_for(gpu: str) -> str:
    """Return the nearest names of the catalogue as a hint; empty if there are none."""
    nearest = closest_models(gpu)[:3]
    return f"the nearest known ones are {', '.join(f'`{name}`' for name in nearest)}" if nearest else ""


def _model(m: Measurement) -> AcceleratorModel | None:
    return find_model(m.gpu, str(m.configuration.described.get("table", "")))


def _accelerator(m: Measurement, count: int) -> Accelerator | None:
    if not m.gpu or is_cpu(m.gpu):
        return None
    model = _model(m)
    if model is not None:
        return part_of(model.accelerator(count), m.gpu)
    vendor = next((v for v, pattern in _VENDORS.items() if re.search(pattern, m.gpu, re.IGNORECASE)), "nvidia")
    accelerator = Accelerator(vendor=vendor, model=m.gpu.replace("_", " "), count=count)
    return replace(accelerator, partition=part_of(accelerator, m.gpu).partition)


def _short(m: Measurement) -> str:
    model = _model(m)
    return model.name if model is not None else re.sub(r"[^a-z0-9]+", "-", m.gpu.lower()).strip("-")


def largest_flops(m: Measurement) -> float | None:
    """Return the peak rate of a measurement's GPUs in operations per second, for any element type; none if unknown."""
    from knowledge.admission.plausibility import peak_flops

    hardware = make_hardware(m)
    bound = peak_flops(hardware, "cuda", "as-published")
    return bound * (hardware.nodes or 1) if bound is not None else None
