"""The machine of a published measurement, by the catalogue of accelerators."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import combinations

from knowledge.domain.hardware import Accelerator, Cpu, Driver, HardwareProfile
from knowledge.exchange.admission import peak_flops
from knowledge.exchange.published.measurement import Measurement
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator
from knowledge.hardware.partitions import part_of, share_of, states_part
from knowledge.hardware.shipped_machines import find_processor

_VENDORS = {
    "amd": r"radeon|instinct|\bmi\d{2,3}",
    "google": r"\btpu\b",
    "intel": r"gaudi|\barc\b|\bmax 1\d50",
    "apple": r"\bm[1-9]\b|apple",
}
_BETWEEN_NAMES = re.compile(r"[,/;|&+\\\u2013\u2014\u3001]|\b(?:and|or|vs|versus|with)\b\.?", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r"[-\s:]+")
_CPU = re.compile(r"cpu|none|xeon|epyc|ryzen|core i\d", re.IGNORECASE)


def is_cpu(gpu: str) -> bool:
    """Whether the text of a GPU says that there is none."""
    return _CPU.fullmatch(gpu) is not None


@cache
def accelerators_in(gpu: str) -> tuple[str, ...]:
    """Return the names in a cell of a GPU if it names different ones: ``A100, V100``; empty if it does not.

    Several equal GPUs, such as ``8x A100``, are one name, and so is ``DGX A100, 8x A100 80GB``.
    """
    plain = gpu.replace("_", " ")
    parts = [part.strip() for part in _BETWEEN_NAMES.split(plain)]
    # `A100 V100`: between words, only different families are different names.
    words = {
        model.family: word for word in _BETWEEN_WORDS.split(plain) if (model := find_accelerator(word)) is not None
    }
    variants = {part: _variants(part) for part in parts}
    listed = tuple(part for part, names in variants.items() if names)
    if any(not variants[one] & variants[other] for one, other in combinations(listed, 2)):
        return listed
    return tuple(words.values()) if len(words) > 1 else ()


def _variants(name: str) -> frozenset[str]:
    """Return the names of the models that a name can mean; empty if it names neither an accelerator nor a processor."""
    if is_cpu(name):
        return frozenset({"cpu"})
    model = find_accelerator(name)
    return frozenset(model.variants or (model.name,)) if model is not None else frozenset()


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
    if accelerator is None:
        cpu = find_processor(cpu.model) or cpu
    return HardwareProfile(
        name=f"{_short(m)} x {count}" if accelerator else cpu.model or "cpu",
        cpu=cpu,
        accelerators=(accelerator,) if accelerator else (),
        driver=Driver(version=driver) if driver else None,
        nodes=nodes,
    )


def unknown_gpu(m: Measurement) -> str | None:
    """Return the name of a GPU that the catalogue does not contain; ``None`` if it does, or if there is no GPU."""
    if not m.gpu or is_cpu(m.gpu) or _model(m) is not None:
        return None
    return m.gpu


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
    # Of a part of a GPU, the spelling says which: `A100-4-20C` is not `A100-7-40C`.
    return (
        model.name
        if model is not None and not states_part(m.gpu)
        else re.sub(r"[^a-z0-9]+", "-", m.gpu.lower()).strip("-")
    )


def largest_flops(m: Measurement) -> float | None:
    """Return the peak rate of a measurement's GPUs in operations per second, for any element type; ``None`` if unknown.

    Of a slice whose share of the GPU is known, it is this share of the peak of the whole GPU.
    """
    hardware = make_hardware(m)
    bound = peak_flops(hardware, "cuda", "as-published")
    return bound * (hardware.nodes or 1) * (slice_share(m) or 1.0) if bound is not None else None


def slice_share(m: Measurement) -> float | None:
    """Return the share of a GPU that the name of its slice states; ``None`` if it states none."""
    model = _model(m)
    return share_of(model.family, m.gpu) if model is not None else None
