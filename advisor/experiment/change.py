"""A change of the reference of an experiment: another release of a package, or a run-time setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from knowledge.catalogue.settings import Numerics
from knowledge.domain.observation import Scalar
from knowledge.domain.ratio import Ratio

UNKNOWN_GAIN = Ratio(mean=0.0, variance=0.06**2)
"""What a change gains of which nothing is known: most change little, and few change more than a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference from the reference.

    Attributes:
        name: The package or the setting.
        value: Its version or value.
        is_setting: Whether it is a setting.
        numerics: What it does to results.
        gain: What it is expected to gain.
    """

    name: str
    value: Scalar
    is_setting: bool = False
    numerics: Numerics = "exact"
    gain: Ratio = UNKNOWN_GAIN

    @property
    def order(self) -> int:
        """Place of its class among those that are tried in turn: equal results first, reduced precision last."""
        return get_args(Numerics).index(self.numerics)

    @property
    def text(self) -> str:
        """The change as a requirement, or as ``name=value``."""
        return f"{self.name}={self.value}" if self.is_setting else f"{self.name}=={self.value}"
