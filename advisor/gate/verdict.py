"""The verdict on a change: whether the workload becomes faster, what that rests on, and what would recover a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.gate.findings import Finding, gate_codes
from knowledge.domain.ratio import Ratio

Outcome = Literal["better", "worse", "no-difference", "not-known"]
"""What a change does to speed: more or less than before, no difference that matters, or none of them is certain."""


@dataclass(frozen=True, slots=True)
class StackObstacle:
    """Why a stack cannot run.

    Attributes:
        stack: The stack, for people.
        codes: Codes of its findings that fail the check; empty if it can run.
    """

    stack: str
    codes: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.codes)

    def __str__(self) -> str:
        if not self.codes:
            return ""
        more = f" and {len(self.codes) - 1} more" if len(self.codes) > 1 else ""
        return f"{self.stack} has {self.codes[0]} {gate_codes()[self.codes[0]].name}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovers a loss.

    Attributes:
        what: A requirement such as ``torch==2.12.1``, settings such as ``threads=4``, or a work-around in words.
        kind: What it is.
        speed: Predicted speed with it over the base; `None` for a work-around.
        source: Address of the report that names a work-around; else empty.
    """

    what: str
    kind: Literal["version", "settings", "work-around"]
    speed: Ratio | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeVerdict:
    """The verdict on a change of a lock.

    Attributes:
        outcome: What the change does to speed.
        tolerance: The loss that does not matter, as a fraction.
        speed: Speed over the base, with the documented slow-downs that count and the changed settings; `None` if it is
            not known at all.
        reason: Why nothing is known, or which of the stacks cannot run; else empty.
        rows: Number of measured and published comparisons behind the predicted speed.
        reports: Number of public reports about slow-downs behind it.
        not_compared: Frameworks whose version differs, too, and that none of these comparisons is about.
        is_measured: Whether both stacks were measured for this verdict.
        has_frameworks: Whether the version of a framework differs.
        is_obstructed: Whether one of the two stacks cannot run.
        sizes: Bytes to download before and after; `None` if they are not known.
        resolved: Findings of the base that the change resolves.
        recoveries: What recovers a loss.
        minutes: About how long a measurement on the target takes that would settle it; `None` if it is settled, or if
            that is not known.
    """

    outcome: Outcome
    tolerance: float
    speed: Ratio | None = None
    reason: str = ""
    rows: int = 0
    reports: int = 0
    not_compared: tuple[str, ...] = ()
    is_measured: bool = False
    has_frameworks: bool = False
    is_obstructed: bool = False
    sizes: tuple[int, int] | None = None
    resolved: tuple[Finding, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    minutes: int | None = None


def outcome_of(speed: Ratio, tolerance: float) -> Outcome:
    """Return what a speed over that of the base means, if a loss of the fraction `tolerance` does not matter."""
    if speed.low >= 1 - tolerance and speed.high <= 1 / (1 - tolerance):
        return "no-difference"
    if not speed.is_significant():
        return "not-known"
    return "better" if speed.mean > 0 else "worse"
