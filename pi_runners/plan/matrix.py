"""Plans a block: the combinations of stacks, settings and indicator cases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from knowledge.catalogue.fit import contradictions
from knowledge.catalogue.settings import DEFAULT, setting_error, shipped_settings
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import MEASURED, frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import IndicatorRun, Scalar
from knowledge.domain.workload import ProfiledWorkload, WorkloadPart
from pi_runners.execution.benchmark import PROGRAM
from pi_runners.execution.environment import StackLock
from pi_runners.indicators import INDICATORS
from pi_runners.plan.shape_lists import shapes_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorCase:
    """An indicator with one set of parameters.

    Attributes:
        name: Name of the indicator.
        parameters: Its parameters; those with a default may be absent.
        dtype: Its own element type; empty for each element type of the block.
    """

    name: str
    parameters: Mapping[str, Any]
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One stack with its settings in a block.

    Attributes:
        number: Position in the first round, from 0.
        lock: Lock of the stack.
        framework: Distribution that provides the backend.
        reference: Whether the other arms are compared with this one.
        indicators: Indicators to run on it.
        settings: Run-time settings.
    """

    number: int
    lock: StackLock
    framework: str
    reference: bool
    indicators: tuple[IndicatorRun, ...]
    settings: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """Backend that runs the indicators."""
        return MEASURED[self.framework]

    @property
    def program_backends(self) -> tuple[str, ...]:
        """Backends of all frameworks of the stack, which a project's own program may use."""
        names = {package.package.name for package in self.lock.packages}
        return tuple(sorted({MEASURED[name] for name in names if name in MEASURED})) or (PROGRAM,)

    @property
    def label(self) -> str:
        """The stack and its settings as text."""
        values = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{self.lock.label} [{values}]" if values else self.lock.label


def framework_of(requested: Sequence[str]) -> str:
    """Return the framework of a stack: the first distribution in its requirements that has a backend.

    Raises:
        InputError: If none of them has a backend.
    """
    for text in requested:
        name = canonicalize_name(Requirement(text).name)
        if name in MEASURED:
            return name
    raise InputError(
        f"stack `{' '.join(requested)}` contains no framework that can be measured",
        hint=f"add one of {', '.join(f'`{name}`' for name in MEASURED)}",
    )


def backends_of(stacks: Iterable[str]) -> tuple[str, ...]:
    """Return the backends of stacks, sorted; a stack without one is ignored, since locking reports it."""
    backends = set()
    for text in stacks:
        with suppress(InputError, InvalidRequirement):
            backends.add(MEASURED[framework_of(text.split())])
    return tuple(sorted(backends))


def choose_cases(
    names: Iterable[str], *, size: str = "small", shapes: str | None = None, parameters: Mapping[str, Any] | None = None
) -> tuple[IndicatorCase, ...]:
    """Return the cases of indicators.

    Args:
        names: Names of the indicators.
        size: Named parameter set.
        shapes: List of shapes to use instead, such as ``deepbench`` or ``models-small``.
        parameters: Parameters to use instead.

    Raises:
        InputError: If an indicator, a set or a parameter does not exist, or a parameter is out of range.
    """
    cases: list[IndicatorCase] = []
    for name in names:
        if name not in INDICATORS:
            raise InputError(f"there is no indicator `{name}`", hint="`advisor pi list` lists the indicators")
        indicator = INDICATORS[name]
        if parameters is not None:
            parameter_sets: Sequence[Mapping[str, Any]] = (parameters,)
        elif shapes is not None:
            parameter_sets = shapes_of(shapes, name)
        elif size in indicator.sets:
            parameter_sets = indicator.sets[size]
        else:
            raise InputError(f"indicator `{name}` has no size `{size}`", hint=f"use one of {', '.join(indicator.sets)}")
        for values in parameter_sets:
            if complaints := indicator.complaints(dict(values)):
                raise InputError(
                    f"indicator `{name}`: {complaints[0]}", hint="`advisor pi list --long` describes every parameter"
                )
            cases.append(IndicatorCase(name=name, parameters=indicator.canonical(dict(values))))
    return tuple(cases)


def expand_settings(axes: Mapping[str, Sequence[Scalar]]) -> tuple[dict[str, Scalar], ...]:
    """Return every combination of settings; the value :data:`DEFAULT` stands for a setting that is not set.

    Raises:
        InputError: If a setting does not exist, or a value is not valid for it.
    """
    for name, values in axes.items():
        for value in values:
            is_default = value == DEFAULT and name in shipped_settings()
            if not is_default and (error := setting_error(name, value)) is not None:
                raise InputError(error, hint="`advisor pi settings` lists all settings and their values")
    names = sorted(axes)
    return tuple(
        {name: value for name, value in zip(names, combination, strict=True) if value != DEFAULT}
        for combination in itertools.product(*(axes[n] for n in names))
    )


def fitting(settings: Mapping[str, Scalar], backend: str, device: str) -> dict[str, Scalar]:
    """Return the settings whose values a backend supports on a device."""
    return {name: value for name, value in settings.items() if _fits(name, value, backend, device)}


def _fits(name: str, value: Scalar, backend: str, device: str) -> bool:
    setting = shipped_settings()[name]
    choice = setting.choice(backend, value)
    return choice is not None and device in (choice.devices or setting.devices)


