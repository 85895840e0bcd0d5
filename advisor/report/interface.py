"""What a report of advice is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.domain.target import Target
from advisor.project.sources import Proposal
from advisor.resolve.recommend import Advice

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport:
    """Advice, and what it was asked for.

    Attributes:
        advice: The advice.
        target: The target.
        written: The locks that were written.
        direct: Packages that the user asked for by name.
        proposal: The workload that the sources speak for, where nobody chose one; none where they tell nothing.
    """

    advice: Advice
    target: Target
    lock_paths: tuple[str, ...]
    direct: frozenset[str]
    workload_proposal: Proposal | None = None

    @property
    def has_upload_times(self) -> bool:
        """Whether the index told the upload time of every chosen file; else libyears count releases."""
        return all(c.file.uploaded for c in (*self.advice.optimum.stack, *self.advice.baseline))


def target_line(target: Target) -> str:
    """Describe a target in a few words, its accelerators of whatever vendor among them."""
    hardware = target.hardware
    devices = ", ".join(f"{a.count} x {a.model}" for a in hardware.accelerators) or "no accelerator"
    driver = f", driver {hardware.driver.version}" if hardware.accelerators and hardware.driver else ""
    return (
        f"Python {target.python} on {target.platform}, {hardware.name} ({hardware.cpu.microarchitecture}, "
        f"{devices}{driver})"
    )


def changes(report: AdviceReport) -> list[tuple[str, str, str]]:
    """Return name, version in the baseline and version in the stack of each package that differs; ``-`` is absent."""
    return differences({c.name: str(c.version) for c in report.advice.baseline}, report)


def changes_from_current(report: AdviceReport) -> list[tuple[str, str, str]]:
    """Return the same against what the project has now; nothing where that is not known."""
    current = report.advice.current
    return [] if current is None else differences({str(n): str(v) for n, v in current[0].items()}, report)


def differences(before: Mapping[str, str], report: AdviceReport) -> list[tuple[str, str, str]]:
    """Return name, version before and version in the stack of each package that differs."""
    after = {str(c.name): str(c.version) for c in report.advice.optimum.stack}
    return [
        (name, before.get(name, "-"), after.get(name, "-"))
        for name in sorted({**before, **after})
        if before.get(name) != after.get(name)
    ]
