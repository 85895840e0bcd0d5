"""Measures an existing interpreter with its installed packages; no package index is used and nothing is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from packaging.tags import platform_tags
from packaging.version import InvalidVersion, Version

from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import MEASURED, frameworks
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.observation import Scalar
from knowledge.domain.stack import PackageVersion, Stack, make_stack
from pi_runners.execution.environment import BuiltEnvironment, StackLock, read_interpreter
from pi_runners.indicators import INDICATORS
from pi_runners.plan.matrix import Arm, IndicatorCase, check_fit, choose_cases, fitting, plan_arms

_FOR_PROCESSORS = frozenset({"onnxruntime", "tensorflow-cpu"})
"""Distributions that support no accelerator, of frameworks that do."""
_SMALLER = {"large": "medium", "medium": "small"}

RunKey = tuple[int, int, str]
"""Round, arm and indicator label of a run within its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """Specification of an arm on an existing interpreter.

    Attributes:
        settings: Run-time settings; the arm is dropped if the backend or device does not support all of them.
        dtypes: Element types.
        indicators: Names of the block's indicators to run; empty for all.
    """

    settings: Mapping[str, Scalar] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    indicators: tuple[str, ...] = ()


def installed_environment(python: Path) -> tuple[BuiltEnvironment, tuple[str, ...]]:
    """Return an interpreter as an environment, and the distributions whose version is not valid.

    Args:
        python: Path of the interpreter.

    Raises:
        EnvironmentBuildError: If the interpreter cannot be run.
    """
    version, versions = read_interpreter(python)
    packages, unreadable = [], []
    for name, number in sorted(versions.items()):
        try:
            packages.append(PackageVersion(name=name, version=str(Version(number))))
        except InvalidVersion:
            unreadable.append(f"{name} {number}")
    stack = make_stack(packages, python=version, platform=next(iter(platform_tags())))
    return BuiltEnvironment(python=python, stack=stack), tuple(unreadable)


def installed_frameworks(stack: Stack) -> tuple[str, ...]:
    """Return the frameworks of a stack: one distribution for each backend."""
    installed = []
    for framework in frameworks().values():
        names = [name for name in framework.distributions if stack.version_of(name) is not None]
        # One that supports an accelerator comes first.
        installed += sorted(names, key=_FOR_PROCESSORS.__contains__)[:1]
    return tuple(installed)


def device_of(framework: str, hardware: HardwareProfile) -> str:
    """Return the device of a framework: ``cuda`` if there is a GPU and the distribution supports it, else ``cpu``."""
    supports_gpu = framework not in _FOR_PROCESSORS and "cuda" in frameworks()[MEASURED[framework]].devices
    return hardware.device if supports_gpu else "cpu"


def cases_that_fit(
    names: Iterable[str], size: str, dtypes: Sequence[str], hardware: HardwareProfile, *, device: str
) -> tuple[tuple[IndicatorCase, ...], tuple[str, ...]]:
    """Return the indicator cases of a size; a case that needs too much memory is replaced by that of a smaller size.

    Args:
        names: Names of the indicators; those that do not support the device have no cases.
        size: Named parameter set.
        dtypes: Element types; a case must fit into memory in all of them.
        hardware: The machine.
        device: ``cpu`` or ``cuda``.

    Returns:
        The cases, and a message for each case that needs too much memory.
    """
    cases: list[IndicatorCase] = []
    messages: list[str] = []
    for name in names:
        if device not in INDICATORS[name].devices:
            continue
        for position, case in enumerate(choose_cases([name], size=size)):
            candidate: IndicatorCase | None = case
            smaller = size
            while candidate is not None:
                try:
                    check_fit((candidate,), dtypes, hardware, device=device)
                    break
                except InputError as error:
                    messages.append(error.message)
                smaller = _SMALLER.get(smaller, "")
                sets = choose_cases([name], size=smaller) if smaller else ()
                candidate = sets[position] if position < len(sets) else None
            if candidate is not None and candidate not in cases:
                cases.append(candidate)
    return tuple(cases), tuple(messages)


def plan_installed_arms(
    environment: BuiltEnvironment,
    framework: str,
    specs: Iterable[ArmSpec],
    cases: Sequence[IndicatorCase],
    *,
    device: str,
) -> tuple[Arm, ...]:
    """Plan the arms of a block on an existing interpreter; the first arm is the reference.

    Args:
        environment: The interpreter.
        framework: Distribution that provides the backend.
        specs: Specifications of the arms.
        cases: Indicator cases of the block.
        device: ``cpu`` or ``cuda``.
    """
    stack = environment.stack
    # The lock only labels the stack: nothing is installed from it.
    lock = StackLock(
        requested=(f"{framework}=={stack.version_of(framework)}",),
        packages=(),
        python=str(environment.python),
        platform=stack.platform,
    )
    arms: list[Arm] = []
    for spec in specs:
        if fitting(spec.settings, MEASURED[framework], device) != dict(spec.settings):
            continue
        spec_cases = [case for case in cases if not spec.indicators or case.name in spec.indicators]
        planned = plan_arms([(lock, spec.settings)], spec_cases, dtypes=spec.dtypes, device=device, control=False)
        if planned[0].indicators:
            arms.append(replace(planned[0], number=len(arms), reference=not arms))
    return tuple(arms)


def missing_rounds(
    arms: Sequence[Arm], rounds: int, measured: Mapping[RunKey, str], *, session: str
) -> Iterator[tuple[int, tuple[Arm, ...]]]:
    """Yield the incomplete rounds of a block, with arms that contain only the missing indicators.

    Arms are compared within a round, so a round should be measured in one session. The first round that another session
    left incomplete is skipped, and one more round is measured instead. Further such rounds are completed in this
    session; otherwise the block would never be complete where a session is shorter than a round.

    Args:
        arms: Arms of the block.
        rounds: Number of complete rounds to reach.
        measured: Measured runs of the block, with the session of each.
        session: Name of this session.

    Yields:
        The number of a round and its arms.
    """
    complete, skipped = 0, False
    for number in count():
        if complete == rounds:
            return
        other_sessions = {name for (n, _, _), name in measured.items() if n == number} - {session}
        missing = tuple(
            replace(arm, indicators=tuple(r for r in arm.indicators if (number, arm.number, r.label) not in measured))
            for arm in arms
        )
        if any(arm.indicators for arm in missing):
            if other_sessions and not skipped:
                skipped = True
                continue
            yield number, missing
        complete += 1
