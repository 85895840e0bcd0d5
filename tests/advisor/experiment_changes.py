"""Changes for the tests of experiments."""

from __future__ import annotations

from advisor.experiment.change import Change
from knowledge.domain.ratio import Ratio


def change(name: str, *, mean: float = 0.0, deviation: float = 0.06, numerics: str = "exact") -> Change:
    """Return a setting with this expected gain."""
    gain = Ratio(mean=mean, variance=deviation**2)
    return Change(name=name, value="on", is_setting=True, numerics=numerics, gain=gain)  # type: ignore[arg-type]
