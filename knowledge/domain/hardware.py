"""What a stack runs on: the hardware profile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

from knowledge.domain.identity import content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One machine's processors.

    Attributes:
        architecture: Machine name as in wheel tags, such as ``x86_64`` or ``aarch64``.
        microarchitecture: archspec name, such as ``zen4``.
        vendor: archspec vendor, such as ``GenuineIntel``.
        model: Marketing name as the system reports it.
        features: Instruction-set features, sorted.
        sockets: Physical packages; none where the system does not tell.
        cores: Physical cores over all sockets.
        threads: Logical processors over all sockets.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    architecture: str
    microarchitecture: str
    vendor: str = ""
    model: str = ""
    features: tuple[str, ...] = ()
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Identical accelerators of one machine.

    Attributes:
        vendor: ``nvidia`` or ``amd``.
        model: Name as the driver reports it.
        compute_capability: ``major.minor`` of an NVIDIA GPU.
        memory_bytes: Memory of one device.
        count: How many of them the machine has.
        interconnect: How they reach each other: ``nvlink``, ``pcie`` or empty.
        numa_nodes: NUMA node of each device, in device order; empty where not known.
        partition: ``mig`` or ``vgpu`` where the device is a slice of one.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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
        """The compute capability as numbers, or none where it is not known."""
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The accelerator driver.

    Attributes:
        version: Driver version, such as ``535.104.05``.
        newest_cuda: Newest CUDA runtime version that the driver supports.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    version: str
    newest_cuda: str | None = None


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:  # Not slotted: thousands of observations share a few, and their identity is worked out once.
    """A machine as far as it matters to a stack.

    Attributes:
        name: Short name, such as ``h200`` or ``detected``; not part of the identity.
        os: ``linux``, ``darwin`` or ``windows``.
        libc: C library name, ``glibc`` or ``musl``; empty where there is none.
        libc_version: ``major.minor`` of the C library.
        virtualisation: Hypervisor or container name, or empty.
        memory_bytes: Main memory.
        numa_nodes: NUMA nodes, or none where the system does not tell.
        nodes: How many such machines work together; none where that is not told.
        unknown: Facts that could not be read, each with its reason; not part of the identity.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

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
        """Return the profile as JSON-ready values."""
        described = asdict(self)
        if self.nodes == 1:
            # Older records do not know it, and the identity of their machines must stay.
            del described["nodes"]
        return described

    @cached_property
    def identity(self) -> str:
        """Content hash of everything but the name and the reasons for what is not known."""
        described = self.record()
        del described["name"], described["unknown"]
        return content_hash(described)

    @property
    def gpu(self) -> Accelerator | None:
        """The NVIDIA accelerator that stacks are chosen for, or none."""
        return next((a for a in self.accelerators if a.vendor == "nvidia"), None)
