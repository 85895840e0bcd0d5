"""What every performance indicator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Dict, Tuple

from pi_runners.harness.contract import Backend, Parameters, Trial

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


class Indicator(ABC):
    """One small, named, versioned benchmark.

    Attributes:
        name: Indicator name.
        version: Raised whenever timings stop being comparable with earlier ones.
        summary: One line for people.
        flops_formula: Floating-point operations per call, for people.
        sizes: Parameters by size name.
        backends: Backends that can run it.
    """

    name = ""
    version = 1
    summary = ""
    flops_formula = ""
    sizes: Dict[str, Parameters] = {}  # noqa: RUF012 -- `ClassVar` would forbid what subclasses do here
    backends: Tuple[str, ...] = ()

    def parameters_for(self, size: str, backend: str) -> Parameters:
        """Return the parameters of a size, with what a backend must say about how it computes."""
        return dict(self.sizes[size])

    @abstractmethod
    def flops(self, parameters: Parameters) -> float:
        """Return the floating-point operations of one call."""

    @abstractmethod
    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the least bytes one call moves: inputs read once, outputs written once."""

    @abstractmethod
    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Build inputs and return the computation with its check."""
