"""Reports of machines: a table of shipped profiles, and one machine with what the catalogue states about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from advisor.domain.words import count, memory_text, rate_text
from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.hardware.accelerators import AcceleratorModel
from knowledge.hardware.detect import UNUSABLE
from knowledge.hardware.matrix_features import element_types, matrix_features, matrix_units, name_gap
from knowledge.hardware.shipped_machines import ShippedMachine

_GIB = 2**30
_HEADS = ("name", "accelerator or processor", "architecture", "memory", "bandwidth", "capability", "year")
_RIGHT = (3, 4)
"""Columns of numbers, which are aligned at the right."""


def hardware_table(machines: Iterable[ShippedMachine]) -> str:
    """Return machines as a table with aligned columns, without a line that ends in spaces."""
    rows = [_HEADS, *map(_row, machines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in _RIGHT else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(machine: ShippedMachine) -> tuple[str, ...]:
    """Return the cells of a machine; memory and bandwidth are those of one accelerator, if it has one."""
    profile, model = machine.profile, machine.model
    if model is None:
        cpu = profile.cpu
        return machine.name, cpu.model, cpu.microarchitecture, memory_text(profile.memory_bytes), "", "", ""
    accelerators = profile.accelerators[0]
    device = f"{accelerators.count} x {model.model}" if machine.provider else model.model
    return (
        machine.name,
        device,
        model.architecture,
        memory_text(model.memory_bytes),
        rate_text(model.memory_bytes_per_second, "B/s"),
        model.compute_capability or model.gfx or "",
        str(model.year or ""),
    )


def machine_record(profile: HardwareProfile, machine: ShippedMachine | None) -> dict[str, Any]:
    """Return a profile as JSON-serialisable values that can be read back, with the facts of the catalogue."""
    record = {**asdict(profile), "matrix": _matrix_record(profile.cpu)}
    if machine is not None:
        record["source"] = list(machine.sources)
        if machine.model is not None:
            record["catalogue"] = model_record(machine.model)
    return record


def _matrix_record(cpu: Cpu) -> dict[str, Any]:
    """Return what decides about matrix arithmetic on a processor; null for what is not known or does not apply."""
    features, units, gap = matrix_features(cpu), matrix_units(cpu), name_gap(cpu)
    return {
        "features": None if features is None else list(features),
        "units": dict(zip(element_types(), (unit or None for unit in units), strict=True)) if units else None,
        "beyond_microarchitecture": list(gap.beyond) if gap else [],
        "nearest_microarchitecture": gap.nearest or None if gap else None,
        "missing_for_nearest": list(gap.missing) if gap else [],
    }


def model_record(model: AcceleratorModel) -> dict[str, Any]:
    """Return an entry of the catalogue as JSON-serialisable values; facts that its sources do not state are null."""
    names = (field for field in AcceleratorModel.__dataclass_fields__ if field not in ("flops", "sources", "variants"))
    return {
        **{name: getattr(model, name) for name in names},
        "flops": dict(model.flops),
        "sources": list(model.sources),
    }


def machine_lines(
    profile: HardwareProfile, model: AcceleratorModel | None, machine: ShippedMachine | None
) -> Iterator[str]:
    """Yield the lines of a machine: its profile, what the catalogue states about its accelerators, and the sources."""
    yield from _profile_lines(profile)
    if model is not None:
        yield from _model_lines(model)
    sources = machine.sources if machine is not None else model.sources if model is not None else ()
    for source in sources:
        yield f"source          {source}"


def _profile_lines(profile: HardwareProfile) -> Iterator[str]:
    cpu = profile.cpu
    counts = [
        count(number, name)
        for number, name in ((cpu.sockets, "socket"), (cpu.cores, "core"), (cpu.threads, "thread"))
        if number
    ]
    yield f"profile         {profile.name}"
    yield f"cpu             {cpu.model or 'unnamed'} ({cpu.vendor or 'vendor unknown'})"
    yield f"architecture    {cpu.architecture}, microarchitecture {cpu.microarchitecture}"
    yield from _matrix_lines(cpu)
    numa = "NUMA nodes not known" if profile.numa_nodes is None else count(profile.numa_nodes, "NUMA node")
    yield f"topology        {', '.join(counts) or 'not known'}; {numa}"
    yield f"features        {' '.join(cpu.features) or 'not known'}"
    memory = f"{profile.memory_bytes / _GIB:.1f} GiB" if profile.memory_bytes else "not known"
    yield f"memory          {memory}"
    yield f"system          {profile.os}, {profile.libc or 'C library not known'} {profile.libc_version}".rstrip()
    yield f"virtualisation  {profile.virtualisation or 'none found'}"
    if not profile.accelerators:
        yield "accelerators    none found"
    for accelerator in profile.accelerators:
        yield f"accelerators    {accelerator.count} x {accelerator.model}, {_accelerator(accelerator)}"
    if profile.driver:
        newest = profile.driver.newest_cuda
        yield f"driver          {profile.driver.version}" + (f", CUDA up to {newest}" if newest else "")
    elif profile.accelerators:
        yield "driver          not known"
    for reason in profile.unknown:
        unusable = reason.removeprefix(f"{UNUSABLE}: ")
        yield f"not known       {reason}" if unusable == reason else f"not usable      {unusable}"


def _matrix_lines(cpu: Cpu) -> Iterator[str]:
    """Yield what decides about matrix arithmetic on a processor, and what the name of its microarchitecture hides."""
    features = matrix_features(cpu)
    if features is None:
        yield "matrix features not known"
        return
    yield f"matrix features {' '.join(features) or 'none'}"
    units = (f"{name}: {unit or 'none'}" for name, unit in zip(element_types(), matrix_units(cpu), strict=True))
    yield f"matrix units    {', '.join(units)}"
    gap = name_gap(cpu)
    if gap is not None:
        yield f"beyond the name {' '.join(gap.beyond)}: {cpu.microarchitecture} does not have these"
        if gap.nearest:
            yield f"nearest name    {gap.nearest} without {' '.join(gap.missing)}, which the system does not list"


def _model_lines(model: AcceleratorModel) -> Iterator[str]:
    """Yield what the catalogue states about an accelerator; facts that its sources do not state are left out."""
    year = f", {model.year}" if model.year else ""
    units = {name: "OP/s" if name == "int8" else "FLOP/s" for name in model.flops}
    bandwidth = rate_text(model.interconnect_bytes_per_second or None, "B/s")
    rows = (
        ("catalogue", f"{model.name}: {model.kind}, {model.architecture}{year}"),
        ("target", model.gfx),
        ("tensor cores", f"generation {model.tensor_core_generation}" if model.tensor_core_generation else ""),
        ("bandwidth", rate_text(model.memory_bytes_per_second or None, "B/s")),
        ("peak rates", ", ".join(f"{name} {rate_text(rate, units[name])}" for name, rate in model.flops.items())),
        ("interconnect", ", ".join(filter(None, [model.interconnect, bandwidth])) if model.interconnect else ""),
        ("power", f"{model.watts:g} W" if model.watts else ""),
    )
    yield from (f"{label:16}{text}" for label, text in rows if text)


def _accelerator(accelerator: Accelerator) -> str:
    facts = [f"{accelerator.memory_bytes / _GIB:.0f} GiB" if accelerator.memory_bytes else "memory not known"]
    if accelerator.compute_capability:
        facts.append(f"compute capability {accelerator.compute_capability}")
    if accelerator.interconnect:
        facts.append(accelerator.interconnect)
    if accelerator.numa_nodes:
        facts.append(f"NUMA {','.join(map(str, accelerator.numa_nodes))}")
    if accelerator.partition:
        facts.append(accelerator.partition)
    return ", ".join(facts)
