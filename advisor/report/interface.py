"""Values that the reports of `advisor advise` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from advisor.api.session import AdviceResult
from advisor.domain.target import Target
from advisor.domain.words import no_speedup_text
from advisor.report.digits import rounded
from knowledge.estimate.interface import Prediction

SCHEMA_VERSION = 2
_NUMBERS = ("speedup", "low", "high", "score")
"""Numbers of a prediction, which are null in JSON if there is no speed-up to report."""


def target_line(target: Target) -> str:
    """Return a description of a target: interpreter, platform, processor, accelerators of any vendor, driver."""
    hardware = target.hardware
    devices = ", ".join(f"{a.count} x {a.model}" for a in hardware.accelerators) or "no accelerator"
    driver = f", driver {hardware.driver.version}" if hardware.accelerators and hardware.driver else ""
    return (
        f"Python {target.python} on {target.platform}, {hardware.name} ({hardware.cpu.microarchitecture}, "
        f"{devices}{driver})"
    )


def prediction_document(prediction: Prediction | None) -> dict[str, Any] | None:
    """Return a prediction as JSON-ready values; its numbers are null if there is no speed-up to report."""
    if prediction is None:
        return None
    document: dict[str, Any] = rounded(asdict(prediction))
    del document["obstacle"], document["is_same"]
    if reason := no_speedup_text(prediction):
        document |= {**dict.fromkeys(_NUMBERS), "kinds": []}
    return {**document, "not_predicted": reason or None}


def changes(report: AdviceResult) -> list[tuple[str, str, str]]:
    """Return name, version in the baseline and version in the stack of each package that differs; ``-`` is absent."""
    return differences({c.name: str(c.version) for c in report.advice.baseline}, report)


def changes_from_current(report: AdviceResult) -> list[tuple[str, str, str]]:
    """Return the same for the current lock; empty if there is none."""
    current = report.advice.current
    return [] if current is None else differences({str(n): str(v) for n, v in current[0].items()}, report)


def differences(before: Mapping[str, str], report: AdviceResult) -> list[tuple[str, str, str]]:
    """Return name, version before and version in the stack of each package that differs."""
    after = {str(c.name): str(c.version) for c in report.advice.optimum.stack}
    return [
        (name, before.get(name, "-"), after.get(name, "-"))
        for name in sorted({**before, **after})
        if before.get(name) != after.get(name)
    ]
