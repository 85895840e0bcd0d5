"""Base classes of performance indicators."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Dict, Iterable, List, Mapping, Protocol, Tuple

from pi_runners.harness.contract import Backend, FrameworkAbilities, Parameter, Parameters, SamplingPlan, Trial
from pi_runners.harness.timing import measure

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}

PROCESS_BYTES = 0.4e9
"""Bytes that an interpreter, a framework and a check use in addition to arrays."""

ROUND_OFF = {"float64": 2.0**-44, "float32": 2.0**-11, "float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 2.0**-40}
"""Accepted relative error of an operation: TensorFloat-32 and half types multiply with 10 or 7 bits of mantissa."""

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit round-off, the relative error of one rounding: for operations that only move numbers."""

ELEMENT_ERROR = {"float64": 2.0**-40, "float32": 2.0**-16, "float16": 2.0**-7, "bfloat16": 2.0**-4}
"""Accepted relative error of an operation without matrix products, which does not use TensorFloat-32.

Correct float32 results differ by up to 2^-21 (batch normalisation, NumPy and PyTorch on the CPU); rounded to a half
type they differ by 2^-12 and more. ONNX Runtime normalises float64 to 2^-41."""


class Indicator(ABC):
    """One small, named, versioned benchmark.

    Attributes:
        name: Indicator name.
        version: Raised whenever timings stop being comparable with earlier ones.
        summary: Description in one line.
        corresponds: Corresponding published benchmark, with its URL.
        flops_formula: Formula of the floating-point operations per call.
        bytes_formula: Formula of the minimum bytes moved per call.
        source: Source of the formulae.
        sample: Description of one sample.
        parameters: Parameters by name.
        sets: Parameter sets by size; each has one or more cases.
        needs: Abilities that a framework needs for it: the `abilities` of its `framework.toml`.
        operation: Operation that some frameworks compute by another algorithm: the `algorithms` there; or empty.
        devices: Devices that support it.
        dtypes: Element types that it supports.
        notes: Further sentences for its reference page.
        copies: Peak memory of all arrays, as a multiple of the arrays that ``bytes_moved`` counts.
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
    needs: Tuple[str, ...] = ()
    operation = ""
    devices: Tuple[str, ...] = ("cpu", "cuda")
    dtypes: Tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    notes: Tuple[str, ...] = ()
    copies = 1.5

    def complete(self, parameters: Parameters) -> Parameters:
        """Return parameters, with defaults for those that are absent."""
        defaults = {name: p.default for name, p in self.parameters.items() if p.default is not None}
        return {**defaults, **parameters}

    def canonical(self, parameters: Parameters) -> Parameters:
        """Return parameters without those equal to their default, so that equal runs have equal labels."""
        return {n: v for n, v in parameters.items() if n not in self.parameters or v != self.parameters[n].default}

    def needed(self, parameters: Parameters) -> Tuple[str, ...]:
        """Return the abilities that a framework needs for these parameters."""
        return self.needs

    def supports(self, parameters: Parameters, framework: FrameworkAbilities) -> bool:
        """Return whether a framework has the abilities that these parameters need."""
        return framework.abilities.issuperset(self.needed(parameters))

    def backends(self, frameworks: Iterable[FrameworkAbilities]) -> List[str]:
        """Return the names of the frameworks that support at least one case of its sets, sorted."""
        cases = [case for cases in self.sets.values() for case in cases]
        return sorted(f.name for f in frameworks if any(self.supports(case, f) for case in cases))

    def complaints(self, parameters: Parameters) -> List[str]:
        """Return what is wrong with parameters, one message each; empty if all are valid."""
        # The user does not choose the algorithm: see `parameters_for`.
        names = {*self.parameters, *(["algorithm"] if self.operation else [])}
        messages = ["`{}` is not a parameter of `{}`".format(n, self.name) for n in parameters if n not in names]
        for name, parameter in self.parameters.items():
            if name in parameters:
                complaint = parameter.complaint(parameters[name])
                if complaint:
                    messages.append("`{}` {}, not `{}`".format(name, complaint, parameters[name]))
            elif parameter.default is None:
                messages.append("`{}` of `{}` is missing".format(name, self.name))
        return messages

    def parameters_for(self, parameters: Parameters, framework: FrameworkAbilities) -> Parameters:
        """Return parameters, with ``algorithm`` added if the framework computes in another way than others."""
        algorithm = framework.algorithms.get(self.operation)
        return dict(parameters, **({"algorithm": algorithm} if algorithm else {}))

    def items(self, parameters: Parameters) -> float:
        """Return the number of items, such as images, that one call processes; 0 if there are none."""
        return 0.0

    def flops(self, parameters: Parameters) -> float:
        """Return the floating-point operations of one call; 0 if only the time is measured."""
        return 0.0

    def bytes_moved(self, parameters: Parameters, dtype: str) -> float:
        """Return the minimum bytes that one call moves: inputs read once, outputs written once; or 0, as above."""
        return 0.0

    def memory(self, parameters: Parameters, dtype: str) -> float:
        """Return the approximate peak memory of a run in bytes, including the interpreter and the framework.

        The random bytes of the inputs are kept for the check, in addition to the framework's arrays. On a GPU, the
        figure is compared with the memory of the GPU, too.
        """
        elements = self.bytes_moved(parameters, dtype) / ITEM_BYTES[dtype]
        return PROCESS_BYTES + elements * (1 + self.copies * ITEM_BYTES[dtype])

    def extra_memory(self, parameters: Parameters, dtype: str, framework: FrameworkAbilities) -> float:
        """Return the approximate additional memory of a framework in bytes."""
        return 0.0

    @abstractmethod
    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Measure, and return status, samples and metrics as JSON-ready values.

        Args:
            backend: Backend that runs the indicator.
            parameters: Parameters of the indicator.
            plan: Number and duration of the samples.
        """


