"""Which runs a block is made of: stacks x settings x cases of indicators."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import IndicatorRun, Scalar
from pi_runners.environment import StackLock
from pi_runners.indicators import INDICATORS
from pi_runners.vocabulary import FRAMEWORKS, SETTINGS, setting_error

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8")
_CPU_ONLY = ("numpy",)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicatorCase:
    """An indicator with one set of parameters.

    Attributes:
        name: Indicator.
        parameters: Its parameters; defaults may be left out.
    """

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A stack's place in a block.

    Attributes:
        number: Place in the order of the first round, from 0.
        lock: The stack.
        framework: Distribution that provides the backend.
        reference: Whether the other arms are compared with this one.
        indicators: What is run on it.
        settings: Run-time switches.
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
        return FRAMEWORKS[self.framework]

    @property
    def label(self) -> str:
        """The stack and its settings, for people."""
        switches = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{self.lock.label} [{switches}]" if switches else self.lock.label


def framework_of(requested: Sequence[str]) -> str:
    """Return the distribution whose backend measures a stack: the first requested one that has a backend.

    Raises:
        InputError: If none has.
    """
    for text in requested:
        name = canonicalize_name(Requirement(text).name)
        if name in FRAMEWORKS:
            return name
    raise InputError(
        f"stack `{' '.join(requested)}` names no framework that can be measured",
        hint=f"name one of {', '.join(f'`{name}`' for name in FRAMEWORKS)}",
    )


def backends_of(stacks: Iterable[str]) -> tuple[str, ...]:
    """Return the backends of stacks, each requirements with spaces; stacks without one are left to who locks them."""
    found = set()
    for text in stacks:
        with suppress(InputError, InvalidRequirement):
            found.add(FRAMEWORKS[framework_of(text.split())])
    return tuple(sorted(found))


def choose_cases(
    names: Iterable[str], *, size: str = "small", shapes: str | None = None, parameters: Mapping[str, Any] | None = None
) -> tuple[IndicatorCase, ...]:
    """Return the cases of indicators.

    Args:
        names: Indicators.
        size: Named parameter set.
        shapes: Published list of shapes to take instead, such as ``deepbench``.
        parameters: Parameters to take instead.

    Raises:
        InputError: If an indicator, a set or a parameter is not known or out of its range.
    """
    found: list[IndicatorCase] = []
    for name in names:
        if name not in INDICATORS:
            raise InputError(f"there is no indicator `{name}`", hint="`advisor pi list` names them")
        indicator = INDICATORS[name]
        if parameters is not None:
            chosen: Sequence[Mapping[str, Any]] = (parameters,)
        elif shapes is not None:
            chosen = shapes_of(shapes, name)
        elif size in indicator.sets:
            chosen = indicator.sets[size]
        else:
            raise InputError(f"indicator `{name}` has no size `{size}`", hint=f"take one of {list(indicator.sets)}")
        for case in chosen:
            if complaints := indicator.complaints(dict(case)):
                raise InputError(
                    f"indicator `{name}`: {complaints[0]}", hint="`advisor pi list --long` tells every parameter"
                )
            found.append(IndicatorCase(name=name, parameters=indicator.canonical(dict(case))))
    return tuple(found)


def shapes_of(name: str, indicator: str) -> Sequence[Mapping[str, Any]]:
    """Return the shapes that a published list has for an indicator; ``deepbench`` is its training and server lists.

    Raises:
        InputError: If there is no such list.
    """
    lists = published_shapes()
    chosen = [key for key in lists if key == name or (name == "deepbench" and not key.endswith("device"))]
    if not chosen:
        raise InputError(f"there are no shapes `{name}`", hint=f"take one of deepbench, {', '.join(lists)}")
    return [shape for key in chosen for shape in lists[key].get(indicator, ())]


@cache
def published_shapes() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the shipped lists of shapes: by list, then by indicator."""
    text = (Path(__file__).parent / "shapes" / "deepbench.json").read_text(encoding="utf-8")
    lists: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(text)["lists"]
    return lists


def expand_settings(axes: Mapping[str, Sequence[Scalar]]) -> tuple[dict[str, Scalar], ...]:
    """Return every combination of settings.

    Raises:
        InputError: If a setting or a value does not exist.
    """
    for name, values in axes.items():
        for value in values:
            if (wrong := setting_error(name, value)) is not None:
                raise InputError(wrong, hint="`advisor pi settings` tells every setting and its values")
    names = sorted(axes)
    return tuple(dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*(axes[n] for n in names)))


