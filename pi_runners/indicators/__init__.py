"""The performance indicators, one file a family."""

from __future__ import annotations

from typing import Dict

from pi_runners.indicators.convolution import Conv2d
from pi_runners.indicators.indicator import Indicator
from pi_runners.indicators.matmul import Matmul
from pi_runners.indicators.training import TrainingStep

INDICATORS: Dict[str, Indicator] = {indicator.name: indicator for indicator in (Matmul(), Conv2d(), TrainingStep())}

__all__ = ["INDICATORS", "Indicator"]
