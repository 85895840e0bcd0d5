"""Applies the run-time settings that are a set of processors.

The environment of this process contains those that are environment variables; each backend applies the other ones.
"""

from __future__ import annotations

import os
from typing import List, Set

from pi_runners.harness.contract import Parameters, Unsupported


def apply_settings(backend: str, settings: Parameters) -> None:
    """Set the processor affinity; call it before the framework is imported.

    Args:
        backend: Name of the backend.
        settings: Values by name of the setting.

    Raises:
        Unsupported: If the machine cannot apply a setting.
    """
    if backend == "jax" and "threads" in settings:
        _set_affinity(sorted(_processors())[: settings["threads"]], settings["threads"])
    if "numa" in settings:
        _set_affinity(sorted(_processors() & _processors_of_node(settings["numa"])), 1)


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
