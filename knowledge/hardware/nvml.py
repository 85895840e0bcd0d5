"""Detection of NVIDIA accelerators with NVML, the library of the driver."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from knowledge.domain.hardware import Accelerator, Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """Result of reading NVML.

    Attributes:
        accelerators: Groups of identical devices.
        driver: The driver, or ``None``.
        problem: Why the driver could not be read, or empty.
    """

    accelerators: tuple[Accelerator, ...] = ()
    driver: Driver | None = None
    problem: str = ""


def read_nvml() -> NvmlReading:
    """Read NVML. Without an NVIDIA driver the result is empty, which is not a problem."""
    if sys.platform == "linux" and "pynvml" not in sys.modules and not _has_library():
        return NvmlReading()
    try:
        import pynvml
    except ImportError:
        return NvmlReading(problem="`nvidia-ml-py` is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return NvmlReading()
    except pynvml.NVMLError as error:
        return NvmlReading(problem=f"the NVIDIA driver's library does not start: {error}")
    try:
        return _read(pynvml)
    except pynvml.NVMLError as error:
        return NvmlReading(problem=f"the NVIDIA driver's library failed: {error}")
    finally:
        pynvml.nvmlShutdown()


def _has_library() -> bool:
    """Whether the driver's library can be loaded; the module that calls it is slow to import."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        # Other errors, such as a library for another processor, are reported by the module.
        return "No such file" not in str(error)
    return True


def group_devices(devices: Iterable[Accelerator], interconnect: str) -> tuple[Accelerator, ...]:
    """Group identical devices, each with its NUMA node or none; ``interconnect`` connects several of them."""
    groups: dict[Accelerator, list[Accelerator]] = {}
    for device in devices:
        groups.setdefault(replace(device, numa_nodes=()), []).append(device)
    return tuple(
        replace(
            group,
            count=len(members),
            interconnect=interconnect if len(members) > 1 else "",
            numa_nodes=tuple(node for device in members for node in device.numa_nodes),
        )
        for group, members in groups.items()
    )


def _read(nvml: Any) -> NvmlReading:
    newest = nvml.nvmlSystemGetCudaDriverVersion_v2()
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    devices = [_device(nvml, handle) for handle in handles]
    return NvmlReading(
        accelerators=group_devices(devices, _interconnect(nvml, handles)),
        driver=Driver(version=nvml.nvmlSystemGetDriverVersion(), newest_cuda=f"{newest // 1000}.{newest % 1000 // 10}"),
    )


def _device(nvml: Any, handle: Any) -> Accelerator:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    node = _optional(nvml, lambda: int(nvml.nvmlDeviceGetNumaNodeId(handle)))
    return Accelerator(
        vendor="nvidia",
        model=nvml.nvmlDeviceGetName(handle),
        compute_capability=f"{major}.{minor}",
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        partition=_partition(nvml, handle),
        numa_nodes=() if node is None else (node,),
    )


def _partition(nvml: Any, handle: Any) -> str:
    if _optional(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE):
        return "mig"
    virtual = _optional(
        nvml, lambda: nvml.nvmlDeviceGetVirtualizationMode(handle) == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    )
    return "vgpu" if virtual else ""


def _interconnect(nvml: Any, handles: list[Any]) -> str:
    """Return ``nvlink`` if the first two devices are connected by it, else ``pcie``."""
    if len(handles) < 2:
        return ""
    status = _optional(
        nvml,
        lambda: nvml.nvmlDeviceGetP2PStatus(handles[0], handles[1], nvml.NVML_P2P_CAPS_INDEX_NVLINK),
    )
    return "nvlink" if status == nvml.NVML_P2P_STATUS_OK else "pcie"


def _optional(nvml: Any, query: Any) -> Any:
    """Return the result of a query that not every device, driver or package version supports; else none."""
    try:
        return query()
    except (nvml.NVMLError, AttributeError):
        return None
