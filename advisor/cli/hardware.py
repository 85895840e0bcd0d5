"""`advisor hardware`: the machine, and the shipped profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import FormatOption, HardwareOption, check_format
from advisor.domain.words import count

if TYPE_CHECKING:
    from knowledge.domain.hardware import HardwareProfile

app = typer.Typer(help="Show hardware profiles.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped profile, a YAML or JSON file, or `detect`.")
    ] = None,
    hardware: HardwareOption = None,
    format: FormatOption = "text",
) -> None:
    """Print a hardware profile; by default this machine's."""
    from knowledge.hardware.profiles import find_profile

    check_format(format)
    profile = find_profile(name or hardware or "detect")
    typer.echo(json.dumps(asdict(profile), indent=2) if format == "json" else "\n".join(_lines(profile)))


@app.command("list")
def list_profiles(format: FormatOption = "text") -> None:
    """List the shipped profiles."""
    from knowledge.hardware.profiles import shipped_names, shipped_profile

    check_format(format)
    profiles = [shipped_profile(name) for name in shipped_names()]
    if format == "json":
        typer.echo(json.dumps([asdict(profile) for profile in profiles], indent=2))
        return
    for profile in profiles:
        typer.echo(f"{profile.name:14} {_summary(profile)}")


def _summary(profile: HardwareProfile) -> str:
    gpu = next(iter(profile.accelerators), None)
    if gpu is None:
        return f"{profile.cpu.model or profile.cpu.microarchitecture} ({profile.cpu.microarchitecture}), no accelerator"
    capability = f", compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
    return f"{gpu.count} x {gpu.model}{capability}"


def _lines(profile: HardwareProfile) -> Iterator[str]:
    cpu = profile.cpu
    counts = [
        count(number, name)
        for number, name in ((cpu.sockets, "socket"), (cpu.cores, "core"), (cpu.threads, "thread"))
        if number
    ]
    yield f"profile         {profile.name}"
    yield f"cpu             {cpu.model or 'unnamed'} ({cpu.vendor or 'vendor unknown'})"
    yield f"architecture    {cpu.architecture}, microarchitecture {cpu.microarchitecture}"
    yield f"topology        {', '.join(counts) or 'not known'}; {_numa(profile)}"
    yield f"features        {' '.join(cpu.features) or 'not known'}"
    memory = f"{profile.memory_bytes / 2**30:.1f} GiB" if profile.memory_bytes else "not known"
    yield f"memory          {memory}"
    yield f"system          {profile.os}, {profile.libc or 'C library not known'} {profile.libc_version}".rstrip()
    yield f"virtualisation  {profile.virtualisation or 'none found'}"
    if not profile.accelerators:
        yield "accelerators    none found"
    for gpu in profile.accelerators:
        yield f"accelerators    {gpu.count} x {gpu.model}, {_gpu(gpu)}"
    if profile.driver:
        newest = profile.driver.newest_cuda
        yield f"driver          {profile.driver.version}" + (f", CUDA up to {newest}" if newest else "")
    elif profile.accelerators:
        yield "driver          not known"
    for reason in profile.unknown:
        yield f"not known       {reason}"


def _numa(profile: HardwareProfile) -> str:
    if profile.numa_nodes is None:
        return "NUMA nodes not known"
    return count(profile.numa_nodes, "NUMA node")


def _gpu(gpu: object) -> str:
    from knowledge.domain.hardware import Accelerator

    assert isinstance(gpu, Accelerator)
    facts = [f"{gpu.memory_bytes / 2**30:.0f} GiB" if gpu.memory_bytes else "memory not known"]
    if gpu.compute_capability:
        facts.append(f"compute capability {gpu.compute_capability}")
    if gpu.interconnect:
        facts.append(gpu.interconnect)
    if gpu.numa_nodes:
        facts.append(f"NUMA {','.join(map(str, gpu.numa_nodes))}")
    if gpu.partition:
        facts.append(gpu.partition)
    return ", ".join(facts)
