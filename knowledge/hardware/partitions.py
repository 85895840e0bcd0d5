"""Parts of a GPU: slices by NVIDIA's Multi-Instance GPU (MIG), and virtual GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

from knowledge.domain.hardware import Accelerator

_SLICE = re.compile(
    r"(?<![\w.])(?:(?P<number>\d+) ?x ?)?(?:(?P<compute>\d)c\.)?(?P<slices>\d)g[. -]?(?P<memory>\d+)gb", re.IGNORECASE
)
"""A GPU instance, ``3g.20gb``, or a compute instance in it, ``1c.3g.20gb``; several of them are ``7x1g.5gb``."""
_MIG = re.compile(
    r"(?<![a-z])(?<!\bno )(?<!\bnon-)(?<!\bwithout )mig(?![a-z])(?!(?: mode)?[ :=]*(?:off|disabled|no)\b)",
    re.IGNORECASE,
)
_VIRTUAL = re.compile(r"\bgrid\b|(?<![a-z])v-?gpu|\bvirtual gpu\b", re.IGNORECASE)
# Names of NVIDIA's types: board, slices if it is backed by MIG, GB of memory, series A, B, C or Q, and attributes of
# MIG: https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html (Virtual GPU Types), and as a pattern
# https://github.com/NVIDIA/vgpu-device-manager/blob/main/pkg/types/vgpu_type.go. The board ends with a number and at
# most three letters, which distinguishes `A100-40C` from the accelerator `Ascend-910B`.
_VIRTUAL_TYPE = re.compile(
    r"\d[a-z]{0,3}(?:-[a-z]+\d?)*[-_](?:(?P<slices>[1-9])[-_])?\d{1,3}[abcq](?:me|nome|meall|gfx)?(?![a-z0-9])",
    re.IGNORECASE,
)
_SLICES = {"a30": 4, "rtx-pro-6000-blackwell": 4} | dict.fromkeys(
    ("a100", "a800", "h100", "h200", "h800", "gh200", "b200", "gb200"), 7
)
"""Largest number of slices by family: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html; A800
and H800 are A100 and H100 with slower links."""


def part_of(accelerator: Accelerator, spelled: str, *, system: str = "") -> Accelerator:
    """Return the part of an accelerator that a spelling states, or the accelerator if it states none.

    Args:
        accelerator: The whole accelerator.
        spelled: Spelling of the accelerator, such as ``A100-SXM4-40GB MIG 1g.5gb`` or ``GRID T4-16Q``.
        system: Name of the system, which may state a slice, too.
    """
    if match := _slice_in(f"{spelled} {system}"):
        compute = f"{match['compute']}c." if match["compute"] else ""
        return replace(
            accelerator,
            model=f"{accelerator.model} MIG {compute}{match['slices']}g.{match['memory']}gb",
            memory_bytes=int(match["memory"]) * 2**30,
            partition="mig",
        )
    if accelerator.vendor == "nvidia" and _is_virtual(spelled):
        return replace(accelerator, partition="vgpu")
    return replace(accelerator, partition="mig") if _MIG.search(spelled.replace("_", " ")) else accelerator


def states_part(spelled: str) -> bool:
    """Return whether a spelling of a GPU states a part of it."""
    return bool(_slice_in(spelled) or _is_virtual(spelled) or _MIG.search(spelled.replace("_", " ")))


def share_of(family: str, spelled: str) -> float | None:
    """Return the share of a GPU's compute units that a spelling states: 1/7 for ``A100 MIG 1g.5gb``.

    The result is ``None`` if the spelling states no number of slices, or a GPU of this family cannot be divided.
    """
    total = _SLICES.get(family)
    if total is None:
        return None
    if match := _slice_in(spelled):
        return min(1.0, int(match["number"] or 1) * int(match["compute"] or match["slices"]) / total)
    virtual = _VIRTUAL_TYPE.search(spelled)
    return min(1.0, int(virtual["slices"]) / total) if virtual and virtual["slices"] else None


def _slice_in(text: str) -> re.Match[str] | None:
    return _SLICE.search(text.replace("_", " "))


def _is_virtual(spelled: str) -> bool:
    return bool(_VIRTUAL.search(spelled.replace("_", " ")) or _VIRTUAL_TYPE.search(spelled))
