"""What every performance indicator is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from pi_runners.harness.contract import Backend, Parameters, SamplingPlan, Trial
from pi_runners.harness.timing import measure

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

PROCESS_BYTES = 0.4e9
"""What an interpreter, a framework and a check hold beside arrays."""

ALL = ("jax", "numpy", "onnxruntime", "tensorflow", "torch")
LEARNING = ("jax", "tensorflow", "torch")
"""Backends with a backward pass."""

ROUND_OFF = {"float64": 2.0**-44, "float32": 2.0**-11, "float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 2.0**-40}
"""Relative error allowed in one operation: TensorFloat-32 and half types multiply with 10 or 7 bits of mantissa."""

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit round-off: the relative error of a number that was rounded once, for operations that only move numbers."""

ELEMENT_ERROR = {"float64": 2.0**-40, "float32": 2.0**-16, "float16": 2.0**-7, "bfloat16": 2.0**-4}
"""Relative error allowed in an operation without products of matrices: TensorFloat-32 has no part in it.

Right float32 results differ by up to 2^-21 (batch normalisation, NumPy and PyTorch on the CPU); rounded to a half type
they differ by 2^-12 and more. ONNX Runtime normalises float64 to 2^-41."""


class Parameter(NamedTuple):
    """One parameter of an indicator.

    Attributes:
        meaning: For people.
        least: Smallest value of a number.
        most: Largest value of a number.
        default: Value where none is given; none means that one must be.
        choices: Values of a word; a number has none.
    """

    meaning: str
    least: int = 1
    most: int = 2**27
    default: Any = None
    choices: Tuple[str, ...] = ()

    def complaint(self, value: Any) -> Optional[str]:
        """Return what is wrong with a value, or none."""
        if self.choices:
            return None if value in self.choices else "must be one of {}".format(", ".join(self.choices))
        if isinstance(value, bool) or not isinstance(value, int):
            return "must be an integer"
        if not self.least <= value <= self.most:
            return "must be from {} to {}".format(self.least, self.most)
        return None


class Indicator(ABC):
    """One small, named, versioned benchmark.

    Attributes:
        name: Indicator name.
        version: Raised whenever timings stop being comparable with earlier ones.
        summary: One line for people.
        corresponds: The published benchmark that it corresponds to, with its address.
        flops_formula: Floating-point operations per call, for people.
        bytes_formula: Least bytes moved per call, for people.
        source: Where the formulae come from.
        sample: What one sample is, for people.
        parameters: By name.
        sets: Named parameter sets; each is one or more cases.
        backends: Backends that can run it.
        devices: Devices that it makes sense on.
        dtypes: Element types that it is defined in.
        notes: Further sentences for its reference page.
        copies: Arrays held at once, inputs, results and intermediate ones, over those that ``bytes_moved`` counts.
    """

    name = ""
    version = 1
    summary = ""
    corresponds = ""
    flops_formula = ""
    bytes_formula = ""
    source = ""
    sample = "seconds per call"
    parameters: Dict[str, Parameter] = {}  # noqa: RUF012 -- `ClassVar` would forbid what subclasses do here
    sets: Dict[str, Tuple[Parameters, ...]] = {}  # noqa: RUF012
    backends: Tuple[str, ...] = ALL
    devices: Tuple[str, ...] = ("cpu", "cuda")
    dtypes: Tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    notes: Tuple[str, ...] = ()
    copies = 1.5

    def complete(self, parameters: Parameters) -> Parameters:
        """Return parameters with the defaults of those that are not given."""
        defaults = {name: p.default for name, p in self.parameters.items() if p.default is not None}
        return {**defaults, **parameters}

    def canonical(self, parameters: Parameters) -> Parameters:
        """Return parameters without those that have their default, so that equal runs have equal labels."""
        return {n: v for n, v in parameters.items() if n not in self.parameters or v != self.parameters[n].default}

    def supports(self, parameters: Parameters, backend: str) -> bool:
        """Whether a backend can run it with these parameters."""
        return backend in self.backends

    def complaints(self, parameters: Parameters) -> List[str]:
        """Return what is wrong with parameters, in sentences' ends; empty where nothing is."""
        found = ["`{}` is no parameter of `{}`".format(n, self.name) for n in parameters if n not in self.parameters]
        for name, parameter in self.parameters.items():
            if name in parameters:
                complaint = parameter.complaint(parameters[name])
                if complaint:
                    found.append("`{}` {}, not `{}`".format(name, complaint, parameters[name]))
            elif parameter.default is None:
                found.append("`{}` of `{}` is not given".format(name, self.name))
        return found

    def parameters_for(self, parameters: Parameters, backend: str) -> Parameters:
        """Return parameters with what a backend must say about how it computes."""
        return dict(parameters)

    def items(self, parameters: Parameters) -> float:
        """Return how many things (images, samples) one call works on; 0 where that says nothing."""
        return 0.0

    @abstractmethod
    def flops(self, parameters: Parameters) -> float:
        """Return the floating-point operations of one call."""

    @abstractmethod
    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the least bytes one call moves: inputs read once, outputs written once."""

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return about how many bytes a run takes at its most, the interpreter and the framework with it.

        Inputs are kept as random bytes for the check, beside the arrays that the framework made of them. On a GPU the
        arrays are there, and the same figure is held against its memory.
        """
        elements = self.bytes_moved(parameters, dtype) / ITEM_BYTES[dtype]
        return PROCESS_BYTES + elements * (1 + self.copies * ITEM_BYTES[dtype])

    def extra_memory(self, parameters: Parameters, dtype: str, backend: str) -> float:
        """Return about how many bytes this backend takes beyond that."""
        return 0.0

    @abstractmethod
    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Measure, and return status, samples and metrics as JSON-ready values."""


class Operation(Indicator):
    """An indicator that is one computation, timed over and over."""

    @abstractmethod
    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Build inputs and return the computation with its check."""

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Check one result, then time."""
        return time_trial(self.prepare(backend, self.complete(parameters)), backend, plan)


def time_trial(trial: Trial, backend: Backend, plan: SamplingPlan) -> Dict[str, Any]:
    """Check the first result of a trial, then time it."""
    # The check comes first: it sees the first call, before a training step has moved its weights.
    error = trial.check(trial.run())
    if wrong := refuse_error(error, trial.tolerance):
        return wrong
    timing = measure(trial.run, backend.synchronise, plan)
    return {**timing.document(), "error": error, "tolerance": trial.tolerance}


def refuse_error(error: float, tolerance: float) -> Dict[str, Any]:
    """Return what is reported of a result with this relative error; empty where the error is accepted."""
    # Written so that an error that is no number is refused: it compares as false.
    if 0.0 <= error <= tolerance:
        return {}
    failure = "relative error {:.3g} is above the tolerance {:.3g}".format(error, tolerance)
    if not math.isfinite(error):
        failure = "the result is not finite or has a wrong shape; the tolerance is {:.3g}".format(tolerance)
    return {
        "status": "wrong-result",
        "failure": failure,
        "error": error if math.isfinite(error) else None,
        "tolerance": tolerance,
    }