def plan_arms(
    stacks: Sequence[tuple[StackLock, Mapping[str, Scalar]]],
    cases: Sequence[IndicatorCase],
    *,
    dtypes: Sequence[str] = ("float32",),
    device: str,
    control: bool,
    first: int = 0,
) -> tuple[Arm, ...]:
    """Plan the arms of a block.

    The reference of a backend is its first stack without settings, or else its first stack. Settings that a backend
    does not support are dropped; combinations that become equal are planned once.

    Args:
        stacks: Locks with their settings, in order.
        cases: Indicator cases, which run on every stack whose backend supports them.
        dtypes: Element types; every case runs in each of them.
        device: ``cpu`` or ``cuda``; backends without CUDA run on the CPU.
        control: Whether to add an A/A control: a second arm of each reference, which shows the noise.
        first: Number of the first arm.

    Raises:
        InputError: If a stack contains no framework that can be measured, or two settings contradict each other.
    """
    planned: dict[str, Arm] = {}
    for lock, settings in stacks:
        framework = framework_of(lock.requested)
        backend = MEASURED[framework]
        place = device if device in frameworks()[backend].devices else "cpu"
        values = fitting(settings, backend, place)
        if contradiction := next(iter(contradictions(values, backend=backend)), ""):
            raise InputError(f"{contradiction} in {framework}", hint="measure them in separate arms")
        key = json.dumps([lock.python, lock.requirements, values], sort_keys=True)
        if key not in planned:
            planned[key] = Arm(
                number=first + len(planned),
                lock=lock,
                framework=framework,
                reference=False,
                indicators=indicator_runs(cases, backend, dtypes, place),
                settings=values,
            )
    arms = list(planned.values())
    for backend in dict.fromkeys(s.backend for s in arms):
        candidates = [s for s in arms if s.backend == backend]
        reference = next((s for s in candidates if not s.settings), candidates[0])
        arms[reference.number - first] = replace(reference, reference=True)
        if control:
            arms.append(replace(reference, number=first + len(arms)))
    return tuple(arms)


def indicator_runs(
    cases: Sequence[IndicatorCase], backend: str, dtypes: Sequence[str], device: str
) -> tuple[IndicatorRun, ...]:
    """Return the runs of indicator cases that a backend supports on a device: ``cpu`` or ``cuda``."""
    return tuple(
        IndicatorRun(
            name=case.name,
            version=indicator.version,
            backend=backend,
            device=device,
            dtype=dtype,
            parameters=indicator.parameters_for(dict(case.parameters), frameworks()[backend]),
        )
        for dtype, case in _typed(cases, dtypes)
        for indicator in [INDICATORS[case.name]]
        if indicator.supports(dict(case.parameters), frameworks()[backend])
        and device in indicator.devices
        and dtype in indicator.dtypes
    )


def _typed(cases: Sequence[IndicatorCase], dtypes: Sequence[str]) -> list[tuple[str, IndicatorCase]]:
    """Return cases with each of their element types."""
    return [
        *((dtype, case) for dtype in dtypes for case in cases if not case.dtype),
        *((case.dtype, case) for case in cases if case.dtype),
    ]


def check_fit(
    cases: Sequence[IndicatorCase],
    dtypes: Sequence[str],
    hardware: HardwareProfile,
    *,
    device: str,
    backends: Iterable[str] = (),
    free_bytes: float | None = None,
) -> None:
    """Check that indicator cases fit into memory.

    Args:
        cases: Indicator cases.
        dtypes: Element types.
        hardware: The machine.
        device: ``cpu`` or ``cuda``.
        backends: Backends that will run the cases; the additional memory of these backends is included.
        free_bytes: Free main memory, if the cases run on this machine.

    Raises:
        InputError: If an element type does not exist, or at the first case that needs more memory than is free, or
            than the machine or its accelerator has.
    """
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise InputError(f"there is no element type `{dtype}`", hint=f"use one of {', '.join(DTYPES)}")
    limits: list[tuple[str, float | None]] = [("the machine has", hardware.memory_bytes)]
    if free_bytes is not None:
        limits.append(("free memory is", free_bytes))
    if device == "cuda" and hardware.gpu is not None:
        limits.append(("its GPU has", hardware.gpu.memory_bytes))
    for dtype, case in _typed(cases, dtypes):
        indicator = INDICATORS[case.name]
        complete = indicator.complete(dict(case.parameters))
        running = [f for f in map(frameworks().__getitem__, backends) if indicator.supports(dict(case.parameters), f)]
        extra = max((indicator.extra_memory(complete, dtype, f) for f in running), default=0.0)
        required = indicator.memory(complete, dtype) + extra
        for limit, available in limits:
            if available is not None and required > available:
                parameters = ", ".join(f"{k}={v}" for k, v in case.parameters.items())
                raise InputError(
                    f"indicator `{case.name}` with {parameters} needs about {required / 1e9:.1f} GB in {dtype}; "
                    f"{limit} {available / 1e9:.1f} GB",
                    hint="use smaller parameters, or `--size small`",
                )


_SMALLEST_SHARE = 0.005
"""Parts with a smaller share of the time are not measured."""


def workload_cases(workload: ProfiledWorkload) -> tuple[tuple[IndicatorCase, float], ...]:
    """Return the cases of the parts that can be measured, each with its share of the time, the largest first.

    A part without parameters cannot be measured. Neither can an operation of the backward pass whose indicator measures
    the forward pass only.
    """
    parts = [part for part in workload.parts if part.share >= _SMALLEST_SHARE and _is_measurable(part)]
    cases = (IndicatorCase(name=p.indicator, parameters=dict(p.parameters), dtype=p.dtype or "float32") for p in parts)
    return tuple((case, part.share) for case, part in zip(cases, parts, strict=True))


def _is_measurable(part: WorkloadPart) -> bool:
    indicator = INDICATORS.get(part.indicator)
    if indicator is None or not part.parameters or indicator.complaints(dict(part.parameters)):
        return False
    if part.dtype and part.dtype not in indicator.dtypes:
        return False
    return part.direction != "backward" or "direction" in part.parameters
