"""A set of package versions for one interpreter and one platform."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from packaging.utils import NormalizedName
from packaging.version import Version

from knowledge.domain.identity import StrictRecord, content_hash

_CUDA_LOCAL = re.compile(r"^cu(\d{2,3})$")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PackageVersion(StrictRecord):
    """A package version and the index it came from.

    Attributes:
        name: Normalised name.
        version: PEP 440 version in its normal form, including the local version.
        index: Name of the index; empty for the default index.
    """

    name: str
    version: str
    index: str = ""


@dataclass(frozen=True, kw_only=True)
class Stack(StrictRecord):  # Not slotted: the identity is cached, because thousands of observations share a stack.
    """Package versions that were, or will be, installed together.

    Attributes:
        packages: Packages, sorted by name.
        python: Full interpreter version, such as ``3.11.7``.
        implementation: Interpreter implementation, such as ``cpython``.
        platform: Platform as in wheel tags, such as ``manylinux_2_36_x86_64``.
        cuda: CUDA runtime version of the packages; that of the system if they contain none and use a GPU.
        cudnn: cuDNN version, likewise.
    """

    packages: tuple[PackageVersion, ...]
    python: str
    platform: str
    implementation: str = "cpython"
    cuda: str | None = None
    cudnn: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the stack as JSON-serialisable values."""
        return asdict(self)

    @cached_property
    def identity(self) -> str:
        """Content hash of the stack."""
        return content_hash(self.record())

    def version_of(self, name: str) -> str | None:
        """Return the version of a package in this stack, or ``None``."""
        return next((p.version for p in self.packages if p.name == name), None)


def cuda_of_local_version(version: Version) -> str | None:
    """Return the CUDA runtime version of a local version: ``12.6`` for ``+cu126``."""
    match = _CUDA_LOCAL.match(version.local or "")
    return f"{match[1][:-1]}.{match[1][-1]}" if match else None


def carried_cuda(packages: Iterable[tuple[str, Version]]) -> tuple[str | None, str | None]:
    """Return the CUDA runtime and cuDNN versions that packages contain.

    The version of a ``nvidia-cuda-runtime*`` wheel is used; without one, a local version such as ``+cu126``.
    """
    runtime = cudnn = local = None
    for name, version in sorted(packages):
        if re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            runtime = f"{version.major}.{version.minor}"
        elif re.fullmatch(r"nvidia-cudnn(-cu\d+)?", name):
            cudnn = str(version)
        local = local or cuda_of_local_version(version)
    return runtime or local, cudnn


def make_stack(packages: Iterable[PackageVersion], *, python: str, platform: str) -> Stack:
    """Build a stack in its normal form: sorted, with the CUDA and cuDNN versions of its packages."""
    ordered = tuple(sorted(packages))
    cuda, cudnn = carried_cuda((NormalizedName(p.name), Version(p.version)) for p in ordered)
    return Stack(packages=ordered, python=python, platform=platform, cuda=cuda, cudnn=cudnn)
