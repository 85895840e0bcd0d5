"""What this machine has for settings: shared libraries, and processors that a program may be bound to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path

_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"),
    *("/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib"),
)
"""Library directories of Linux distributions, for systems whose cache is missing or incomplete."""


def installed_libraries(names: Iterable[str]) -> Mapping[str, Path]:
    """Return the paths of installed shared libraries by file names such as ``libjemalloc.so.2``; others are absent.

    The dynamic linker's cache comes first, then the usual library directories of Linux.
    """
    cached = _linker_cache()
    paths: dict[str, Path] = {}
    for name in names:
        candidates = [*cached.get(name, ()), *(Path(folder, name) for folder in _FOLDERS)]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            paths[name] = path
    return paths


@lru_cache(maxsize=1)
def _linker_cache() -> Mapping[str, tuple[Path, ...]]:
    """Return the libraries that ``ldconfig -p`` lists; empty where there is no such program."""
    # It is often in a directory that only the PATH of root contains.
    for program in ("ldconfig", "/sbin/ldconfig"):
        try:
            listed = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return read_linker_cache(listed)
    return {}


def read_linker_cache(listed: str) -> dict[str, tuple[Path, ...]]:
    """Return the paths by file name in the output of ``ldconfig -p``, whose lines are ``NAME (kind, ...) => PATH``."""
    paths: dict[str, tuple[Path, ...]] = {}
    for line in listed.splitlines():
        description, arrow, path = line.strip().partition(" => ")
        name = description.partition(" (")[0]
        if arrow and name:
            paths[name] = (*paths.get(name, ()), Path(path))
    return paths


_NODES = Path("/sys/devices/system/node")


def allowed_processors() -> frozenset[int] | None:
    """Return the processors that this process may use; ``None`` if the system has no processor affinity."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def node_processors(number: int, *, nodes: Path = _NODES) -> frozenset[int] | None:
    """Return the processors of the NUMA node with a number; ``None`` if the machine has no such node.

    Memory then comes from the same node: Linux allocates a page on the node of the processor that touches it first. The
    kernel describes its nodes in the directory ``nodes``.
    """
    try:
        text = (nodes / f"node{number}" / "cpulist").read_text(encoding="ascii")
    except OSError:
        return None
    return kernel_list(text)


def kernel_list(text: str) -> frozenset[int]:
    """Return the members of a list as the kernel writes it, such as ``0-3,8``."""
    ranges = [part.partition("-") for part in text.strip().split(",")]
    numbers = (range(int(first), int(last or first) + 1) for first, _, last in ranges if first.isdigit())
    return frozenset(chain.from_iterable(numbers))
