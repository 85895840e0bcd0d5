"""Applies the run-time settings that are a set of processors, and checks the settings of the whole process.

The environment of this process contains those that are environment variables; each backend applies the other ones.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional, Set

from pi_runners.harness.contract import Parameters, Unsupported

_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_HUGE_PAGE_MODES = {"on": "always", "off": "never"}
_ALLOCATORS = ("tcmalloc", "jemalloc", "mimalloc")


def apply_settings(settings: Parameters, processors: Optional[int] = None) -> None:
    """Set the processor affinity, and check allocator and huge pages; call it before the framework is imported.

    Args:
        settings: Values by name of the setting.
        processors: Number of processors that the process may use, if a setting says it.

    Raises:
        Unsupported: If the machine cannot apply a setting.
    """
    if processors is not None:
        _set_affinity(sorted(_processors())[:processors], processors)
    if "numa" in settings:
        _set_affinity(sorted(_processors() & _processors_of_node(settings["numa"])), 1)
    if "allocator" in settings and allocator() != settings["allocator"]:
        raise Unsupported("`allocator={}`: this process uses {}".format(settings["allocator"], allocator()))
    if "huge_pages" in settings and huge_pages() != _HUGE_PAGE_MODES[settings["huge_pages"]]:
        raise Unsupported(
            "`huge_pages={}`: `{}` is `{}`, which only root can change".format(
                settings["huge_pages"], _HUGE_PAGES, huge_pages()
            )
        )


def allocator() -> str:
    """Return the allocator of this process: a library that is loaded before others, else ``glibc``."""
    loaded = [os.path.basename(path) for path in loaded_files(*_ALLOCATORS)]
    preloaded = os.environ.get("LD_PRELOAD", "")
    names = [name for name in _ALLOCATORS if name in preloaded and any(name in file for file in loaded)]
    return names[0] if names else "glibc"


def huge_pages() -> str:
    """Return when the kernel uses huge pages: ``always``, ``madvise`` or ``never``; empty if it does not say."""
    try:
        with open(_HUGE_PAGES) as file:
            mode = re.search(r"\[(\w+)\]", file.read())
    except OSError:
        return ""
    return mode.group(1) if mode else ""


def loaded_files(*names: str) -> List[str]:
    """Return the paths of the files in this process's memory whose names contain one of ``names``."""
    try:
        with open("/proc/self/maps") as file:
            fields = [line.split(None, 5) for line in file]
    except OSError:
        return []
    paths = {parts[5].strip() for parts in fields if len(parts) == 6}
    return sorted(path for path in paths if any(name in os.path.basename(path) for name in names))


def error_output() -> str:
    """Return what this process has written to its error output, if that is a file; otherwise an empty text."""
    path = os.path.realpath("/proc/self/fd/2")
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _processors() -> Set[int]:
    if not hasattr(os, "sched_getaffinity"):
        raise Unsupported("this system has no processor affinity")
    return set(os.sched_getaffinity(0))


def _processors_of_node(number: int) -> Set[int]:
    """Return the processors of a NUMA node.

    Memory then comes from the same node: Linux allocates a page on the node of the processor that touches it first.
    """
    try:
        with open("/sys/devices/system/node/node{}/cpulist".format(number)) as file:
            return set(parse_number_list(file.read().strip()))
    except OSError:
        raise Unsupported("this machine has no NUMA node {}".format(number)) from None


def parse_number_list(text: str) -> List[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    numbers: List[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _set_affinity(processors: List[int], least: int) -> None:
    if len(processors) < least:
        raise Unsupported("this process may use {} processors, not {}".format(len(processors), least))
    os.sched_setaffinity(0, processors)
