"""Values that the reports of `advisor advise` and `advisor check` share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from advisor.api.session import AdviceResult
from advisor.domain.target import Target
from advisor.domain.words import count, memory_text, no_speedup_text
from advisor.resolve.explanation.findings import CUDA_LIBRARIES
from advisor.resolve.explanation.prices import differences
from knowledge.domain.hardware import DETECTED, HardwareProfile
from knowledge.domain.ratio import Ratio
from knowledge.estimate.interface import Prediction

SCHEMA_VERSION = 2
_NUMBERS = ("speedup", "low", "high", "score")
"""Numbers of a prediction, which are null in JSON if there is no speed-up to report."""
_TRADEMARKS = re.compile(r"\((?:R|TM|r|tm)\)|\b(?:CPU|Processor)\b|@ *[\d.]+ *GHz")


def target_line(target: Target) -> str:
    """Return a description of a target: machine, accelerators of any vendor with their driver, interpreter."""
    hardware = target.hardware
    name = "this machine" if hardware.name == DETECTED else hardware.name
    return f"{name}: {', '.join(_machine_parts(hardware))}; Python {target.python_minor}{_system(target)}"


def _machine_parts(hardware: HardwareProfile) -> Iterator[str]:
    """Yield the devices of a machine: the processor only if programs run on it or the machine is described in full."""
    cpu, is_detected = hardware.cpu, hardware.name == DETECTED
    model = " ".join(_TRADEMARKS.sub("", cpu.model).split())
    if not model or is_detected:
        model = f"{model} ({cpu.microarchitecture})" if model else cpu.microarchitecture
    if is_detected or not hardware.accelerators:
        yield model
    if cpu.cores:
        yield count(cpu.cores, "core")
    for accelerator in hardware.accelerators:
        yield f"{accelerator.count} x {accelerator.model}" if accelerator.count > 1 else accelerator.model
    if not hardware.accelerators:
        yield "no GPU"
    elif hardware.driver:
        yield f"driver {hardware.driver.version}"


def hardware_rows(target: Target) -> tuple[tuple[str, str], ...]:
    """Return what is known about the machine of a target, each fact with its name."""
    hardware, cpu = target.hardware, target.hardware.cpu
    model = " ".join(_TRADEMARKS.sub("", cpu.model).split())
    cores = count(cpu.cores, "core") if cpu.cores else "number of cores not known"
    rows = [("processor", f"{', '.join(filter(None, (model, cpu.microarchitecture, cpu.architecture)))}; {cores}")]
    for a in hardware.accelerators:
        facts = [f"{a.count} x {a.model}" if a.count > 1 else a.model]
        if a.vendor == "nvidia":
            facts.append(f"compute capability {a.compute_capability or 'not known'}")
        memory = memory_text(a.memory_bytes)
        facts.append(f"{memory}{' each' if a.count > 1 else ''}" if memory else "memory not known")
        rows.append(("accelerator", ", ".join(facts)))
    if not hardware.accelerators:
        rows.append(("accelerator", "none"))
    elif hardware.driver is None:
        rows.append(("driver", "not known"))
    else:
        newest = hardware.driver.newest_cuda
        rows.append(("driver", f"{hardware.driver.version}{f', CUDA up to {newest}' if newest else ''}"))
    rows.append(("interpreter", f"CPython {target.python_minor}, {target.platform}"))
    return tuple(rows)


def _system(target: Target) -> str:
    """Return the operating system and the machine name of a target; empty for Linux on x86-64."""
    system = target.markers["platform_system"].replace("Darwin", "macOS")
    is_usual = (system, target.architecture) == ("Linux", "x86_64")
    return "" if is_usual else f" on {system} {target.architecture}"


def prediction_document(prediction: Prediction | None) -> dict[str, Any] | None:
    """Return a prediction as JSON-ready values; its numbers are null if there is no speed-up to report."""
    if prediction is None:
        return None
    document: dict[str, Any] = rounded_record(prediction)
    del document["obstacle"], document["is_same"]
    if reason := no_speedup_text(prediction):
        document |= {**dict.fromkeys(_NUMBERS), "kinds": []}
    return {**document, "not_predicted": reason or None}


def changes(report: AdviceResult) -> tuple[tuple[str, str, str], ...]:
    """Return name, version in the baseline and version in the stack of each package that differs; ``-`` is absent."""
    return differences(report.advice.baseline.versions, report.advice.optimum.stack.versions)


def changes_from_current(report: AdviceResult) -> tuple[tuple[str, str, str], ...]:
    """Return the same for the current lock; empty if there is none."""
    current = report.advice.current
    return () if current is None else differences(current[0], report.advice.optimum.stack.versions)


def version_change(before: str, after: str) -> str:
    """Return a change of version in words; ``-`` is absent."""
    if before == "-":
        return f"{after} added"
    return f"{before} removed" if after == "-" else f"{before} -> {after}"


def change_groups(changes: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    """Return a line for the CUDA packages among changes, and one for the others."""
    cuda = [change for change in changes if change[0].startswith(CUDA_LIBRARIES)]
    groups = (("CUDA package", cuda), ("other package", [change for change in changes if change not in cuda]))
    return tuple(_group_text(noun, group) for noun, group in groups if group)


def _group_text(noun: str, group: Sequence[tuple[str, str, str]]) -> str:
    kinds = Counter("added" if b == "-" else "removed" if a == "-" else "at another version" for _, b, a in group)
    number = count(len(group), noun)
    if len(kinds) == 1:
        (kind,) = kinds
        return {
            "removed": f"{number} {'is' if len(group) == 1 else 'are'} not needed",
            "added": f"{number} more",
            "at another version": f"{number} at another version",
        }[kind]
    parts = [f"{kinds[kind]} {kind}" for kind in ("added", "removed", "at another version") if kinds[kind]]
    return f"{noun}s: {', '.join(parts)}"


def rounded_record(value: Any) -> Any:
    """Return a value as JSON-ready values with numbers rounded to six decimal places.

    Dataclasses are dictionaries of their fields; a field that is a ratio has the speed-up and the ends of its interval.
    Further digits differ between linear-algebra libraries.
    """
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Ratio):
        return rounded_record({"speedup": value.speedup, "low": value.low, "high": value.high})
    if is_dataclass(value):
        record: dict[str, Any] = {}
        for field in fields(value):
            own = getattr(value, field.name)
            record |= rounded_record(own) if isinstance(own, Ratio) else {field.name: rounded_record(own)}
        return record
    if isinstance(value, Mapping):
        return {key: rounded_record(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded_record(item) for item in value]
    return value
