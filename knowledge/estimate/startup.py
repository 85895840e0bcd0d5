"""Measured import time and memory of frameworks, from the indicator `startup`.

These are absolute values of one kind of machine, not ratios: they are reported as they were measured, with the machine,
and nothing is predicted for versions or machines that were not measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

from packaging.version import Version

from knowledge.domain.frameworks import runs_on_processors_only
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Observation
from knowledge.estimate.interface import StartupTime
from knowledge.evidence.block_evidence import FAILURE_TRUST
from knowledge.evidence.contrasts import machine_of
from knowledge.store.base import KnowledgeBase

INDICATOR = "startup"


def startup_times(
    store: KnowledgeBase, versions: Mapping[str, Version], *, hardware: HardwareProfile
) -> tuple[StartupTime, ...]:
    """Return the measured import times of exactly these versions, sorted by name.

    Only runs without run-time settings count, on the same kind of device and processor architecture, from sources that
    are trusted at least half. Of several machines, one of the same microarchitecture or compute capability counts;
    without it, the one with the most runs. Of several versions of the indicator, only the newest counts.

    Args:
        store: The knowledge base.
        versions: Version of each framework, by distribution.
        hardware: The machine.
    """
    runs: dict[str, list[Observation]] = defaultdict(list)
    for observation in store.observations(indicator=INDICATOR, frameworks=versions):
        if _is_comparable(observation, versions[observation.framework], hardware):
            runs[observation.framework].append(observation)
    blocks = {observation.block for observations in runs.values() for observation in observations}
    trusted = {block.name for block in store.blocks(blocks) if block.trust >= FAILURE_TRUST} if blocks else set()
    times = []
    for framework, observations in sorted(runs.items()):
        groups: dict[tuple[bool, int, str, str], list[Observation]] = defaultdict(list)
        for o in observations:
            if o.block in trusted:
                kind = machine_of(o.hardware, o.indicator.device).kind
                is_same = kind == machine_of(hardware, o.indicator.device).kind
                groups[is_same, o.indicator.version, o.indicator.label, kind].append(o)
        if groups:
            best = max(groups, key=lambda key: (key[:2], len(groups[key]), key[2:]))
            times.append(_summary(framework, versions[framework], groups[best]))
    return tuple(times)


def _is_comparable(observation: Observation, version: Version, hardware: HardwareProfile) -> bool:
    """Whether a run is of the version, without settings, on the same kind of device and processor architecture."""
    device = "cpu" if runs_on_processors_only(observation.framework) else hardware.device
    measured = observation.stack.version_of(observation.framework)
    return (
        observation.status == "ok"
        and not observation.settings
        and "import_seconds" in observation.metrics
        and observation.indicator.device == device
        and measured is not None
        and Version(measured) == version
        and observation.hardware.cpu.architecture == hardware.cpu.architecture
    )


def _summary(framework: str, version: Version, runs: list[Observation]) -> StartupTime:
    memory = [m for o in runs if (m := o.metrics.get("memory_after_import_bytes", 0.0)) > 0]
    first = runs[0]
    return StartupTime(
        framework=framework,
        version=str(version),
        import_seconds=statistics.median(o.metrics["import_seconds"] for o in runs),
        memory_bytes=statistics.median(memory) if memory else None,
        runs=len(runs),
        machine=machine_of(first.hardware, first.indicator.device).name,
        indicator=first.indicator.label,
    )