class _Program(Protocol):
    """A model or a block with parameters of its own."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Dict[str, Parameter]: ...


class ProgramIndicator(Indicator):
    """An indicator that runs one of several programs.

    Attributes:
        kind: What the programs are: the parameter that names one.
        programs: The programs by name.
    """

    kind = ""
    programs: Mapping[str, _Program] = {}

    def complaints(self, parameters: Parameters) -> List[str]:
        """Also check the parameters of the program."""
        messages = super().complaints(parameters)
        if messages:
            # The name of the program may not even be a text.
            return messages
        program = self.programs.get(parameters.get(self.kind, ""))
        return sorted(self.complaints_of(program, parameters)) if program is not None else []

    def complaints_of(self, program: Any, parameters: Parameters) -> List[str]:
        """Return what is wrong with the parameters of a program."""
        of, own = "{} `{}`".format(self.kind, program.name), program.parameters
        others = {name for other in self.programs.values() for name in other.parameters} - set(own)
        messages = ["`{}` of {} is missing".format(name, of) for name in own if name not in parameters]
        messages += ["`{}` is not a parameter of {}".format(name, of) for name in parameters if name in others]
        complaints = {name: own[name].complaint(value) for name, value in parameters.items() if name in own}
        return messages + ["`{}` {}, not `{}`".format(n, c, parameters[n]) for n, c in complaints.items() if c]


class Operation(Indicator):
    """An indicator that times one computation repeatedly."""

    @abstractmethod
    def prepare(self, backend: Backend, parameters: Parameters) -> Trial:
        """Make the inputs, and return the computation with its check."""

    def measure(self, backend: Backend, parameters: Parameters, plan: SamplingPlan) -> Dict[str, Any]:
        """Check one result, then time the computation."""
        return time_trial(self.prepare(backend, self.complete(parameters)), backend, plan)


def time_trial(trial: Trial, backend: Backend, plan: SamplingPlan, operations: int = 1) -> Dict[str, Any]:
    """Check the first result of a trial, then time it; samples are per operation of a call."""
    # The check comes first: it needs the first call, before later training steps change the weights.
    error = trial.check(trial.run())
    if wrong := refuse_error(error, trial.tolerance):
        return wrong
    timing = measure(trial.run, backend.synchronise, plan)
    samples, loops = [seconds / operations for seconds in timing.samples], timing.loops * operations
    document = timing._replace(samples=samples, loops=loops).document()
    return {**document, "error": error, "tolerance": trial.tolerance}


def refuse_error(error: float, tolerance: float) -> Dict[str, Any]:
    """Return the report of a wrong result with this relative error; empty if the error is accepted."""
    # NaN must be rejected: every comparison with it is false.
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
