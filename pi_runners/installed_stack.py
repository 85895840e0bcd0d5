"""An interpreter with its packages as they are: measured without a package index, and without installing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from packaging.tags import platform_tags
from packaging.version import InvalidVersion, Version

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.domain.stack import PackageVersion, Stack, make_stack
from pi_runners.environment import BuiltEnvironment, StackLock, read_interpreter
from pi_runners.indicators import INDICATORS
from pi_runners.matrix import Arm, IndicatorCase, check_fit, choose_cases, fitting, plan_arms
from pi_runners.vocabulary import FRAMEWORKS

_SMALLER = {"large": "medium", "medium": "small"}
_CPU_ONLY = ("numpy", "onnxruntime", "tensorflow-cpu")
"""Distributions that compute on the CPU only."""

RunKey = tuple[int, int, str]
"""Round, arm and indicator label of a run within its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """What one arm of a block measures.

    Attributes:
        settings: Run-time switches; the arm is left out for backends and devices that do not know all of them.
        dtypes: Element types.
        indicators: Only these of the block's indicators; empty for all.
    """

    settings: Mapping[str, Scalar] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    indicators: tuple[str, ...] = ()


def installed_environment(python: Path) -> tuple[BuiltEnvironment, tuple[str, ...]]:
    """Return an interpreter as an environment, and the distributions whose version cannot be read.

    Raises:
        EnvironmentBuildError: If the interpreter does not run.
    """
    version, found = read_interpreter(python)
    packages, unreadable = [], []
    for name, text in sorted(found.items()):
        try:
            packages.append(PackageVersion(name=name, version=str(Version(text))))
        except InvalidVersion:
            unreadable.append(f"{name} {text}")
    stack = make_stack(packages, python=version, platform=next(iter(platform_tags())))
    return BuiltEnvironment(python=python, stack=stack), tuple(unreadable)


def installed_frameworks(stack: Stack) -> tuple[str, ...]:
    """Return the distributions of a stack that provide backends, one for each backend."""
    found: dict[str, str] = {}
    for distribution in sorted(FRAMEWORKS, key=lambda name: name in _CPU_ONLY):
        if stack.version_of(distribution) is not None:
            found.setdefault(FRAMEWORKS[distribution], distribution)
    return tuple(found[backend] for backend in dict.fromkeys(FRAMEWORKS.values()) if backend in found)


def device_of(framework: str, hardware: HardwareProfile) -> str:
    """Return the device that a framework computes on: ``cuda`` where there is a GPU and the distribution can use it."""
    return "cpu" if hardware.gpu is None or framework in _CPU_ONLY else "cuda"


def cases_that_fit(
    names: Iterable[str], size: str, dtypes: Sequence[str], hardware: HardwareProfile, *, device: str
) -> tuple[tuple[IndicatorCase, ...], tuple[str, ...]]:
    """Return the cases of a size, the same case of a smaller size for what needs too much memory, and what that was.

    Args:
        names: Indicators; those that have nothing to do on the device have no cases.
        size: Named parameter set.
        dtypes: Element types that all must fit.
        hardware: The machine.
        device: ``cpu`` or ``cuda``.
    """
    found: list[IndicatorCase] = []
    refused: list[str] = []
    for name in names:
        if device not in INDICATORS[name].devices:
            continue
        for place, case in enumerate(choose_cases([name], size=size)):
            candidate: IndicatorCase | None = case
            smaller = size
            while candidate is not None:
                try:
                    check_fit((candidate,), dtypes, hardware, device=device)
                    break
                except InputError as error:
                    refused.append(error.message)
                smaller = _SMALLER.get(smaller, "")
                sets = choose_cases([name], size=smaller) if smaller else ()
                candidate = sets[place] if place < len(sets) else None
            if candidate is not None and candidate not in found:
                found.append(candidate)
    return tuple(found), tuple(refused)


def plan_installed_arms(
    environment: BuiltEnvironment,
    framework: str,
    specs: Iterable[ArmSpec],
    cases: Sequence[IndicatorCase],
    *,
    device: str,
) -> tuple[Arm, ...]:
    """Plan the arms of a block on an interpreter that exists; the first specification becomes the reference.

    Args:
        environment: The interpreter.
        framework: Distribution that provides the backend.
        specs: What to compare.
        cases: What is run, as far as a specification includes it.
        device: ``cpu`` or ``cuda``.
    """
    stack = environment.stack
    # Nothing is installed from it: it names what is measured.
    lock = StackLock(
        requested=(f"{framework}=={stack.version_of(framework)}",),
        packages=(),
        python=str(environment.python),
        platform=stack.platform,
    )
    arms: list[Arm] = []
    for spec in specs:
        if fitting(spec.settings, FRAMEWORKS[framework], device) != dict(spec.settings):
            continue
        chosen = [case for case in cases if not spec.indicators or case.name in spec.indicators]
        planned = plan_arms([(lock, spec.settings)], chosen, dtypes=spec.dtypes, device=device, again=False)
        if planned[0].indicators:
            arms.append(replace(planned[0], number=len(arms), reference=not arms))
    return tuple(arms)


def missing_rounds(
    arms: Sequence[Arm], rounds: int, measured: Mapping[RunKey, str], *, session: str
) -> Iterator[tuple[int, tuple[Arm, ...]]]:
    """Yield the rounds of a block that are not complete, each with arms that hold only what is missing.

    Arms of a round are compared with each other, so a round must be measured in one session. One that another session
    left incomplete stays so, and one more round is measured; only a second such round is completed here, so that
    measuring comes to an end even where a session is shorter than a round.

    Args:
        arms: Of the block.
        rounds: How many complete rounds there are to be.
        measured: What was measured of the block, each with the name of its session.
        session: Name of this session.
    """
    complete, given_up = 0, False
    for number in count():
        if complete == rounds:
            return
        others = {name for (n, _, _), name in measured.items() if n == number} - {session}
        missing = tuple(
            replace(arm, indicators=tuple(r for r in arm.indicators if (number, arm.number, r.label) not in measured))
            for arm in arms
        )
        if any(arm.indicators for arm in missing):
            if others and not given_up:
                given_up = True
                continue
            yield number, missing
        complete += 1