def fitting(settings: Mapping[str, Scalar], backend: str, device: str) -> dict[str, Scalar]:
    """Return those of the settings that a backend knows on a device."""
    return {n: v for n, v in settings.items() if backend in SETTINGS[n].backends and device in SETTINGS[n].devices}


def plan_arms(
    stacks: Sequence[tuple[StackLock, Mapping[str, Scalar]]],
    cases: Sequence[IndicatorCase],
    *,
    dtypes: Sequence[str] = ("float32",),
    device: str,
    again: bool,
    first: int = 0,
) -> tuple[Arm, ...]:
    """Plan the arms of a block.

    The first stack of each backend without settings, or its first one, is that backend's reference. Settings that a
    backend does not know are left out, and what is the same then is planned once.

    Args:
        stacks: Each a stack with settings, in order.
        cases: What is run on every stack whose backend can.
        dtypes: Element types; cases are run in each.
        device: ``cpu`` or ``cuda``; backends without CUDA run on the CPU.
        again: Whether each reference takes a second arm: an A/A comparison, the noise floor.
        first: Number of the first arm.

    Raises:
        InputError: If a stack's framework is not known.
    """
    planned: dict[str, Arm] = {}
    for lock, settings in stacks:
        framework = framework_of(lock.requested)
        backend = FRAMEWORKS[framework]
        place = "cpu" if backend in _CPU_ONLY else device
        kept = fitting(settings, backend, place)
        key = json.dumps([lock.python, lock.requirements, kept], sort_keys=True)
        if key not in planned:
            planned[key] = Arm(
                number=first + len(planned),
                lock=lock,
                framework=framework,
                reference=False,
                indicators=_runs(cases, backend, dtypes, place),
                settings=kept,
            )
    arms = list(planned.values())
    for backend in dict.fromkeys(s.backend for s in arms):
        mine = [s for s in arms if s.backend == backend]
        chosen = next((s for s in mine if not s.settings), mine[0])
        arms[chosen.number - first] = replace(chosen, reference=True)
        if again:
            arms.append(replace(chosen, number=first + len(arms)))
    return tuple(arms)


def _runs(cases: Sequence[IndicatorCase], backend: str, dtypes: Sequence[str], device: str) -> tuple[IndicatorRun, ...]:
    return tuple(
        IndicatorRun(
            name=case.name,
            version=indicator.version,
            backend=backend,
            device=device,
            dtype=dtype,
            parameters=indicator.parameters_for(dict(case.parameters), backend),
        )
        for dtype in dtypes
        for case in cases
        for indicator in [INDICATORS[case.name]]
        if indicator.supports(dict(case.parameters), backend)
        and device in indicator.devices
        and dtype in indicator.dtypes
    )


def check_fit(
    cases: Sequence[IndicatorCase],
    dtypes: Sequence[str],
    hardware: HardwareProfile,
    *,
    device: str,
    backends: Iterable[str] = (),
    free_bytes: float | None = None,
) -> None:
    """Refuse cases that do not fit.

    Args:
        cases: What is to be run.
        dtypes: Element types.
        hardware: The machine.
        device: ``cpu`` or ``cuda``.
        backends: Backends that are to run them; what some take beyond others is counted for these.
        free_bytes: Main memory that is free now, where it runs on this machine.

    Raises:
        InputError: If an element type is not known, or at the first case that takes more memory than is free, or than
            the machine, or its accelerator, has.
    """
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise InputError(f"there is no element type `{dtype}`", hint=f"take one of {', '.join(DTYPES)}")
    room: list[tuple[str, float | None]] = [("the machine has", hardware.memory_bytes)]
    if free_bytes is not None:
        room.append(("free memory is", free_bytes))
    if device == "cuda" and hardware.gpu is not None:
        room.append(("its GPU has", hardware.gpu.memory_bytes))
    for case, dtype in itertools.product(cases, dtypes):
        indicator = INDICATORS[case.name]
        complete = indicator.complete(dict(case.parameters))
        running = [b for b in backends if indicator.supports(dict(case.parameters), b)]
        extra = max((indicator.extra_memory(complete, dtype, b) for b in running), default=0.0)
        needed = indicator.memory(complete, dtype) + extra
        for whose, held in room:
            if held is not None and needed > held:
                shown = ", ".join(f"{k}={v}" for k, v in case.parameters.items())
                raise InputError(
                    f"indicator `{case.name}` with {shown} takes about {needed / 1e9:.1f} GB in {dtype}; "
                    f"{whose} {held / 1e9:.1f} GB",
                    hint="take smaller parameters, or `--size small`",
                )
