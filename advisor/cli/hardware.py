"""`advisor hardware`: the machine, the shipped profiles, and instances of cloud providers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from advisor import api
from advisor.api.option import option_fields
from advisor.api.options import (
    ChoiceOptions,
    IndexOptions,
    MemoryOptions,
    ProjectFiles,
    ProjectOptions,
    ResolutionOptions,
    TargetOptions,
)
from advisor.cli.command_help import CommandGroup
from advisor.cli.console import print_report, report_layout
from advisor.cli.options import (
    FormatOption,
    HardwareOption,
    KnowledgeOption,
    Only,
    check_format,
    expand_options,
    print_either,
    print_json,
)
from advisor.report.hardware import hardware_table, machine_lines, machine_record
from knowledge.domain.errors import InputError, suggest
from knowledge.hardware.accelerators import model_of
from knowledge.hardware.profiles import find_profile
from knowledge.hardware.shipped_machines import (
    PROVIDERS,
    ShippedMachine,
    cloud_instances,
    find_machine,
    shipped_machines,
)

app = CommandGroup(help="Show and compare hardware.")
_OF_CHOICE = tuple(f.name for f in option_fields(ResolutionOptions) if f.name != "objective")
"""Options of the best stack that the choice of a machine has; it has an objective of its own."""
_PROCESSOR = "processor"
"""Kind of a machine without an accelerator."""


@app.command("choose")
@expand_options
def choose_hardware(
    files: ProjectFiles,
    target: Annotated[TargetOptions, Only(("python", "platform"))],
    choice: ChoiceOptions,
    memory: MemoryOptions,
    resolution: Annotated[ResolutionOptions, Only(_OF_CHOICE)],
    indexes: IndexOptions,
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="text, json or html.")] = "text",
) -> None:
    """Rank machines for a workload by predicted time, cost or energy, each with its best stack.

    Times come from published measurements of accelerators, prices from files. Nothing is fetched but the pages of the
    package index.
    """
    from advisor.report.hardware_choice import hardware_choice_document, hardware_choice_text
    from advisor.report.hardware_plot import hardware_choice_page

    check_format(format, among=("text", "json", "html"))
    options = ProjectOptions(files=files, target=target, resolution=resolution, indexes=indexes)
    result = api.hardware_choice.choose_hardware(options, choice, memory)
    if format == "json":
        print_json(hardware_choice_document(result))
    elif format == "html":
        typer.echo(hardware_choice_page(result))
    else:
        print_report(hardware_choice_text(result, report_layout()))


@app.command("compare")
def compare_hardware(
    accelerator: Annotated[str, typer.Argument(metavar="ACCELERATOR", help="An accelerator or a hardware profile.")],
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="The one to compare with.")],
    workload: Annotated[str, typer.Option("--workload", metavar="NAME", help="Workload to predict for.")],
    format: FormatOption = "text",
    knowledge: KnowledgeOption = None,
) -> None:
    """Predict how much faster one accelerator is than another, from published measurements."""
    # The tables of accelerators need NumPy.
    from advisor.report.accelerators import hardware_comparison_document, hardware_comparison_text

    comparison = api.queries.compare_hardware(accelerator, reference, workload=workload, knowledge=knowledge)
    if format == "json":
        print_json(hardware_comparison_document(comparison))
    else:
        print_report(hardware_comparison_text(comparison, report_layout()))


@app.command("show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Profile, cloud instance or file.\n"
            "A shipped profile, a cloud instance, a YAML or JSON file, or `detect`.",
        ),
    ] = None,
    hardware: HardwareOption = None,
    format: FormatOption = "text",
) -> None:
    """Print a hardware profile, by default this machine's, and what the catalogue states about its accelerators."""
    choice = name or hardware or "detect"
    profile = find_profile(choice)
    machine = find_machine(choice)
    model = machine.model if machine is not None else None
    if model is None:
        model = next((model_of(accelerator) for accelerator in profile.accelerators), None)
    print_either(format, machine_record(profile, machine), "\n".join(machine_lines(profile, model, machine)))


@app.command("list")
def list_profiles(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Only names or models with this text.")] = None,
    vendor: Annotated[
        str | None, typer.Option("--vendor", metavar="NAME", help="Vendor of the accelerator or the processor.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Kind of device.\n`data-centre`, `workstation`, `consumer`, `embedded` or `processor`.",
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option("--architecture", metavar="NAME", help="Architecture, capability or gfx target."),
    ] = None,
    min_memory: Annotated[
        float | None,
        typer.Option("--min-memory", metavar="GIB", help="Least memory of an accelerator or machine."),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option("--instances", metavar="PROVIDER", help="Instances of aws, gcp, azure or all instead."),
    ] = None,
    format: FormatOption = "text",
) -> None:
    """List the shipped profiles, or instances of cloud providers."""
    machines = list(shipped_machines().values())
    if instances is not None:
        check_format(instances, among=(*PROVIDERS, "all"), what="cloud provider")
        machines = [m for m in cloud_instances().values() if instances in (m.provider, "all")]
    for option, value, names_of in (
        ("vendor", vendor, _vendor),
        ("kind", kind, _kind),
        ("architecture", architecture, _architectures),
    ):
        if value is not None:
            _check_filter(option, value, {name for machine in machines for name in names_of(machine)})
            machines = [machine for machine in machines if value.lower() in names_of(machine)]
    if min_memory is not None:
        machines = [m for m in machines if _memory(m) >= min_memory * 2**30]
    if text is not None:
        machines = [m for m in machines if text.lower() in f"{m.name} {_model(m)}".lower()]
    if not machines:
        raise InputError("no profile has these properties", hint="`advisor hardware list` lists all of them")
    print_either(format, [machine_record(m.profile, m) for m in machines], hardware_table(machines))


def _check_filter(option: str, value: str, values: Iterable[str]) -> None:
    """Refuse a value that no profile has."""
    choices = sorted(choice for choice in values if choice)
    if value.lower() not in choices:
        raise InputError(f"no profile has {option} `{value}`", hint=suggest(value.lower(), choices))


def _vendor(machine: ShippedMachine) -> tuple[str, ...]:
    """Return the vendor of the accelerator, or of the processor by its usual name."""
    vendor = machine.profile.cpu.vendor
    usual = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(vendor, vendor.lower())
    return (machine.model.vendor if machine.model is not None else usual,)


def _kind(machine: ShippedMachine) -> tuple[str, ...]:
    return (machine.model.kind if machine.model is not None else _PROCESSOR,)


def _architectures(machine: ShippedMachine) -> tuple[str, ...]:
    model = machine.model
    if model is None:
        return (machine.profile.cpu.microarchitecture,)
    return tuple(value for value in (model.architecture, model.compute_capability, model.gfx) if value)


def _memory(machine: ShippedMachine) -> int:
    of_model = machine.model.memory_bytes if machine.model is not None else machine.profile.memory_bytes
    return of_model or 0


def _model(machine: ShippedMachine) -> str:
    return machine.model.model if machine.model is not None else machine.profile.cpu.model
