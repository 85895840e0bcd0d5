"""Machines that ship with the program: an accelerator or a processor with a typical host, and cloud instances."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.hardware.accelerators import AcceleratorModel, accelerator_models
from knowledge.records import shipped_yaml

_RUNNABLE = ("nvidia", "amd")
"""Vendors whose accelerators all run a framework that the program advises on."""
_GIB = 2**30
_BRANDS = re.compile(r"^(?:(?:nvidia|amd|intel|geforce|tesla|radeon|instinct)[^a-z0-9]*)+", re.IGNORECASE)
_CPU_SOURCE = "https://github.com/archspec/archspec-json/blob/master/cpu/microarchitectures.json"
PROVIDERS = {"aws": "Amazon EC2", "gcp": "Google Compute Engine", "azure": "Microsoft Azure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedMachine:
    """A machine that ``--hardware`` names.

    Attributes:
        profile: The machine.
        model: Entry of its accelerators in the catalogue, or ``None``.
        sources: Addresses of the pages that state its properties.
        provider: Cloud provider of an instance: ``aws``, ``gcp`` or ``azure``; else empty.
    """

    profile: HardwareProfile
    model: AcceleratorModel | None = None
    sources: tuple[str, ...]
    provider: str = ""

    @property
    def name(self) -> str:
        """Name of the profile."""
        return self.profile.name


@cache
def shipped_machines() -> Mapping[str, ShippedMachine]:
    """Return the machines of shipped profiles by name: each accelerator with a typical host, and processors."""
    document = _hosts()
    models = {model.name: model for model in accelerator_models() if _runs_a_framework(model)}
    short_names = {name: models[target] for name, target in document["short_names"].items()}
    named_models = {**{name: model for name, model in models.items() if not model.variants}, **short_names}
    machines = [_with_accelerator(name, model, document) for name, model in named_models.items()]
    machines += _shipped_processors()
    return {machine.name: machine for machine in sorted(machines, key=lambda machine: machine.name)}


def _hosts() -> Mapping[str, Any]:
    return shipped_yaml("knowledge.hardware", "machines", "hosts.yaml")


def _shipped_processors() -> list[ShippedMachine]:
    return [_processor(name, **facts) for name, facts in _hosts()["processors"].items()]


@cache
def cloud_instances() -> Mapping[str, ShippedMachine]:
    """Return the known instances of cloud providers by name, in the order of the providers' lists."""
    return {machine.name: machine for provider in PROVIDERS for machine in _instances(provider)}


def find_machine(name: str) -> ShippedMachine | None:
    """Return the machine of a shipped profile or a cloud instance, in any spelling; ``None`` if there is none.

    Case, separators and brands do not count, and a driver's name of an accelerator stands for its profile:
    ``RTX 4090``, ``rtx-4090`` and ``NVIDIA GeForce RTX 4090`` are ``rtx4090``. Azure's names may lack ``Standard_``.
    """
    key = _key(name)
    # The catalogue of accelerators and the lists of instances take much longer to read.
    for machine in _shipped_processors():
        if _key(machine.name) == key:
            return machine
    machines = _machines_by_key()
    return next((machines[k] for k in (key, f"standard{key}", _key(_BRANDS.sub("", name))) if k in machines), None)


@cache
def _machines_by_key() -> Mapping[str, ShippedMachine]:
    machines = [*shipped_machines().values(), *cloud_instances().values()]
    models = {_key(m.model.model): m for m in machines if m.model is not None and m.model.name == m.name}
    return models | {_key(machine.name): machine for machine in machines}


def _key(spelling: str) -> str:
    return re.sub(r"[^a-z0-9]", "", spelling.lower())


def _runs_a_framework(model: AcceleratorModel) -> bool:
    return model.vendor in _RUNNABLE or (model.vendor == "intel" and not model.family.startswith("gaudi"))


def _with_accelerator(name: str, model: AcceleratorModel, document: Mapping[str, Any]) -> ShippedMachine:
    hosts: Mapping[str, str] = document["accelerator_hosts"]
    host = hosts.get(model.name) or hosts.get(model.family) or "any-x86-64"
    if host in document["hosts"]:
        facts = document["hosts"][host]
        cpu, source = Cpu(**facts["cpu"]), str(facts["source"])
    else:
        instance = cloud_instances()[host]
        # One GPU of such a machine: how many processors the instance has does not matter to the profile.
        cpu, source = replace(instance.profile.cpu, model="", threads=None), instance.sources[0]
    # The driver is not named, so that any stack whose CUDA runtime a current driver serves may be advised.
    profile = _linux(name, cpu)
    return ShippedMachine(
        profile=replace(profile, accelerators=(model.accelerator(),)), model=model, sources=(*model.sources, source)
    )


def _processor(
    name: str,
    *,
    os: str = "linux",
    architecture: str = "x86_64",
    features: Sequence[str] = (),
    source: str = "",
    **cpu: Any,
) -> ShippedMachine:
    processor = Cpu(architecture=architecture, features=tuple(features), **cpu)
    profile = _linux(name, processor) if os == "linux" else HardwareProfile(name=name, cpu=processor, os=os)
    return ShippedMachine(profile=profile, sources=(_CPU_SOURCE, source) if source else (_CPU_SOURCE,))


def _linux(name: str, cpu: Cpu) -> HardwareProfile:
    return HardwareProfile(name=name, cpu=cpu, os="linux", libc="glibc", libc_version="2.28")


def find_processor(model: str) -> Cpu | None:
    """Return a processor by its marketing name; ``None`` if it is not listed."""
    return _processors()[model][0] if model in _processors() else None


@cache
def _processors() -> Mapping[str, tuple[Cpu, str]]:
    """Return each listed processor, with the page that states its properties, by its marketing name."""
    listed = shipped_yaml("knowledge.hardware", "machines", "processors.yaml")["processors"]
    return {
        model: (Cpu(model=model, **{name: fact for name, fact in facts.items() if name != "source"}), facts["source"])
        for model, facts in listed.items()
    }


def _instances(provider: str) -> Iterator[ShippedMachine]:
    models = {model.name: model for model in accelerator_models()}
    for group in shipped_yaml("knowledge.hardware", "machines", f"{provider}.yaml")["groups"]:
        cpu, cpu_source = _processors()[group["processor"]]
        model = models[group["accelerator"]] if "accelerator" in group else None
        sources = (group["source"], cpu_source, *(model.sources if model is not None else ()))
        for name, (threads, memory_gib, count) in group["instances"].items():
            profile = replace(
                _linux(name, replace(cpu, threads=threads)),
                memory_bytes=None if memory_gib is None else int(memory_gib * _GIB),
                accelerators=(_accelerator(model, count, group.get("accelerator_gib")),) if model is not None else (),
            )
            yield ShippedMachine(profile=profile, model=model, sources=tuple(dict.fromkeys(sources)), provider=provider)


def _accelerator(model: AcceleratorModel, count: int, part_gib: float | None) -> Accelerator:
    """Return the accelerators of an instance; with the memory of each if they are parts of physical ones."""
    accelerator = model.accelerator(count)
    if part_gib is None:
        return accelerator
    return replace(accelerator, memory_bytes=int(part_gib * _GIB), partition="vgpu")
