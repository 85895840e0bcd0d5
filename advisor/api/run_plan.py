"""What applies run-time settings to a program on this machine: variables, processors, statements, and what cannot."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from advisor.domain.words import count, quoted
from advisor.locks.setting_value import AppliedSetting
from knowledge.catalogue.fit import Misfit, misfit_of
from knowledge.catalogue.settings import JOINED_VARIABLES, SettingChoice, Statements, environment_of, shipped_settings
from knowledge.domain.hardware import HardwareProfile
from knowledge.hardware.detect import detect as detect_hardware
from knowledge.hardware.this_machine import allowed_processors, installed_libraries, node_processors
from pi_runners.hooks import sitecustomize as hook


@dataclass(frozen=True, kw_only=True)
class RunMachine:
    """What the settings need to know about a machine; the defaults are about this one.

    Attributes:
        system: Operating system, as :func:`platform.system` names it in lower case.
        processors: Processors that a program may use; ``None`` if the system has no processor affinity.
        node: Function that returns the processors of a NUMA node; ``None`` if there is no such node.
        libraries: Function that returns the paths of installed shared libraries by file name.
        detect: Function that returns the hardware; it is called only if a setting needs features of it.
    """

    system: str = field(default_factory=lambda: platform.system().lower())
    processors: frozenset[int] | None = field(default_factory=allowed_processors)
    node: Callable[[int], frozenset[int] | None] = node_processors
    libraries: Callable[[Sequence[str]], Mapping[str, Path]] = installed_libraries
    detect: Callable[[], HardwareProfile] = detect_hardware

    @cached_property
    def hardware(self) -> HardwareProfile:
        """The hardware."""
        return self.detect()


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a setting is not applied.

    Attributes:
        setting: The setting.
        reason: Why.
        hint: What to do to apply it; may be empty.
    """

    setting: AppliedSetting
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """How settings are applied to a program.

    Attributes:
        variables: Environment variables to set.
        processors: Processors to bind the program to; empty for no change.
        statements: What to run after imports of the program.
        applied: Settings that these apply.
        code: Settings that only lines of code apply.
        defaults: Settings that need nothing, because they are what happens without them.
        skipped: Settings that are not applied, each with the reason.
    """

    variables: Mapping[str, str]
    processors: tuple[int, ...]
    statements: tuple[Statements, ...]
    applied: tuple[AppliedSetting, ...]
    code: tuple[AppliedSetting, ...]
    defaults: tuple[AppliedSetting, ...]
    skipped: tuple[Obstacle, ...]

    def environment(self, present: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program, by the environment of the caller."""
        variables = {**present, **self.variables}
        if self.statements:
            folder = str(Path(hook.__file__).parent)
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, present.get("PYTHONPATH", "")]))
            variables[hook.SETTINGS] = json.dumps([asdict(part) for part in self.statements])
        return variables


def plan_run(
    settings: Sequence[AppliedSetting], *, present: Mapping[str, str], machine: RunMachine | None = None
) -> RunPlan:
    """Return how settings are applied to a program on a machine, by default this one.

    What the environment of the caller has stays: a setting whose variable has another value is skipped as a whole.
    """
    machine = machine or RunMachine()
    allowed = processors = machine.processors or frozenset()
    variables: dict[str, str] = {}
    applied = []
    others, skipped = _without_variables(settings, machine)
    for setting in in_order(s for s in settings if s.is_from_outside):
        bound = (
            obstacle(setting, machine) or conflict(setting, present, machine) or _bound(setting, processors, machine)
        )
        if isinstance(bound, Obstacle):
            skipped.append(bound)
            continue
        processors = bound
        variables = add_variables(variables, variables_of(setting, machine.libraries))
        applied.append(setting)
    after_import = [setting for setting in others if setting.statements]
    return RunPlan(
        variables={name: with_present(name, text, present) for name, text in sorted(variables.items())},
        processors=() if processors == allowed else tuple(sorted(processors)),
        statements=tuple(part for setting in after_import for part in setting.statements),
        applied=tuple(sorted([*applied, *after_import], key=lambda s: (s.framework, s.name))),
        code=tuple(s for s in others if s.code and not s.statements),
        defaults=tuple(s for s in others if not s.code),
        skipped=tuple(sorted(skipped, key=lambda s: (s.setting.framework, s.setting.name))),
    )


def in_order(settings: Iterable[AppliedSetting]) -> list[AppliedSetting]:
    """Return settings in the order of their application.

    The processors of a node come first, because other settings take some of them. Otherwise it is the order of the
    catalogue: a setting overrides variables of earlier ones.
    """
    order = list(shipped_settings())
    return sorted(settings, key=lambda s: (s.processors != "node", s.framework, order.index(s.name)))


def _without_variables(
    settings: Iterable[AppliedSetting], machine: RunMachine
) -> tuple[list[AppliedSetting], list[Obstacle]]:
    """Return the settings that no variable applies: by code or without anything, and those that are skipped."""
    others, skipped = [], []
    for setting in settings:
        if setting.is_from_outside:
            continue
        if misfit := _misfit(replace(setting.choice, systems=(), library=()), setting, machine):
            skipped.append(Obstacle(setting=setting, reason=misfit.reason))
        elif setting.hint and not setting.code:
            skipped.append(Obstacle(setting=setting, reason="the program cannot apply it", hint=setting.hint))
        else:
            others.append(setting)
    return others, skipped


def variables_of(
    setting: AppliedSetting, libraries: Callable[[Sequence[str]], Mapping[str, Path]] | None = None
) -> dict[str, str]:
    """Return the environment variables that apply a setting.

    Args:
        setting: The setting.
        libraries: Function that returns the paths of shared libraries; by default, file names are used instead, which
            the dynamic linker looks for.
    """
    if libraries is None or not setting.choice.library:
        return dict(setting.environment)
    paths = {name: str(path) for name, path in libraries(setting.choice.library).items()}
    return environment_of({setting.name: setting.value}, setting.framework, present={}, libraries=paths)


def add_variables(variables: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with more of them; lists such as ``XLA_FLAGS`` are joined, without repetitions."""
    result = dict(variables)
    for name, text in more.items():
        separator = JOINED_VARIABLES.get(name)
        parts = dict.fromkeys([*result.get(name, "").split(separator), *text.split(separator)]) if separator else [text]
        result[name] = (separator or "").join(filter(None, parts))
    return result


def with_present(name: str, text: str, present: Mapping[str, str]) -> str:
    """Return the value that settings give a variable with what the environment has in it already, if it is a list.

    A flag of the environment that the settings give another value is left out.
    """
    separator = JOINED_VARIABLES.get(name)
    if separator is None:
        return text
    flags = {_flag(part) for part in text.split(separator)}
    others = [part for part in present.get(name, "").split(separator) if _flag(part) not in flags]
    return separator.join(filter(None, [*others, *text.split(separator)]))


def _flag(part: str) -> str:
    """Return the name of a flag such as ``--xla_cpu_max_isa=AVX2``; another text is its own name."""
    return part.partition("=")[0] if part.startswith("--") else part


def obstacle(setting: AppliedSetting, machine: RunMachine) -> Obstacle | None:
    """Return why a setting cannot be applied on a machine, whatever its environment has; ``None`` if it can."""
    choice = setting.choice
    misfit = _misfit(choice, setting, machine)
    if misfit is not None:
        systems, library = choice.systems, choice.library
        reasons = {
            "system": f"it exists on {' and '.join(systems)}, not on {machine.system}",
            "library": f"{quoted(library)} {'is' if len(library) == 1 else 'are'} not installed",
        }
        hint = "install the package of your distribution that contains it" if misfit.subject == "library" else ""
        return Obstacle(setting=setting, reason=reasons.get(misfit.subject, misfit.reason), hint=hint)
    bound = _bound(setting, machine.processors or frozenset(), machine)
    return bound if isinstance(bound, Obstacle) else None


def _misfit(choice: SettingChoice, setting: AppliedSetting, machine: RunMachine) -> Misfit | None:
    devices = setting.setting.devices
    # The lock, and not the machine, says which version there is.
    return misfit_of(
        choice,
        hardware=machine.hardware if choice.features or choice.capability or choice.devices else None,
        device=devices[0] if len(devices) == 1 else "",
        system=machine.system,
        libraries=machine.libraries,
    )


def conflict(setting: AppliedSetting, present: Mapping[str, str], machine: RunMachine) -> Obstacle | None:
    """Return which variable of the caller contradicts a setting, or ``None``."""
    for name, text in variables_of(setting, machine.libraries).items():
        if value := _present_value(name, text, present, _libraries_of(setting)):
            return Obstacle(
                setting=setting,
                reason=f"the environment has `{name}={value}` already",
                hint=f"run `unset {name}` first to apply it",
            )
    return None


def _libraries_of(setting: AppliedSetting) -> frozenset[str]:
    """Return the file names of the libraries of all values of a setting."""
    framework = setting.setting.framework(setting.framework)
    return frozenset(name for choice in (framework.choices if framework else ()) for name in choice.library)


def _present_value(name: str, text: str, present: Mapping[str, str], libraries: frozenset[str]) -> str:
    """Return the part of the caller's value of a variable that another text contradicts; empty if there is none.

    Of shared libraries with the same purpose, each contradicts the others.
    """
    value = present.get(name, "")
    separator = JOINED_VARIABLES.get(name)
    if separator is None:
        return value if value != text else ""
    own, parts = value.split(separator), text.split(separator)
    if name == "LD_PRELOAD":
        paths = [path for part in own for path in part.split()]
        return next((path for path in paths if Path(path).name in libraries and path not in parts), "")
    flags = {_flag(part): part for part in parts}
    return next((part for part in own if flags.get(_flag(part), part) != part), "")


def _bound(setting: AppliedSetting, processors: frozenset[int], machine: RunMachine) -> frozenset[int] | Obstacle:
    """Return the processors that a setting leaves to a program, or why it cannot be applied."""
    if not setting.processors and not setting.setting.within_processors:
        return processors
    number = int(setting.value)
    # Not every system says how many processors a program may use, and without that it cannot be bound to some.
    is_limited = setting.processors == "count" or machine.processors is not None
    if setting.setting.within_processors and is_limited and len(processors) < number:
        available = count(len(processors), "processor")
        return Obstacle(setting=setting, reason=f"the program may use {available}, not {number}")
    if not setting.processors:
        return processors
    if setting.processors == "count":
        return frozenset(sorted(processors)[:number])
    node = machine.node(number)
    if node is None:
        return Obstacle(setting=setting, reason=f"this machine has no NUMA node {number}")
    if not node & processors:
        return Obstacle(setting=setting, reason=f"the program may use no processor of the NUMA node {number}")
    return node & processors
