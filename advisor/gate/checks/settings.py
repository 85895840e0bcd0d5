"""Run-time settings of a project: slow ones, and those that contradict the lock, the target or each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from advisor.domain.words import speed_text
from advisor.gate.findings import Finding, Place
from advisor.gate.scope import Scope
from advisor.project.settings.interface import ProjectSetting
from knowledge.catalogue.fit import contradictions, misfit_of
from knowledge.catalogue.settings import ANY, setting_error, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS


def check_slow_settings(scope: Scope) -> Iterator[Finding]:
    """Yield the settings whose predicted loss against the default is significant and exceeds `max-regression`."""
    slowest = 1 - scope.policy.max_regression
    measured = {n: v for n, v in scope.lock.versions.items() if n in FRAMEWORKS}
    for used in scope.settings_with_lock:
        settings = {n: {used.name: used.value} for n in measured if used.applies_to(FRAMEWORKS[n])}
        if not settings or not used.value:
            continue
        for effect in scope.case.predictor.setting_effects(scope.lock.versions, settings):
            if effect.speedup < slowest and effect.high < 1:
                message = (
                    f"with `{effect.subject}`{_condition(used)}, `{effect.package} {measured[effect.package]}` is "
                    f"predicted to be {speed_text(effect, 'with the default')}; {slowest:.3g} times is allowed"
                )
                yield _finding(scope, "ADV016", message, effect.package, used, effect.subject)


def check_recommended_settings(scope: Scope) -> Iterator[Finding]:
    """Yield the settings of the project that contradict the lock's settings, or take their effect away."""
    recommended = scope.state.recommended_settings
    for used, package, backend in _applications(scope):
        value = {**recommended.get(ANY, {}), **recommended.get(backend, {})}.get(used.name)
        if value is None or used.value == str(value) or used.is_default:
            continue
        sets = f"`{used.name}` to `{used.value}`" if used.value else f"`{used.name}` when the program runs"
        choice = shipped_settings()[used.name].choice(backend, value)
        is_from_outside = choice is not None and (choice.environment or choice.processors or choice.imports)
        if used.overrides_environment and is_from_outside:
            message = (
                f"the code sets {sets}{_condition(used)}, so the recommended `{used.name}={value}` has no effect "
                "when `advisor run` or the environment sets it"
            )
            yield _finding(scope, "ADV035", message, package, used)
        elif used.value:
            recommendation = f"the settings of the lock have `{used.name}={value}` for `{package}`"
            yield _finding(scope, "ADV034", f"this sets {sets}{_condition(used)}; {recommendation}", package, used)


def check_supported_settings(scope: Scope) -> Iterator[Finding]:
    """Yield the settings of the project that are out of range, or that the locked version or the target lacks."""
    for used, package, backend in _applications(scope):
        if not used.value:
            continue
        number = used.value.isascii() and used.value.isdecimal()
        problem = setting_error(used.name, int(used.value) if number else used.value)
        choice = shipped_settings()[used.name].choice(backend, used.value)
        if problem is None and choice is not None:
            version, hardware = scope.lock.versions[package], scope.problem.target.hardware
            misfit = misfit_of(choice, version=version, framework=package, hardware=hardware)
            problem = None if misfit is None or misfit.is_unknown else misfit.reason
        if problem is not None:
            message = f"this sets `{used.name}` to `{used.value}`{_condition(used)}, but {problem}"
            yield _finding(scope, "ADV036", message, package, used)


def check_contradictions(scope: Scope) -> Iterator[Finding]:
    """Yield the settings of the project that have no effect, or a wrong one, with another of its settings."""
    applied = _applications(scope)
    for (other, other_package, _), (used, package, backend) in itertools.combinations(applied, 2):
        if package != other_package or used.name == other.name:
            continue
        if contradictions({used.name: used.value, other.name: other.value}, backend=backend):
            contradicted = f"`{other.name}={other.value}` of `{_place(other)}`"
            message = f"this sets `{used.name}={used.value}`, which contradicts {contradicted}"
            yield _finding(scope, "ADV037", message, package, used, f"{used.name} {other.name}")


def check_unread_files(scope: Scope) -> Iterator[Finding]:
    """Yield the files of the project that may contain settings, but cannot be parsed."""
    for file in scope.state.project_settings.unread:
        message = f"this file contains words of run-time settings, but it was not read: {file.reason}"
        place = Place(path=str(file.path), line=file.line)
        yield scope.finding("ADV038", message, place=place, subject=file.file)


def _applications(scope: Scope) -> Iterator[tuple[ProjectSetting, str, str]]:
    """Yield each setting with each locked package that it applies to, and its framework."""
    device = scope.problem.target.hardware.device
    for used in scope.settings:
        setting = shipped_settings()[used.name]
        for package in sorted(scope.lock.versions):
            backend = FRAMEWORKS.get(package, "")
            has_effect = backend and setting.framework(backend) is not None and device in setting.devices
            if has_effect and used.applies_to(backend):
                yield used, package, backend


def _finding(scope: Scope, code: str, message: str, package: str, used: ProjectSetting, subject: str = "") -> Finding:
    """Return a finding about a setting of the project; the subject is the setting by default."""
    subject = subject or f"{used.name}={used.value}"
    return scope.finding(code, message, package=package, place=_place(used), subject=subject)


def _condition(used: ProjectSetting) -> str:
    return " under a condition" if used.is_conditional else ""


def _place(used: ProjectSetting) -> Place:
    return Place(path=str(used.path), line=used.line)


STATE_CHECKS = (
    check_slow_settings,
    check_recommended_settings,
    check_supported_settings,
    check_contradictions,
    check_unread_files,
)
