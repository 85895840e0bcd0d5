"""The lines of a report about the score: what it is based on, and which packages have an unknown speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.domain.words import count, quoted, workload_text

if TYPE_CHECKING:
    from advisor.resolve.score_basis import ScoreBasis
    from knowledge.estimate.interface import Prediction


_COMMON = ("rules", "idle-builds", "speed", "freshness-direct", "build", "freshness")
"""Criteria of every objective, which are named together, and speed, which is named with what was measured."""


def score_lines(basis: ScoreBasis, prediction: Prediction) -> list[str]:
    """Return one or two lines about what a score is based on, and which packages have an unknown speed.

    Args:
        basis: The basis of the score.
        prediction: The prediction for the stack, with its workload.
    """
    others = [name for name in basis.criteria if name not in _COMMON]
    criteria = ", ".join([*others, "rules, builds and freshness"])
    if not basis.includes_speed:
        return [f"{criteria} of all packages; objective `{basis.objective}` ignores speed"]
    measured = f"{quoted(basis.measured)} measured on comparable hardware" if basis.measured else "nothing measured"
    speed = f"speed from a gain of {100 * basis.min_gain:.3g} %"
    lines = [f"{criteria} of all packages; {speed}, {workload_text(prediction)}: {measured}"]
    parts = []
    if basis.unmeasured:
        parts.append(f"{quoted(basis.unmeasured)} (not measured on comparable hardware)")
    if basis.not_in_workload:
        parts.append(f"{quoted(basis.not_in_workload)} (not part of the workload)")
    if basis.without_measurements:
        number = len(basis.without_measurements)
        parts.append(count(number, "other package") if parts or basis.measured else count(number, "package"))
    if parts:
        last = parts.pop()
        lines.append(f"unknown speed: {', '.join(parts)}{' and ' if parts else ''}{last}")
    return lines
