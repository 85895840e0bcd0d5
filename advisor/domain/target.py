"""The target of a resolution: interpreter, platform and hardware, of this machine or another one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.version import Version

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile

_PLATFORM = re.compile(
    r"(?P<kind>manylinux|musllinux|macosx)_(?P<major>\d+)_(?P<minor>\d+)_(?P<arch>\w+)|win_(?P<win>amd64|arm64)|win32"
)
_PYTHON = re.compile(r"3\.(?P<minor>\d{1,2})(?P<patch>\.\d+((a|b|rc)\d+)?)?")
NEWEST_PYTHON = 16
"""Minor version of CPython in development. A new one is released each October (PEP 602): 3.15 in 2026."""
_ALSO_RUNS = {"x86_64": ("i686",), "aarch64": ("armv7l",)}
"""Further architectures that a processor can run."""
_LEGACY_MANYLINUX = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# Wheels of the GPU frameworks need glibc 2.28; every data-centre distribution since 2019 has it.
_DEFAULT_GLIBC = "2.28"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Interpreter, platform and machine for which a stack is resolved.

    Attributes:
        python: Full version of CPython.
        platform: Newest platform tag that the target can install, such as ``manylinux_2_28_x86_64``.
        hardware: The machine.
        states_patch: Whether the patch number of `python` was stated. Otherwise it is 0, and versions of Python that a
            lock states may be of any patch release.
    """

    python: Version
    platform: str
    hardware: HardwareProfile
    states_patch: bool = True

    @property
    def python_minor(self) -> str:
        """``major.minor`` of the interpreter."""
        return f"{self.python.major}.{self.python.minor}"

    @cached_property
    def tags(self) -> dict[Tag, int]:
        """Wheel tags that the target can install, each with its rank; the most specific is first."""
        release = (self.python.major, self.python.minor)
        platforms = list(_platforms(self.platform))
        interpreter = f"cp{release[0]}{release[1]}"
        ordered = [
            *cpython_tags(release, platforms=platforms),
            *compatible_tags(release, interpreter=interpreter, platforms=platforms),
        ]
        ranks: dict[Tag, int] = {}
        for rank, tag in enumerate(ordered):
            ranks.setdefault(tag, rank)
        return ranks

    @cached_property
    def markers(self) -> dict[str, str]:
        """Environment markers of the target (PEP 508); markers that depend on a running system are empty."""
        system, os_name, sys_platform = {
            "win": ("Windows", "nt", "win32"),
            "mac": ("Darwin", "posix", "darwin"),
        }.get(self.platform[:3], ("Linux", "posix", "linux"))
        return {
            "implementation_name": "cpython",
            "implementation_version": str(self.python),
            "os_name": os_name,
            "platform_machine": self.architecture,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": system,
            "platform_version": "",
            "python_full_version": str(self.python),
            "python_version": self.python_minor,
            "sys_platform": sys_platform,
        }

    def satisfies(self, marker: Marker | str | None, *, extra: str = "") -> bool:
        """Whether an environment marker is true, with an extra or without one; an absent marker is.

        Raises:
            ValueError: If it is malformed.
        """
        if not marker:
            return True
        parsed = marker if isinstance(marker, Marker) else Marker(marker)
        return parsed.evaluate({**self.markers, "extra": extra})

    @cached_property
    def build_machine(self) -> HardwareProfile:
        """The machine with the system and the architecture of the platform, which decide what builds there are."""
        system = {"win32": "windows"}.get(self.markers["sys_platform"], self.markers["sys_platform"])
        cpu = replace(self.hardware.cpu, architecture=self.architecture)
        return replace(self.hardware, os=system, cpu=cpu)

    @property
    def architecture(self) -> str:
        """Machine name, such as ``x86_64``."""
        match = _PLATFORM.fullmatch(self.platform)
        assert match is not None
        if match["arch"]:
            return match["arch"]
        return {"amd64": "AMD64", "arm64": "ARM64"}.get(match["win"] or "", "x86")


