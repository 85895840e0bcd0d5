"""Hardware profiles: the machine that a stack runs on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from knowledge.domain.identity import StrictRecord, content_hash

DETECTED = "detected"
"""Name of the profile of the machine that the program runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu(StrictRecord):
    """The processors of a machine.

    Attributes:
        architecture: Machine name as in wheel tags, such as ``x86_64`` or ``aarch64``.
        microarchitecture: archspec name, such as ``zen4``.
        vendor: archspec vendor, such as ``GenuineIntel``.
        model: Marketing name as the system reports it.
        features: Instruction-set features that programs can use, sorted; empty if they are unknown.
        sockets: Physical packages; ``None`` if unknown.
        cores: Physical cores over all sockets.
        threads: Logical processors over all sockets.
    """

    architecture: str
    microarchitecture: str
    vendor: str = ""
    model: str = ""
    features: tuple[str, ...] = ()
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(StrictRecord):
    """Identical accelerators of one machine.

    Attributes:
        vendor: ``nvidia`` or ``amd``.
        model: Name as the driver reports it.
        compute_capability: ``major.minor`` of an NVIDIA GPU.
        memory_bytes: Memory of one device.
        count: Number of these devices in the machine.
        interconnect: Interconnect of the devices: ``nvlink``, ``pcie`` or empty.
        numa_nodes: NUMA node of each device, in device order; empty if unknown.
        partition: ``mig`` or ``vgpu`` if the device is a partition of a physical one.
    """

    vendor: str
    model: str
    compute_capability: str | None = None
    memory_bytes: int | None = None
    count: int = 1
    interconnect: str = ""
    numa_nodes: tuple[int, ...] = ()
    partition: str = ""

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability as numbers, or ``None`` if it is unknown."""
        return None if self.compute_capability is None else read_capability(self.compute_capability)


def read_capability(text: str) -> tuple[int, int]:
    """Return a compute capability such as ``8.6`` as numbers."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver(StrictRecord):
    """The accelerator driver.

    Attributes:
        version: Driver version, such as ``535.104.05``.
        newest_cuda: Newest CUDA runtime version that the driver supports.
    """

    version: str
    newest_cuda: str | None = None


@dataclass(frozen=True, kw_only=True)
class HardwareProfile(StrictRecord):
    # Not slotted: the identity is cached, because thousands of observations share a profile.
    """The properties of a machine that matter to a stack.

    Attributes:
        name: Short name, such as ``h200`` or ``detected``; not part of the identity.
        os: ``linux``, ``darwin`` or ``windows``.
        libc: C library name, ``glibc`` or ``musl``; empty if there is none.
        libc_version: ``major.minor`` of the C library.
        virtualisation: Hypervisor or container name, or empty.
        memory_bytes: Main memory.
        numa_nodes: Number of NUMA nodes; ``None`` if unknown.
        nodes: Number of such machines that work together; ``None`` if unknown.
        unknown: Properties that could not be read, and features that programs cannot use although the system lists
            them, each with the reason; not part of the identity.
    """

    name: str
    cpu: Cpu
    os: str = "linux"
    libc: str = ""
    libc_version: str = ""
    virtualisation: str = ""
    memory_bytes: int | None = None
    numa_nodes: int | None = None
    accelerators: tuple[Accelerator, ...] = ()
    driver: Driver | None = None
    nodes: int | None = 1
    unknown: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the profile as JSON-serialisable values."""
        fields = asdict(self)
        if self.nodes == 1:
            # Older records do not have this field, and the identity of their machines must not change.
            del fields["nodes"]
        return fields

    @cached_property
    def identity(self) -> str:
        """Content hash of everything except ``name`` and ``unknown``."""
        fields = self.record()
        del fields["name"], fields["unknown"]
        return content_hash(fields)

    def is_one_of(self, systems: Collection[str], architectures: Collection[str]) -> bool:
        """Whether it has one of some operating systems, and one of some machine names; none of them admit all."""
        return (not systems or self.os in systems) and (not architectures or self.cpu.architecture in architectures)

    @property
    def device(self) -> str:
        """The device that frameworks run on by default: ``cuda`` if it has an NVIDIA accelerator, else ``cpu``."""
        return "cuda" if self.gpu is not None else "cpu"

    @property
    def gpu(self) -> Accelerator | None:
        """The first NVIDIA accelerators of the machine, or ``None``."""
        return next((a for a in self.accelerators if a.vendor == "nvidia"), None)
