"""Parts of a GPU: slices by NVIDIA's Multi-Instance GPU (MIG), and virtual GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

from knowledge.domain.hardware import Accelerator

_SLICE = re.compile(r"(?<![\w.])(?:\d+x)?(\d)g\.(\d+)gb", re.IGNORECASE)
_VIRTUAL = re.compile(r"\bgrid\b|-\d+[qc]$", re.IGNORECASE)


def part_of(accelerator: Accelerator, spelled: str, *, system: str = "") -> Accelerator:
    """Return the part of an accelerator that a spelling states, or the accelerator if it states none.

    Args:
        accelerator: The whole accelerator.
        spelled: Spelling of the accelerator, such as ``A100-SXM4-40GB MIG 1g.5gb`` or ``GRID T4-16Q``.
        system: Name of the system, which may state a slice, too.
    """
    if match := _SLICE.search(f"{spelled} {system}"):
        return replace(
            accelerator,
            model=f"{accelerator.model} MIG {match[1]}g.{match[2]}gb",
            memory_bytes=int(match[2]) * 2**30,
            partition="mig",
        )
    return replace(accelerator, partition="vgpu") if _VIRTUAL.search(spelled) else accelerator
