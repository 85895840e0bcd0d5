"""The processors of this machine that a program may be bound to."""

from __future__ import annotations

import os
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def allowed_processors() -> frozenset[int] | None:
    """Return the processors that this process may use; none if the system has no processor affinity."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def node_processors(number: int, *, nodes: Path = _NODES) -> frozenset[int] | None:
    """Return the processors of a NUMA node; none if the machine has no such node.

    Memory then comes from the same node: Linux allocates a page on the node of the processor that touches it first.

    Args:
        number: Number of the node.
        nodes: Directory in which the kernel describes its nodes.
    """
    try:
        text = (nodes / f"node{number}" / "cpulist").read_text(encoding="ascii")
    except OSError:
        return None
    return frozenset(number for part in text.strip().split(",") if part for number in _range(part))


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
