"""Hardware detection with kernel files, archspec and NVML; what cannot be detected is listed in the profile."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from knowledge.domain.documents import lines_of
from knowledge.domain.hardware import DETECTED, Cpu, HardwareProfile
from knowledge.hardware.matrix_features import AMX_SOURCE, AmxPermission, ask_amx_permission
from knowledge.hardware.nvml import NvmlReading, read_nvml
from knowledge.hardware.this_machine import kernel_list

_CONTAINER_SIGNS = (".dockerenv", "run/.containerenv")
_HYPERVISORS = (("QEMU", "kvm"), ("KVM", "kvm"), ("Amazon EC2", "ec2"), ("VMware", "vmware"), ("Google", "gce"))

UNUSABLE = "unusable features"
"""Beginning of an entry of ``unknown`` about features that the system lists and programs cannot use."""
_AMX = "amx_"

# https://gitlab.com/x86-psABIs/x86-64-ABI, section 3.1.1, in the kernel's names (`pni` is SSE3, `abm` has LZCNT).
_X86_LEVELS = {
    "x86_64_v2": ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"),
    "x86_64_v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
    "x86_64_v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def detect(
    root: Path = Path("/"),
    *,
    nvml: NvmlReading | None = None,
    machine: str | None = None,
    amx: AmxPermission | None = None,
) -> HardwareProfile:
    """Detect a machine.

    Args:
        root: Root of the machine's file system; in tests, the folder of a recorded machine.
        nvml: Result of NVML; read from the driver if none.
        machine: Machine name as printed by ``uname -m``; this machine's if none.
        amx: Whether programs may use AMX; if none, the kernel says it; on a recorded machine, they may.

    Returns:
        The profile, named ``detected``. Properties that could not be read are listed in ``unknown``. Features that
        programs cannot use are listed there, too, and are not among the processor's.
    """
    unknown: list[str] = []
    system = "linux" if root != Path("/") else platform.system().lower()
    reading = read_nvml() if nvml is None else nvml
    if reading.problem:
        unknown.append(f"accelerators: {reading.problem}")
    libc, libc_version = _libc(root)
    memory = _memory(root, unknown)
    cpu = _cpu(root, machine or platform.machine(), unknown)
    if any(feature.startswith(_AMX) for feature in cpu.features):
        answer = amx or (ask_amx_permission() if root == Path("/") else AmxPermission(granted=True))
        cpu = _with_permitted_features(cpu, answer, unknown)
    return HardwareProfile(
        name=DETECTED,
        cpu=cpu,
        os=system,
        libc=libc,
        libc_version=libc_version,
        virtualisation=_virtualisation(root),
        memory_bytes=memory,
        numa_nodes=_numa_nodes(root, unknown),
        accelerators=reading.accelerators,
        driver=reading.driver,
        unknown=tuple(unknown),
    )


def _read(root: Path, name: str) -> str:
    try:
        return (root / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """Return one dictionary per logical processor, as ``/proc/cpuinfo`` lists them."""
    processors = []
    for block in _read(root, "proc/cpuinfo").strip().split("\n\n"):
        parts = (line.partition(":") for line in lines_of(block))
        fields = {key.strip(): value.strip() for key, colon, value in parts if colon}
        if fields:
            processors.append(fields)
    return processors


def _cpu(root: Path, machine: str, unknown: list[str]) -> Cpu:
    processors = [p for p in _cpuinfo(root) if "processor" in p]
    first = processors[0] if processors else {}
    features = sorted((first.get("flags") or first.get("Features") or "").split())
    try:
        microarchitecture, vendor = _microarchitecture(machine, first, features)
    except ImportError:
        microarchitecture = x86_level(features) if machine == "x86_64" else machine
        vendor = first.get("vendor_id", "")
        unknown.append(f"microarchitecture: `archspec` is not installed; `{microarchitecture}` is a lower bound")
    threads = len(processors) or len(kernel_list(_read(root, "sys/devices/system/cpu/present")))
    packages = {p["physical id"] for p in processors if "physical id" in p}
    cores = {(p["physical id"], p["core id"]) for p in processors if "physical id" in p and "core id" in p}
    if not processors:
        unknown.append("processors: `/proc/cpuinfo` lists none")
    elif not cores:
        unknown.append("cores and sockets: `/proc/cpuinfo` does not list them")
    return Cpu(
        architecture=machine,
        microarchitecture=microarchitecture,
        vendor=vendor,
        model=first.get("model name", ""),
        features=tuple(features),
        sockets=len(packages) or None,
        cores=len(cores) or None,
        threads=threads or None,
    )


def _with_permitted_features(cpu: Cpu, amx: AmxPermission, unknown: list[str]) -> Cpu:
    """Return a processor without the features of AMX if programs may not use them."""
    if amx.granted:
        return cpu
    listed = " ".join(feature for feature in cpu.features if feature.startswith(_AMX))
    if amx.granted is None:
        unknown.append(f"whether programs may use {listed}: {amx.reason} ({AMX_SOURCE})")
        return cpu
    unknown.append(f"{UNUSABLE}: {listed}: `/proc/cpuinfo` lists them, but {amx.reason} ({AMX_SOURCE})")
    return replace(cpu, features=tuple(feature for feature in cpu.features if not feature.startswith(_AMX)))


def x86_level(features: Iterable[str]) -> str:
    """Return the highest level of the x86-64 psABI that has all its features, as archspec names it."""
    available = set(features)
    level = "x86_64"
    for name, required in _X86_LEVELS.items():
        if not available.issuperset(required):
            break
        level = name
    return level


def _microarchitecture(machine: str, fields: dict[str, str], features: Iterable[str]) -> tuple[str, str]:
    """Return the most specific archspec microarchitecture whose features the processor has, and the vendor."""
    import archspec.cpu

    targets = archspec.cpu.TARGETS
    if machine not in targets:
        return machine, ""
    vendor = fields.get("vendor_id", "")
    if implementer := fields.get("CPU implementer"):
        vendor = vendor or archspec.cpu.schema.TARGETS_JSON["conversions"]["arm_vendors"].get(implementer, "")
    if not fields and machine == platform.machine() and platform.system() != "Linux":
        host = archspec.cpu.host()
        return host.name, host.vendor
    # A partial target resolves features with different names in archspec and the kernel.
    partial = archspec.cpu.Microarchitecture("", [], vendor, set(features), {})
    root = targets[machine]
    fitting = [
        t
        for t in targets.values()
        if t.family == root and t.vendor in ("generic", vendor) and all(feature in partial for feature in t.features)
    ]
    # As in archspec: generic levels are detected only on x86, and a named microarchitecture counts only if it is more
    # specific than the best generic level.
    generic = [t for t in fitting if t.vendor == "generic" and (machine == "x86_64" or t == root)] or [root]
    best = max(generic, key=_specificity)
    specific = [t for t in fitting if t.vendor != "generic" and t > best]
    part = fields.get("CPU part", "")
    exact = [t for t in specific if part and t.cpu_part == part]
    return max(exact or specific or [best], key=_specificity).name, vendor


def _specificity(target: Any) -> tuple[int, int, str]:
    return len(target.ancestors), len(target.features), target.name


def _memory(root: Path, unknown: list[str]) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(root, "proc/meminfo"), re.MULTILINE)
    if match:
        return int(match[1]) * 1024
    if root == Path("/"):
        import psutil

        return int(psutil.virtual_memory().total)
    unknown.append("memory: `/proc/meminfo` does not list it")
    return None


def _numa_nodes(root: Path, unknown: list[str]) -> int | None:
    nodes = len(kernel_list(_read(root, "sys/devices/system/node/online")))
    if not nodes:
        unknown.append("NUMA nodes: `/sys/devices/system/node` does not list them")
    return nodes or None


def _libc(root: Path) -> tuple[str, str]:
    if root == Path("/"):
        name, version = platform.libc_ver()
        if name:
            return name, ".".join(version.split(".")[:2])
    for folder in ("lib", "lib64", "usr/lib"):
        if (root / folder).is_dir() and any((root / folder).glob("ld-musl-*")):
            return "musl", "1.2"
    recorded = _read(root, "libc").split()
    return (recorded[0], recorded[1]) if len(recorded) == 2 else ("", "")


def _virtualisation(root: Path) -> str:
    """Return the virtualisation layers between machine and process, the innermost first."""
    layers = []
    if any((root / sign).exists() for sign in _CONTAINER_SIGNS) or re.search(
        r"docker|kubepods|containerd|libpod", _read(root, "proc/1/cgroup")
    ):
        layers.append("container")
    vendor = _read(root, "sys/class/dmi/id/sys_vendor") + _read(root, "sys/class/dmi/id/product_name")
    flags = (_cpuinfo(root) or [{}])[0].get("flags", "").split()
    hypervisors = [name for sign, name in _HYPERVISORS if sign in vendor]
    if hypervisors or "hypervisor" in flags:
        layers.append(hypervisors[0] if hypervisors else "virtual machine")
    return " in ".join(layers)
