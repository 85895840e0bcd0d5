"""A single operation of a whole model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfModel:
    """A single operation of a whole model.

    Attributes:
        indicator: Name of its indicator.
        label: Label of its run.
        calls: Calls in one call of the model.
        flops: Floating-point operations of one call.
        bytes: Least bytes moved by one call.
    """

    indicator: str
    label: str
    calls: int
    flops: float
    bytes: float
