"""A machine with an accelerator, and stacks of packages."""

from __future__ import annotations

from dataclasses import replace

from knowledge.domain.hardware import Accelerator
from knowledge.domain.stack import PackageVersion, Stack, make_stack
from tests.knowledge.samples import MACHINE

WITH_GPU = replace(
    MACHINE,
    memory_bytes=128 * 2**30,
    accelerators=(
        Accelerator(vendor="nvidia", model="NVIDIA H100", compute_capability="9.0", memory_bytes=80 * 2**30),
    ),
)


def stack_of(**versions: str) -> Stack:
    packages = [PackageVersion(name=name.replace("_", "-"), version=version) for name, version in versions.items()]
    return make_stack(packages, python="3.12.3", platform="manylinux_2_39_x86_64")
