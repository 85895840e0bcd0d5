"""Hardware: profiles of machines, and machines compared for a workload by time, cost or energy."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from advisor.api.hardware_choice import choose_hardware
from advisor.api.machine_choice import HardwareChoice
from advisor.api.options import (
    ChoiceOptions,
    ProjectFiles,
    ProjectOptions,
    ResolutionOptions,
)
from advisor.dashboard.access import DeniedError
from advisor.dashboard.site import Site, answer, device_name, machines, site_of
from advisor.dashboard.snapshot import Snapshot
from advisor.domain.words import memory_text, rate_text
from advisor.report.hardware import machine_lines
from advisor.report.hardware_plot import content
from knowledge.domain.errors import AdvisorError
from knowledge.estimate.workloads import workload_catalogue
from knowledge.hardware.shipped_machines import find_machine, shipped_machines

router = APIRouter()
_MOST_COMPARISONS, _MOST_COMPUTED, _MOST_MACHINES = 200, 4, 20
"""Comparisons whose results are stored, those that are computed at a time, and machines of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEntry:
    """A shipped hardware profile.

    Attributes:
        name: Its name.
        model: Model of the accelerator or of the processor.
        architecture: Architecture.
        memory: Memory, for people.
        bandwidth: Bandwidth of the memory, for people.
        capability: Compute capability or gfx target; empty for a processor.
        year: Year of its release; 0 if it is not known.
    """

    name: str
    model: str
    architecture: str
    memory: str
    bandwidth: str
    capability: str
    year: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """A processor or an accelerator with observations."""

    name: str
    device: str
    observations: int
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareView:
    """Machines.

    Attributes:
        profiles: The shipped profiles that have the text in their name or model.
        measured: What was measured, with the number of observations and of machines.
        workloads: Names of workloads for which machines can be compared.
        lines: What is known of one profile, as `advisor hardware show` prints it; empty if none is named.
    """

    profiles: tuple[MachineEntry, ...]
    measured: tuple[MeasuredMachine, ...]
    workloads: tuple[str, ...]
    lines: tuple[str, ...] = ()


def hardware_view(site: Site, *, text: str = "", name: str = "") -> HardwareView:
    """Return the machines; profiles only with a text, and the details of a named one."""
    word = text.lower()
    return HardwareView(
        profiles=tuple(entry for entry in _profiles() if word in f"{entry.name} {entry.model}".lower()),
        measured=_measured(site),
        workloads=tuple(workload_catalogue()),
        lines=profile_lines(name) if name else (),
    )


@cache
def _profiles() -> tuple[MachineEntry, ...]:
    entries = []
    for machine in shipped_machines().values():
        model, cpu = machine.model, machine.profile.cpu
        entries.append(
            MachineEntry(
                name=machine.name,
                model=model.model if model else cpu.model,
                architecture=model.architecture if model else cpu.microarchitecture,
                memory=memory_text(model.memory_bytes if model else machine.profile.memory_bytes),
                bandwidth=rate_text(model.memory_bytes_per_second, "B/s") if model else "",
                capability=(model.compute_capability or model.gfx or "") if model else "",
                year=(model.year or 0) if model else 0,
            )
        )
    return tuple(entries)


def profile_lines(name: str) -> tuple[str, ...]:
    """Return what is known of a shipped profile or a cloud instance.

    Raises:
        DeniedError: If there is none of this name.
    """
    machine = find_machine(name)
    if machine is None:
        raise DeniedError(404, f"there is no hardware profile `{name[:80]}`", "the table lists the profiles")
    return tuple(machine_lines(machine.profile, machine.model, machine))


def _measured(site: Site) -> tuple[MeasuredMachine, ...]:
    groups = site.coverage(("hardware", "device"))
    profiles = machines(site, {group.key[0] for group in groups})
    numbers: dict[tuple[str, str], list[int]] = {}
    for group in groups:
        entry = numbers.setdefault((device_name(profiles[group.key[0]], group.key[1]), group.key[1]), [0, 0])
        entry[0] += group.observations
        entry[1] += 1
    ordered = sorted(numbers.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(
        MeasuredMachine(name=name, device=device, observations=observations, machines=number)
        for (name, device), (observations, number) in ordered
    )


def comparison(site: Site, names: tuple[str, ...], workload: str) -> HardwareChoice | AdvisorError | None:
    """Return machines compared for a workload, or why they are not; ``None`` while this is computed.

    Only shipped profiles and cloud instances are compared: a name is never a file.
    """
    if len(names) > _MOST_MACHINES:
        raise DeniedError(422, f"there are more than {_MOST_MACHINES} machines", "compare fewer")
    for name in names:
        if find_machine(name) is None:
            raise DeniedError(404, f"there is no hardware profile `{name[:80]}`", "the table lists the profiles")
    comparisons: dict[tuple[tuple[str, ...], str], Snapshot[HardwareChoice | AdvisorError]] = site.memory.setdefault(
        "comparisons", {}
    )
    if len(comparisons) > _MOST_COMPARISONS:
        site.memory["comparisons"] = comparisons = {k: s for k, s in comparisons.items() if s.is_computed}
    if (names, workload) not in comparisons and sum(s.is_computed for s in comparisons.values()) >= _MOST_COMPUTED:
        raise DeniedError(429, "too many machines are being compared", "try again in a minute", {"Retry-After": "60"})
    snapshot = comparisons.setdefault(
        (names, workload),
        Snapshot(lambda: _compare(site, names, workload), lambda: [block.state for block in site.store.blocks()]),
    )
    return snapshot.get(patience_seconds=0.2)


def _compare(site: Site, names: tuple[str, ...], workload: str) -> HardwareChoice | AdvisorError:
    # Without a project: its stacks would have to be resolved for each machine.
    with tempfile.TemporaryDirectory() as directory:
        options = ProjectOptions(
            files=ProjectFiles(directory=Path(directory)),
            resolution=ResolutionOptions(workload=workload, knowledge=site.knowledge),
        )
        try:
            return choose_hardware(options, ChoiceOptions(machines=names))
        except AdvisorError as error:
            return error


@router.get("/hardware", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request, text: str = "", name: str = "", machines: str = "", workload: str = "") -> HTMLResponse:
    """Show machines, and some of them compared."""
    view = hardware_view(site_of(request), text=text, name=name)
    query = {"text": text, "name": name, "machines": machines, "workload": workload}
    return answer(request, "hardware.html", page="hardware", view=view, chosen=query)


@router.get("/hardware/comparison", response_class=HTMLResponse, include_in_schema=False)
def comparison_part(request: Request, machines: str, workload: str) -> HTMLResponse:
    """Show machines compared for a workload."""
    names = tuple(name for word in machines.replace(",", " ").split() if (name := word.strip()))
    result = comparison(site_of(request), names, workload)
    error = result if isinstance(result, AdvisorError) else None
    text = content(result) if isinstance(result, HardwareChoice) else Markup("")
    query = {"machines": machines, "workload": workload}
    return answer(
        request,
        "comparison_part.html",
        page="hardware",
        text=text,
        error=error,
        is_ready=result is not None,
        query=query,
    )


@router.get("/api/hardware")
def record(request: Request, text: str = "", name: str = "") -> HardwareView:
    """Return hardware profiles and measured machines."""
    return hardware_view(site_of(request), text=text, name=name)
