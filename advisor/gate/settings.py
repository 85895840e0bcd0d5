"""Run-time settings of a project: slow ones, and those that contradict the lock, the target or each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Scope
from advisor.project.switches import Switch
from advisor.resolve.predictor import Predictor
from knowledge.settings.catalogue import setting_error, shipped_settings
from knowledge.settings.compatibility import contradictions, missing_for
from knowledge.settings.model import ANY, SettingChoice

RecommendedValues = Mapping[str, Mapping[str, int | str]]
"""Recommended values of settings, by framework and name."""


def check_slow_settings(
    scope: Scope, switches: Sequence[Switch], predictor: Predictor, *, backends: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the settings of the project that make the locked stack significantly slower.

    Args:
        scope: The lock, the target and the policy.
        switches: Run-time settings of the project.
        predictor: Predictions from the observations.
        backends: Backend of each measured package.
    """
    measured = {n: v for n, v in scope.lock.versions.items() if n in backends}
    for switch in switches:
        settings = {n: {switch.name: switch.value} for n in measured if switch.applies_to(backends[n])}
        if not settings or not switch.value:
            continue
        for effect in predictor.setting_effects(scope.lock.versions, settings):
            if effect.high < 1:
                yield scope.finding(
                    "ADV016",
                    f"`{effect.subject}`{_condition(switch)} is predicted to run `{effect.package} "
                    f"{measured[effect.package]}` at {effect.speedup:.3f}x the speed of the default "
                    f"[{effect.low:.3f}, {effect.high:.3f}]",
                    package=effect.package,
                    place=_place(switch),
                    subject=effect.subject,
                )


def check_recommended_settings(
    scope: Scope, switches: Sequence[Switch], recommended: RecommendedValues, *, backends: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the settings of the project that contradict those of the lock, or take their effect away.

    Args:
        scope: The lock, the target and the policy.
        switches: Run-time settings of the project.
        recommended: The settings of the lock, by framework, with those that are the same for all of them.
        backends: Backend of each measured package.
    """
    for switch, package, backend in _applications(scope, switches, backends):
        value = {**recommended.get(ANY, {}), **recommended.get(backend, {})}.get(switch.name)
        if value is None or switch.value == str(value) or switch.is_default:
            continue
        sets = f"`{switch.name}` to `{switch.value}`" if switch.value else f"`{switch.name}` when the program runs"
        if switch.overrides_environment and _is_from_outside(switch.name, value, backend):
            yield scope.finding(
                "ADV035",
                f"the code sets {sets}{_condition(switch)}, so the recommended `{switch.name}={value}` has no effect "
                "when `advisor run` or the environment sets it",
                package=package,
                place=_place(switch),
                subject=f"{switch.name}={switch.value}",
            )
        elif switch.value:
            yield scope.finding(
                "ADV034",
                f"this sets {sets}{_condition(switch)}; the settings of the lock have `{switch.name}={value}` for "
                f"`{package}`",
                package=package,
                place=_place(switch),
                subject=f"{switch.name}={switch.value}",
            )


def check_supported_settings(
    scope: Scope, switches: Sequence[Switch], *, backends: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the settings of the project that are out of range, or that the locked version or the target lacks.

    Args:
        scope: The lock, the target and the policy.
        switches: Run-time settings of the project.
        backends: Backend of each measured package.
    """
    for switch, package, backend in _applications(scope, switches, backends):
        if not switch.value:
            continue
        problem = _value_error(switch)
        framework = shipped_settings()[switch.name].framework(backend)
        choice = framework.choice(switch.value) if framework else None
        if problem is None and choice is not None:
            problem = _obstacle(choice, switch, package, scope)
        if problem is not None:
            yield scope.finding(
                "ADV036",
                f"this sets `{switch.name}` to `{switch.value}`{_condition(switch)}, but {problem}",
                package=package,
                place=_place(switch),
                subject=f"{switch.name}={switch.value}",
            )


def check_contradictions(scope: Scope, switches: Sequence[Switch], *, backends: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the pairs of settings of the project of which one has no effect, or a wrong one, with the other.

    Args:
        scope: The lock, the target and the policy.
        switches: Run-time settings of the project.
        backends: Backend of each measured package.
    """
    applied = _applications(scope, switches, backends)
    for (other, other_package, _), (switch, package, backend) in itertools.combinations(applied, 2):
        if package != other_package or switch.name == other.name:
            continue
        if contradictions({switch.name: switch.value, other.name: other.value}, backend=backend):
            yield scope.finding(
                "ADV037",
                f"this sets `{switch.name}={switch.value}`, which contradicts `{other.name}={other.value}` of "
                f"`{_place(other)}`",
                package=package,
                place=_place(switch),
                subject=f"{switch.name} {other.name}",
            )


def _applications(
    scope: Scope, switches: Sequence[Switch], backends: Mapping[str, str]
) -> Iterator[tuple[Switch, str, str]]:
    """Yield each setting with each locked package that it applies to, and its framework."""
    device = "cuda" if scope.problem.target.hardware.gpu else "cpu"
    for switch in switches:
        setting = shipped_settings()[switch.name]
        for package in sorted(scope.lock.versions):
            backend = backends.get(package, "")
            has_effect = backend and setting.framework(backend) is not None and device in setting.devices
            if has_effect and switch.applies_to(backend):
                yield switch, package, backend


def _is_from_outside(name: str, value: int | str, backend: str) -> bool:
    """Whether the environment or a set of processors applies a setting, without changes to the code."""
    framework = shipped_settings()[name].framework(backend)
    choice = framework.choice(value) if framework else None
    return choice is not None and bool(choice.environment or choice.processors)


def _value_error(switch: Switch) -> str | None:
    value: int | str = int(switch.value) if switch.value.isdecimal() else switch.value
    return setting_error(switch.name, value)


def _obstacle(choice: SettingChoice, switch: Switch, package: str, scope: Scope) -> str | None:
    """Return why a value has no effect with the locked version or on the target; none if it has."""
    version, hardware = scope.lock.versions[package], scope.problem.target.hardware
    return missing_for(choice, hardware, version, framework=package, counts_unknown=False) or None


def _condition(switch: Switch) -> str:
    return " under a condition" if switch.is_conditional else ""


def _place(switch: Switch) -> Place:
    return Place(path=str(switch.path), line=switch.line)
