"""Builds that a machine can use, according to the rules about runtimes and drivers."""

from __future__ import annotations

from collections.abc import Iterable

from knowledge.builds.model import Build, CatalogueEntry, FrameworkIndex
from knowledge.domain.hardware import HardwareProfile
from knowledge.rules.engine import RuleBook


def usable_indexes(
    entries: Iterable[CatalogueEntry], rules: RuleBook, hardware: HardwareProfile
) -> list[FrameworkIndex]:
    """Return the indexes with builds that a machine can use.

    A machine without an accelerator uses CPU builds; one with an accelerator uses builds for it, and a CPU build if no
    other runs there.

    Args:
        entries: The catalogue.
        rules: The rules that apply to the machine.
        hardware: The machine.
    """
    indexes = [entry for entry in entries if isinstance(entry, FrameworkIndex) and entry.serves(hardware)]
    return [index for index in indexes if is_usable(index.build, rules, hardware)]


def is_usable(build: Build, rules: RuleBook, hardware: HardwareProfile) -> bool:
    """Whether a build runs on a machine, and is for processors or an accelerator that the machine has.

    Args:
        build: The build.
        rules: The rules that apply to the machine.
        hardware: The machine.
    """
    if not build.has_device_on(hardware):
        return False
    is_judged = build.runtime == "cuda" and "." in build.version
    return (
        not any(verdict.severity == "forbidden" for verdict in rules.judge_cuda(build.version)) if is_judged else True
    )
