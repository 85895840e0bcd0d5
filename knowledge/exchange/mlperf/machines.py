"""Machine of a described system: accelerators of the catalogue, processors, nodes."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import replace

from knowledge.domain.hardware import Accelerator, Cpu, HardwareProfile
from knowledge.exchange.mlperf.facts import find_machine
from knowledge.hardware.accelerators import closest_models, find_accelerator
from knowledge.hardware.partitions import part_of

_ARM = re.compile(
    r"\barm\b|armv|aarch64|cortex|neoverse|graviton|\bgrace\b|carmel|ampere altra|yitian|snapdragon|bcm2835|kunpeng|"
    r"macbookpro18|apple m\d",
    re.IGNORECASE,
)
_VENDORS = {"ascend": "huawei", "qualcomm": "qualcomm", "gaudi": "intel", "xilinx": "amd", "mali": "arm"}
"""Vendors of accelerators that the catalogue does not contain, by a word of their name."""
_LONGEST_NAME = 300
"""Characters of a name that are read; the longest accelerator has 42."""
_LARGEST_COUNT = 2**31 - 1
"""Largest number of a column of the database."""


def read_machine(name: str, left: MutableMapping[str, str], warnings: list[str]) -> HardwareProfile:
    """Build the machine of a description, and remove the fields that it was built from.

    Args:
        name: The system's name in the tree; it replaces what the description does not contain.
        left: Fields of the description.
        warnings: List to which sentences are added, about counts that are not numbers, and about an accelerator that
            the catalogue does not contain.
    """
    system = name
    spelled, name = left.pop("accelerator_model_name", "")[:_LONGEST_NAME], name[:_LONGEST_NAME]
    counts = {
        key: left.pop(key, "") for key in ("accelerators_per_node", "number_of_nodes", "host_processors_per_node")
    }
    per_node, nodes, sockets = map(_number, counts.values())
    if (machine := _machine_of_name(name, nodes)) is not None:
        return machine
    for key, text in counts.items():
        if text and _number(text) is None:
            warnings.append(f"system `{system}`: `{key}` is `{text[:40]}`: not a count, so it is not stored")
    memory = left.get("accelerator_memory_capacity", "")[:_LONGEST_NAME]
    accelerator = None if per_node == 0 else _accelerator(spelled, memory, name)
    if accelerator is None and spelled and per_node != 0:
        accelerator = Accelerator(vendor=_vendor(spelled), model=spelled)
        similar = ", ".join(f"`{model}`" for model in closest_models(spelled))
        names = f" (similar: {similar})" if similar else ""
        warnings.append(f"accelerator `{spelled}` is not in the catalogue{names}: it keeps its name")
    count = per_node or _count_in(name, accelerator)
    processor = left.pop("host_processor_model_name", "")[:_LONGEST_NAME]
    architecture = "aarch64" if _ARM.search(processor) else "x86_64"
    if accelerator is not None and accelerator.vendor == "google" and "tpu" in accelerator.model.lower():
        # Rounds describe the hosts of a TPU slice in different ways or not at all, so a slice is a number of chips.
        processor, sockets, count, nodes = "", None, count * (nodes or 1), 1
        name = f"{accelerator.model} x {count}"
    return HardwareProfile(
        name=name,
        cpu=Cpu(architecture=architecture, microarchitecture="", model=processor, sockets=sockets),
        accelerators=(replace(accelerator, count=count),) if accelerator is not None else (),
        nodes=nodes or 1,
    )


def _machine_of_name(name: str, nodes: int | None) -> HardwareProfile | None:
    """Return the machine that a system's name begins with, whatever its description says about it."""
    machine_facts = find_machine(name)
    if machine_facts is None:
        return None
    machine, facts = machine_facts
    match = re.search(r"_n(\d+)(?:_|$)", name)
    entry = find_accelerator(facts["accelerator"])
    assert entry is not None
    return HardwareProfile(
        name=machine,
        cpu=Cpu(
            architecture="x86_64",
            microarchitecture=facts["microarchitecture"],
            model=facts["processor"],
            sockets=facts["sockets"],
            cores=facts["cores"],
        ),
        accelerators=(entry.accelerator(facts["accelerators"]),),
        nodes=nodes or (int(match[1]) if match else None if "multi" in name else 1),
    )


def _accelerator(spelled: str, memory: str, name: str) -> Accelerator | None:
    """Return one accelerator of a description, or of a system's name if there is none; ``None`` if it is not known."""
    # In round v0.5, a TPU's name is that of a directory: `cloud_v3.8`.
    name = re.sub(r"^(?:cloud|research)_v(\d)", r"tpu v\1 ", name)
    entry = find_accelerator(spelled, memory) if spelled else find_accelerator(name)
    if entry is None and spelled.lower() == "tpu":
        # The name contains the generation, such as `tpu-v4-16-TF`.
        entry = find_accelerator(name)
    if entry is None:
        return None
    is_sliced = re.search("mig", f"{spelled} {name}", re.IGNORECASE) is not None
    return part_of(entry.accelerator(), spelled, system=name if is_sliced else "")


def _vendor(spelled: str) -> str:
    """Return the vendor of an accelerator that the catalogue does not contain: a known one, or its first word."""
    words = spelled.lower()
    vendor_name = next((vendor for word, vendor in _VENDORS.items() if word in words), "")
    return vendor_name or next(iter(re.findall(r"[a-z]+", words)), "unknown")


def _number(text: str) -> int | None:
    match = re.match(r"\s*(\d{1,10})(?!\d)", text)
    number = int(match[1]) if match else None
    return number if number is not None and number <= _LARGEST_COUNT else None


def _count_in(name: str, accelerator: Accelerator | None) -> int:
    """Return the number of accelerators in a system's name, such as 8 for ``8xV100`` and 16 for ``cloud_v3.32``."""
    if accelerator is None:
        return 0
    if accelerator.vendor == "google":
        cores = re.search(r"v\d[.-](\d+)", name)
        # A TPU's name counts cores, of which a chip has two (https://cloud.google.com/tpu/docs/system-architecture).
        return int(cores[1]) // 2 if cores else 1
    count = re.search(r"(\d+)xv100|v100x(\d+)|v100-(\d+)", name, re.IGNORECASE)
    return int(next(group for group in count.groups() if group)) if count else 1
