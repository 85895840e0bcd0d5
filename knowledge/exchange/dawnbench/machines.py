"""Machines of entries, which are written as free text: ``1 K80 / 61 GB / 4 CPU (Amazon EC2 [p2.xlarge])``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.hardware.accelerators import AcceleratorModel, find_accelerator
from knowledge.hardware.shipped_machines import cloud_instances
from knowledge.records import shipped_yaml

_WORD = re.compile(r"[\w.-]+")
_PARTS = re.compile(r"[/()\[\]{},]")
_FACTOR = re.compile(r"(?<![\w.])(\d+)\s*[*x]|[*x]\s*(\d+)(?![\w.])")
_LEADING = re.compile(r"\s*(\d+)\s")
_NODES = re.compile(r"(\d+)\s*(?:machines|nodes)")
_TPU = re.compile(r"(?:\d+/\d+ of a )?(?:Cloud )?TPU(?:v\d)?(?: (?:Half-)?Pod)?", re.IGNORECASE)
_OTHER_DEVICE = re.compile(r"[gn]pu|cambricon", re.IGNORECASE)
_PROCESSOR = re.compile(r"\bCPU\b|Xeon")


@dataclass(frozen=True, slots=True, kw_only=True)
class DawnMachine:
    """The machines of an entry.

    Attributes:
        hardware: One of them, and their number.
        instance: Name of the cloud instance, if it is a known one; or empty.
        warning: What of the text was not understood; or empty.
    """

    hardware: HardwareProfile
    instance: str = ""
    warning: str = ""

    @property
    def device(self) -> str:
        """Device that ran the model: ``cuda``, ``tpu``, ``cpu``, or ``accelerator`` if it is not known."""
        if self.hardware.accelerators:
            return "cuda" if self.hardware.gpu is not None else "tpu"
        return "accelerator" if self.hardware.unknown else "cpu"


def read_machine(text: str) -> DawnMachine:
    """Return the machines that a text describes. What it does not say stays unknown."""
    instance = _instance(text)
    cloud = cloud_instances().get(instance)
    rest = text.replace(instance, " ") if instance else text
    model, factors = _stated(rest)
    nodes = _nodes(text, instance, factors)
    is_of_each = len(factors) > 1 or "each" in text
    stated = factors[-1] if is_of_each else max(1, (factors or (nodes,))[0] // nodes)
    profile = cloud.profile if cloud is not None else HardwareProfile(name=instance or text, cpu=_UNKNOWN_CPU)
    profile = replace(profile, nodes=nodes)
    if profile.accelerators:
        count = profile.accelerators[0].count
        differs = model is not None and bool(factors) and stated != count
        warning = f"`{text}`: `{instance}` has {count} accelerators" if differs else ""
        return DawnMachine(hardware=profile, instance=instance, warning=warning)
    accelerator = _listed(instance) or (model.accelerator(stated) if model is not None else _tpu(rest))
    if accelerator is not None:
        profile = replace(
            profile,
            name=instance or f"{model.name if model is not None else accelerator.model} x {accelerator.count}",
            accelerators=(accelerator,),
        )
    elif _OTHER_DEVICE.search(text) or not (cloud is not None or _PROCESSOR.search(text)):
        profile = replace(profile, unknown=("accelerators: the entry names none that the catalogue contains",))
    is_unknown = bool(profile.unknown) or (accelerator is not None and accelerator.vendor == "google")
    warning = f"`{text}` names no accelerator that the catalogue contains" if is_unknown else ""
    return DawnMachine(hardware=profile, instance=instance, warning=warning)


_UNKNOWN_CPU = Cpu(architecture="", microarchitecture="")


def _instance(text: str) -> str:
    """Return the cloud instance that a text names; empty if it names none that is known."""
    names = {*cloud_instances(), *_instances()}
    return next((word for word in _WORD.findall(text) if word in names), "")


def _instances() -> Mapping[str, Any]:
    instances: Mapping[str, Any] = shipped_yaml(__package__, "machines.yaml")["instances"]
    return instances


def _listed(instance: str) -> Accelerator | None:
    facts = _instances().get(instance)
    model = find_accelerator(facts["accelerator"]) if facts is not None else None
    return model.accelerator(facts["count"]) if facts is not None and model is not None else None


def _stated(text: str) -> tuple[AcceleratorModel | None, tuple[int, ...]]:
    """Return the accelerator that a text names, and the numbers it is multiplied by: ``16 * 8 * Tesla-V100``."""
    for part in _PARTS.split(text):
        model = find_accelerator(part)
        if model is not None:
            factors = [int(before or after) for before, after in _FACTOR.findall(part)]
            leading = _LEADING.match(part)
            return model, tuple(factors or ([int(leading[1])] if leading else []))
    return None, ()


def _nodes(text: str, instance: str, factors: tuple[int, ...]) -> int:
    """Return the number of machines: ``4 machines``, ``16 p3.16xlarge``, the first of two factors, or one."""
    stated = _NODES.search(text)
    leading = re.match(rf"(\d+) {re.escape(instance)}", text) if instance else None
    match = stated or leading
    return int(match[1]) if match else factors[0] if len(factors) > 1 else 1


def _tpu(text: str) -> Accelerator | None:
    """Return the TPU of a text in its own words: which version, and how many chips, is not said in a common way."""
    match = _TPU.search(text)
    return Accelerator(vendor="google", model=match[0]) if match else None
