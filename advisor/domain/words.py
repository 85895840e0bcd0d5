"""Phrases that messages and reports share."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knowledge.estimate.interface import Prediction


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 package``, ``2 packages``.

    Args:
        number: The number.
        noun: The noun in the singular, whose plural ends in ``s``.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def quoted(names: Collection[str]) -> str:
    """Return names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def unmeasured_text(names: Collection[str]) -> str:
    """Return that packages have not been measured on comparable hardware."""
    return f"{quoted(names)} {'has' if len(names) == 1 else 'have'} not been measured on comparable hardware"


def workload_text(prediction: Prediction) -> str:
    """Return which workload a prediction is for: the selected one, or the kind for which the stack gains least."""
    if not prediction.kinds:
        return f"workload `{prediction.workload}`" if prediction.workload else "no workload selected"
    return f"workload `{prediction.workload}`, the least of {count(len(prediction.kinds), 'kind')}"


def range_text(prediction: Prediction) -> str:
    """Return the range of the speed-ups over the kinds of workloads; empty if a workload is selected."""
    if not prediction.kinds:
        return ""
    ratios = sorted(kind.speedup for kind in prediction.kinds)
    return f"{ratios[0]:.3f}x to {ratios[-1]:.3f}x, depending on the workload; select it with `--workload`"


def operations_text(prediction: Prediction) -> str:
    """Return that a prediction comes from single operations only, to be appended to it; empty if it does not."""
    names = [change.package for change in prediction.changes if change.package in prediction.operations_only]
    return f"; from single operations only: no whole model was measured with {quoted(names)}" if names else ""