def make_target(*, python: str, platform: str | None, hardware: HardwareProfile) -> Target:
    """Return a target.

    Args:
        python: ``3.12`` or a full version; a missing patch number means 0.
        platform: Platform tag; by default the one of the hardware profile's operating system and C library.
        hardware: The machine.

    Raises:
        InputError: If a value is malformed, or such a target cannot exist.
    """
    version, states_patch = _python(python)
    platform = _platform_of(hardware) if platform is None else platform
    if not _PLATFORM.fullmatch(platform):
        raise InputError(
            f"`{platform}` is not a platform tag",
            hint="write it as in wheel names: `manylinux_2_28_x86_64`, `macosx_14_0_arm64` or `win_amd64`",
        )
    target = Target(python=version, platform=platform, hardware=hardware, states_patch=states_patch)
    _check_runs(target)
    return target


def _python(text: str) -> tuple[Version, bool]:
    """Parse a version of CPython, with 0 for a missing patch number; return also whether it has one."""
    newest = max(NEWEST_PYTHON, sys.version_info[1])
    match = _PYTHON.fullmatch(text)
    if match is None or int(match["minor"]) > newest:
        raise InputError(
            f"`{text}` is not a version of CPython 3.0 to 3.{newest}", hint="write it as `--python 3.12` or `3.12.4`"
        )
    return Version(text if match["patch"] else f"{text}.0"), bool(match["patch"])


def _check_runs(target: Target) -> None:
    """Check that the processor of a target can run programs for its platform."""
    hardware, platform = target.hardware, target.platform
    required, processor = _machine(target.architecture), _machine(hardware.cpu.architecture)
    supported = {processor, *_ALSO_RUNS.get(processor, ())}
    if processor == "aarch64" and (hardware.os, platform[:3]) in (("darwin", "mac"), ("windows", "win")):
        # Both systems translate programs: https://developer.apple.com/documentation/apple-silicon/about-the-rosetta-translation-environment
        # and https://learn.microsoft.com/en-us/windows/arm/apps-on-arm-x86-emulation.
        supported |= {"x86_64", "i686"}
    if processor and required not in supported:
        raise InputError(
            f"`{platform}` is a platform for {target.architecture}, and `{hardware.name}` has a processor of "
            f"architecture {hardware.cpu.architecture}, which cannot run it",
            hint="choose hardware of that architecture with `--hardware`, or omit `--platform`",
        )
    match = _PLATFORM.fullmatch(platform)
    if match is not None and match["kind"] == "macosx" and required == "aarch64" and int(match["major"]) < 11:
        raise InputError(
            f"`{platform}` is not a platform: macOS supports arm64 since version 11", hint="write `macosx_11_0_arm64`"
        )


def _machine(architecture: str) -> str:
    """Return a common name of an architecture, which systems name differently."""
    name = architecture.lower()
    return {"amd64": "x86_64", "arm64": "aarch64", "x86": "i686", "i386": "i686"}.get(name, name)


def _platform_of(hardware: HardwareProfile) -> str:
    arch = hardware.cpu.architecture
    if hardware.os == "darwin":
        return f"macosx_14_0_{'arm64' if arch in ('aarch64', 'arm64') else arch}"
    if hardware.os == "windows":
        return "win_arm64" if arch.lower() in ("aarch64", "arm64") else "win_amd64"
    kind = "musllinux" if hardware.libc == "musl" else "manylinux"
    return f"{kind}_{(hardware.libc_version or _DEFAULT_GLIBC).replace('.', '_')}_{arch}"


def _platforms(platform: str) -> Iterator[str]:
    """Yield the platform tags that a platform can install, the most specific first (PEP 600, 656)."""
    match = _PLATFORM.fullmatch(platform)
    assert match is not None
    if match["kind"] is None:
        yield platform
        return
    major, minor, arch = int(match["major"]), int(match["minor"]), match["arch"]
    if match["kind"] == "macosx":
        yield from mac_platforms((major, minor), arch)
        return
    oldest = 0 if match["kind"] == "musllinux" else (5 if arch in ("x86_64", "i686") else 17)
    for number in range(minor, oldest - 1, -1):
        yield f"{match['kind']}_{major}_{number}_{arch}"
        if match["kind"] == "manylinux" and number in _LEGACY_MANYLINUX:
            yield f"{_LEGACY_MANYLINUX[number]}_{arch}"
    yield f"linux_{arch}"
