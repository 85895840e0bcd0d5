"""Names of machines: rows of tables and choices of forms name a processor or an accelerator, not a hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.dashboard.site import Site
from knowledge.domain.hardware import HardwareProfile
from knowledge.evidence.stacks import is_machine


def machines(site: Site, identities: Iterable[str]) -> Mapping[str, HardwareProfile]:
    """Return the hardware profiles of machines by identity; each is read once."""
    profiles: dict[str, HardwareProfile] = site.memory.setdefault("machines", {})
    if not profiles.keys() >= set(identities):
        profiles |= {machine.identity: machine for machine in site.store.machines()}
    return profiles


def device_name(profile: HardwareProfile, device: str) -> str:
    """Return the model of the accelerator, or the microarchitecture of the processor, that a device stands for."""
    if device != "cpu":
        accelerator = profile.gpu or next(iter(profile.accelerators), None)
        if accelerator is not None:
            return accelerator.model
    return profile.cpu.microarchitecture or profile.cpu.model or "unknown"


def selected_machines(site: Site, identities: Iterable[str], name: str) -> frozenset[str]:
    """Return the identities of machines with a name, as `advisor knowledge compare --hardware` selects them."""
    listed = tuple(identities)
    profiles = machines(site, listed)
    return frozenset(i for i in listed if not name or is_machine(profiles[i], name))
