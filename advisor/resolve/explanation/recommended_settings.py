"""The run-time settings of the advice: those to set, those to allow, and those to avoid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from packaging.version import Version

from advisor.resolve.score.costs import speed_steps
from advisor.resolve.score.setting_choice import TargetSettings
from knowledge.catalogue.settings import Numerics, code_of, environment_of, shipped_settings
from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.domain.hardware import DETECTED
from knowledge.domain.ratio import Ratio, WithRatio, product
from knowledge.estimate.gains import SettingGains, SettingValue
from knowledge.estimate.interface import Estimator, Prediction
from knowledge.estimate.numerical_effect import NumericalEffect, effects_of
from knowledge.estimate.setting_effect import SettingEffect
from knowledge.hardware.this_machine import installed_libraries

Status = Literal["recommended", "offered", "advised-against"]
"""Whether a setting is a part of the advice, would be if reduced precision were allowed, or makes programs slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedSetting:
    """A run-time setting with a clear effect, and what the advice says about it.

    Attributes:
        package: The framework.
        name: Name of the setting.
        value: Its value.
        status: What the advice says.
        numerics: What it does to results.
        effects: Predicted effects, one for each kind of workload if none is selected.
        environment: Environment variables that apply it; a shared library is named by its file name.
        code: Lines of Python that apply it, where the environment cannot.
        documentation: Address of the page that documents it.
        numerical_effects: Measured effects of a lower precision on the results of small models.
        together_with: Settings of the advice that it gains with, if it gains nothing without them, as ``name=value``.
        missing: What the machine lacks for it, in one clause; empty for most. It is emulated.
        not_installed: File names of libraries: the setting needs one of them, and this machine, the target, has none.
        debian_package: Package of Debian and Ubuntu with such a library; empty if it needs none, or it is not known.
    """

    package: str
    name: str
    value: str
    status: Status
    numerics: Numerics
    effects: tuple[SettingEffect, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    documentation: str = ""
    numerical_effects: tuple[NumericalEffect, ...] = ()
    together_with: tuple[str, ...] = ()
    missing: str = ""
    not_installed: tuple[str, ...] = ()
    debian_package: str = ""

    @property
    def needs_program(self) -> bool:
        """Whether only code in the program applies it."""
        choice = shipped_settings()[self.name].choice(FRAMEWORKS[self.package], self.value)
        return choice is not None and choice.needs_program


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedGain(WithRatio):
    """Predicted speed-up that the recommended settings of a stack have a part in.

    Frameworks have equal shares of the time; the effect of a setting alone is that on the part of its framework.
    """

    ratio: Ratio
    frameworks: int = 1


def recommended_settings(
    stack: Mapping[str, Version], estimator: Estimator, settings: TargetSettings
) -> tuple[RecommendedSetting, ...]:
    """Return the settings of the frameworks of a stack that the advice says something about, the recommended first."""
    effects: dict[tuple[str, str], list[SettingEffect]] = {}
    for effect in estimator.compared_settings(stack):
        effects.setdefault((effect.package, effect.setting), []).append(effect)
    listed = []
    for gains in estimator.setting_gains({name: [version] for name, version in stack.items()}, stack):
        version = stack[gains.framework]
        for status, value in _statuses(gains, version, settings):
            of_value = effects.get((gains.framework, "=".join(value)), ())
            # What is slower for small programs only is not to be avoided by large ones.
            if status == "advised-against" and any(e.low > 1 or e.gains_from for e in of_value):
                continue
            described = _described(gains.framework, value, status, settings, version, effects)
            best = settings.best(gains, version).values
            if status == "offered":
                best = replace(settings, allows_reduced=True).best(gains, version).values
            if status != "advised-against":
                described = replace(described, together_with=tuple(_partners(gains, version, value, best)))
            listed.append(described)
    order = {"recommended": 0, "offered": 1, "advised-against": 2}
    return tuple(sorted(listed, key=lambda s: (order[s.status], s.package, s.name, s.value)))


def stated_settings(
    stack: Mapping[str, Version], values: Mapping[str, int | str], settings: TargetSettings
) -> tuple[RecommendedSetting, ...]:
    """Return the settings that somebody chose, of each framework of a stack that has them, as a part of the advice."""
    return tuple(
        _described(framework, (name, str(value)), "recommended", settings, version, {})
        for framework, version in stack.items()
        if framework in FRAMEWORKS
        for name, value in values.items()
        if settings.choice(framework, (name, str(value)), version) is not None
    )


def compared_effects(
    stack: Mapping[str, Version], estimator: Estimator, settings: TargetSettings, listed: Collection[RecommendedSetting]
) -> tuple[SettingEffect, ...]:
    """Return the measured effects of run-time settings of the frameworks of a stack.

    Values that the stack's version or the machine does not have are left out, unless the advice is about them.
    """
    of_advice = {(s.package, s.name, s.value) for s in listed}
    return tuple(
        effect
        for effect in estimator.compared_settings(stack)
        for name, _, value in [effect.setting.partition("=")]
        if (effect.package, name, value) in of_advice
        or settings.may_have(effect.package, (name, value), stack[effect.package])
    )


def values_to_set(settings: Iterable[RecommendedSetting]) -> dict[str, dict[str, int | str]]:
    """Return the values of the recommended settings, by package and name of the setting."""
    values: dict[str, dict[str, int | str]] = {}
    for setting in settings:
        if setting.status == "recommended":
            is_number = shipped_settings()[setting.name].least is not None
            values.setdefault(setting.package, {})[setting.name] = int(setting.value) if is_number else setting.value
    return values


def combined_gain(
    recommended: Iterable[RecommendedSetting], stack: Mapping[str, Version], estimator: Estimator
) -> CombinedGain | None:
    """Return the predicted speed-up by the recommended settings together; `None` if there are none."""
    values = {(s.package, (s.name, s.value)) for s in recommended if s.status == "recommended"}
    if not values:
        return None
    every = estimator.setting_gains({name: [version] for name, version in stack.items()}, stack)
    factors = (
        gains.of(stack[gains.framework], {value for package, value in values if package == gains.framework})
        for gains in every
    )
    return CombinedGain(ratio=product(factors), frameworks=len(every))


def gain_with_settings(prediction: Prediction, gain: CombinedGain | None) -> CombinedGain | None:
    """Return the speed-up of a stack with its recommended settings over the baseline without settings.

    The errors of the two predictions count as independent, as in the score. `None` without settings, or if there is no
    speed-up over the baseline to report.
    """
    if gain is None or prediction.is_same or not prediction.is_known:
        return None
    return CombinedGain(ratio=prediction.ratio.times(gain.ratio))


def _statuses(gains: SettingGains, version: Version, settings: TargetSettings) -> Iterator[tuple[Status, SettingValue]]:
    best = settings.best(gains, version).values
    for value in best:
        yield "recommended", value
    for value in replace(settings, allows_reduced=True).best(gains, version).values:
        choice = settings.choice(gains.framework, value, version)
        if value not in best and choice is not None and choice.numerics == "reduced":
            yield "offered", value
    for value, gain in gains.alone[version].items():
        if value in best or speed_steps(gain) >= 0:
            continue
        is_slower = settings.choice(gains.framework, value, version) is not None and gain.is_significant()
        # Without the feature it cannot gain: a loss beyond one standard deviation is evidence enough.
        is_loss = gain.mean + gain.deviation < 0
        if is_slower or (is_loss and settings.emulated(gains.framework, value, version)):
            yield "advised-against", value


def _described(
    framework: str,
    value: SettingValue,
    status: Status,
    settings: TargetSettings,
    version: Version,
    effects: Mapping[tuple[str, str], list[SettingEffect]],
) -> RecommendedSetting:
    name, text = value
    backend = FRAMEWORKS[framework]
    emulated = settings.emulated(framework, value, version)
    choice = emulated[0] if emulated else settings.choice(framework, value, version)
    own = shipped_settings()[name].framework(backend)
    assert choice is not None
    assert own is not None
    is_here = settings.hardware.name == DETECTED
    installed = installed_libraries(choice.library) if is_here else dict.fromkeys(choice.library)
    return RecommendedSetting(
        package=framework,
        name=name,
        value=text,
        status=status,
        numerics=choice.numerics,
        effects=tuple(effects.get((framework, "=".join(value)), ())),
        environment=environment_of(
            {name: text}, backend, present={}, libraries={file: file for file in installed or choice.library}
        ),
        code=code_of({name: text}, backend),
        documentation=own.documentation,
        numerical_effects=effects_of(backend, {name: text}) if choice.numerics == "reduced" else (),
        missing=emulated[1] if emulated else "",
        not_installed=() if installed else choice.library,
        debian_package=choice.debian_package,
    )


def _partners(gains: SettingGains, version: Version, value: SettingValue, best: Collection[SettingValue]) -> list[str]:
    """Return the settings of the best ones that a setting was measured with, if it gains nothing without them."""
    if speed_steps(gains.alone[version][value]) > 0:
        return []
    pairs = [pair for pair in gains.together[version] if value in pair]
    return sorted("=".join(other) for pair in pairs for other in pair if other != value and other in best)
